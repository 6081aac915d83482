"""TLS settings that cannot work are refused."""

import pytest

from stagemesh.errors import BadSettings
from stagemesh.rpc import Tls


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        ({"cert_path": "c.pem"}, "key_path"),
        ({"key_path": "k.pem"}, "cert_path"),
        ({"cert_path": "c", "key_path": "k", "client_auth": True}, "ca_path"),
    ],
)
def test_half_of_a_setting_is_refused(paths: dict[str, str], named: str) -> None:
    with pytest.raises(BadSettings, match=named):
        Tls(**paths)  # type: ignore[arg-type]
