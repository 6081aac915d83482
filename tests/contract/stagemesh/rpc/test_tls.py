"""TLS on a real socket, with certificates made for the test."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from grpc import aio

from stagemesh.api.stage.v1.payload_service_pb2 import ReleaseRequest
from stagemesh.outcome import ErrorCode
from stagemesh.rpc import RunningServer, Tls, error_of, open_channel
from tests.helpers.echo_service import Echo, start_echo, stub_of


class Files:
    """The PEM files of one authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_path = str(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.ca_path)
        self.issue("server", "localhost")
        self.issue("client", "gateway.test")

    def issue(self, name: str, identity: str, ca: trustme.CA | None = None) -> None:
        """Write NAME.pem and NAME.key as a mount does it: each file appears at once."""
        certificate = (ca or self.ca).issue_cert(identity)
        for suffix, pem in (
            (".pem", certificate.cert_chain_pems[0]),
            (".key", certificate.private_key_pem),
        ):
            draft = self.folder / f"draft{suffix}"
            pem.write_to_path(str(draft))
            os.replace(draft, self.folder / f"{name}{suffix}")

    def path(self, name: str) -> str:
        """Name a file of the folder."""
        return str(self.folder / name)

    @property
    def server(self) -> Tls:
        """What a server needs."""
        return Tls(cert_path=self.path("server.pem"), key_path=self.path("server.key"))

    @property
    def mutual(self) -> Tls:
        """What a server needs that asks clients for a certificate."""
        return Tls(
            ca_path=self.ca_path,
            cert_path=self.path("server.pem"),
            key_path=self.path("server.key"),
            client_auth=True,
        )

    @property
    def anybody(self) -> Tls:
        """What a client without a certificate needs."""
        return Tls(ca_path=self.ca_path, server_name="localhost")

    @property
    def client(self) -> Tls:
        """What a client with a certificate needs."""
        return Tls(
            ca_path=self.ca_path,
            cert_path=self.path("client.pem"),
            key_path=self.path("client.key"),
            server_name="localhost",
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def serving(tls: Tls) -> AsyncIterator[RunningServer]:
    server = await start_echo(Echo(), tls=tls)
    try:
        yield server
    finally:
        await server.stop(0)


async def call(server: RunningServer, tls: Tls | None) -> None:
    async with open_channel(server.address, tls=tls) as channel:
        await stub_of(channel).Release(ReleaseRequest(), timeout=10)


async def refused(server: RunningServer, tls: Tls | None) -> bool:
    try:
        await call(server, tls)
    except aio.AioRpcError as error:
        assert error_of(error).code is ErrorCode.LINK_LOST
        return True
    return False


async def test_a_client_that_trusts_the_authority_is_served(files: Files) -> None:
    async with serving(files.server) as server:
        await call(server, files.anybody)


async def test_a_client_without_tls_is_refused(files: Files) -> None:
    async with serving(files.server) as server:
        assert await refused(server, None)


async def test_a_client_refuses_a_server_of_another_name(files: Files) -> None:
    async with serving(files.server) as server:
        assert await refused(server, Tls(ca_path=files.ca_path, server_name="other.test"))


async def test_with_client_certificates_nobody_comes_in_without_one(files: Files) -> None:
    async with serving(files.mutual) as server:
        assert await refused(server, files.anybody)
        await call(server, files.client)


async def test_a_certificate_of_another_authority_is_refused(files: Files) -> None:
    files.issue("client", "gateway.test", trustme.CA())
    async with serving(files.mutual) as server:
        assert await refused(server, files.client)


async def test_a_new_certificate_is_used_for_the_next_connection(
    files: Files, tmp_path: Path
) -> None:
    async with serving(files.server) as server:
        files.issue("server", "renamed.test")
        assert await refused(server, files.anybody)
        await call(server, Tls(ca_path=files.ca_path, server_name="renamed.test"))


async def test_a_certificate_that_vanished_leaves_the_last_good_one(files: Files) -> None:
    async with serving(files.server) as server:
        os.unlink(files.path("server.pem"))
        await call(server, files.anybody)
