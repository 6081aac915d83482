"""The rule about channels without TLS."""

import pytest

from stagemesh.errors import BadSettings
from stagemesh.rpc import Tls, open_channel


def test_a_channel_that_leaves_the_machine_needs_tls() -> None:
    with pytest.raises(BadSettings, match="--insecure"):
        open_channel("10.0.0.1:50051")


def test_a_missing_tls_file_is_said_at_once() -> None:
    with pytest.raises(FileNotFoundError):
        open_channel("127.0.0.1:50051", tls=Tls(ca_path="/no/such/file.pem"))
