"""The rule about servers without TLS."""

import pytest

from stagemesh.errors import BadSettings
from stagemesh.rpc import Tls, start_server


async def test_a_server_that_others_reach_needs_tls() -> None:
    with pytest.raises(BadSettings, match="--insecure"):
        await start_server("0.0.0.0:50051", register=lambda server: None, services=[])


async def test_a_server_s_tls_needs_a_certificate(tmp_path: object) -> None:
    with pytest.raises(BadSettings, match="cert_path"):
        await start_server(
            "127.0.0.1:0",
            register=lambda server: None,
            services=[],
            tls=Tls(ca_path=__file__),
        )
