"""TLS from mounted PEM files."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from stagemesh.errors import BadSettings

__all__ = ["Tls", "channel_credentials", "server_credentials"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Paths of PEM files, read when a server handshakes or a channel opens.

    A server needs `cert_path` and `key_path`, and asks clients for a certificate where
    `client_auth` is set. A channel trusts `ca_path` (empty: the system's roots), shows its own
    certificate if it has one, and expects `server_name` where it is set, else the address's host.
    """

    ca_path: str = ""
    """The authorities that peers are checked against; empty means the system's."""
    cert_path: str = ""
    """The own certificate, with what leads from it to its authority."""
    key_path: str = ""
    """The private key of the own certificate."""
    client_auth: bool = False
    """Ask clients of the port for a certificate."""
    server_name: str = ""
    """The name to expect in a peer's certificate; empty means the host of its address."""

    def __post_init__(self) -> None:
        """Check what can be checked without reading a file."""
        if bool(self.cert_path) != bool(self.key_path):
            raise BadSettings("tls: cert_path and key_path belong together")
        if self.client_auth and not self.ca_path:
            raise BadSettings("tls: client_auth needs ca_path, to check clients against")


def channel_credentials(tls: Tls) -> grpc.ChannelCredentials:
    """Read the files of a channel.

    Raises:
        OSError: If one cannot be read.
    """
    return grpc.ssl_channel_credentials(
        root_certificates=_read(tls.ca_path),
        private_key=_read(tls.key_path),
        certificate_chain=_read(tls.cert_path),
    )


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Read the files of a server; they are read again for handshakes after they have changed.

    Raises:
        BadSettings: If there is no certificate.
        OSError: If a file cannot be read now. Later the last good ones stay in force.
    """
    if not tls.cert_path:
        raise BadSettings("tls: a server needs cert_path and key_path")
    files = _Files(tls)
    return grpc.dynamic_ssl_server_credentials(
        files.configuration(),
        files.changed,  # type: ignore[arg-type]  # The stub does not know that None means unchanged.
        require_client_authentication=tls.client_auth,
    )


class _Files:
    """The files of one server and what they looked like when they were read last."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen = self._looks()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        tls = self._tls
        return grpc.ssl_server_certificate_configuration(
            [(Path(tls.key_path).read_bytes(), Path(tls.cert_path).read_bytes())],
            root_certificates=_read(tls.ca_path),
        )

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Give the new configuration if a file has changed; called by gRPC at each handshake."""
        try:
            looks = self._looks()
            if looks == self._seen:
                return None
            configuration = self.configuration()
        except OSError:  # A mount is being swapped: the next handshake looks again.
            return None
        self._seen = looks
        return configuration

    def _looks(self) -> tuple[tuple[int, int, int], ...]:
        paths = (self._tls.cert_path, self._tls.key_path, self._tls.ca_path)
        stats = [Path(path).stat() for path in paths if path]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
