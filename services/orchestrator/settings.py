"""What an operator may set of an orchestrator."""

from dataclasses import dataclass, field
from pathlib import Path

from stagemesh.payload import PAYLOAD_DIRECTORY
from stagemesh.rpc import Tls
from stagemesh.settings import split_address

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One orchestrator: its mesh, its name, its ports and its limits."""

    mesh: Path
    """The mesh file."""
    id: str
    """The name of this orchestrator in the mesh."""
    discovery: str
    """Where replicas are found: `file:PATH` or `static:GROUP=ID@HOST:PORT,…`."""
    grpc: str = "127.0.0.1:50051"
    """The client port: `OrchestratorService`, reflection, health."""
    link: str = "127.0.0.1:50052"
    """The link port: gateways, and the payloads that this process holds."""
    advertise: str = ""
    """Where workers reach the link port; empty means at `link` itself."""
    admin: str = "127.0.0.1:50053"
    """The port for operators: `AdminService`."""
    metrics: str = ""
    """Where `/metrics` is served; empty means nowhere."""
    orchestrators: int = 1
    """How many orchestrators share the mesh's limits."""
    drain_s: float = 30.0
    """How long requests may go on after SIGTERM."""
    slow_s: float = 30.0
    """How long a client may take nothing of what waits for it before its request is ended."""
    stall_s: float = 30.0
    """After how long without an engine step a replica with work gets nothing more."""
    lease_s: float = 60.0
    """How long workers and gateways keep payloads without a sign of life: no longer than they do.

    It must outlast a re-drive: longer than 16.
    """
    payload_bytes_max: int = 256 * 1024 * 1024
    """How much large input of gRPC clients is held at once."""
    payload_directory: Path = PAYLOAD_DIRECTORY
    """Where that input lies."""
    dump_directory: str = ""
    """Where the last inputs of the core are written if it fails, or on SIGUSR1; empty: nowhere."""
    insecure: bool = False
    """Allow addresses that are not loopback without TLS."""
    reflection: bool = False
    """Serve reflection on the link and admin ports too."""
    log_level: str = "INFO"
    """The least level that is logged."""
    tls: Tls = field(default_factory=Tls)
    """For every port, and towards workers."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: If one is out of range, or the id is empty.
        """
        if not self.id:
            raise ValueError("id must not be empty")
        if self.orchestrators < 1:
            raise ValueError("orchestrators must be at least 1")
        if self.drain_s < 0:
            raise ValueError("drain_s must not be negative")
        if min(self.slow_s, self.stall_s, self.lease_s) <= 0:
            raise ValueError("slow_s, stall_s and lease_s must be above zero")
        if self.payload_bytes_max < 1:
            raise ValueError("payload_bytes_max must be at least 1")
        if split_address(self.advertised)[1] == 0:
            raise ValueError("others must know the link port: give it a number, or advertise one")

    @property
    def advertised(self) -> str:
        """Where workers reach the link port, for the payloads that this process holds."""
        return self.advertise or self.link

    @property
    def server_tls(self) -> Tls | None:
        """TLS of the ports; none without a certificate."""
        return self.tls if self.tls.cert_path else None

    @property
    def channel_tls(self) -> Tls | None:
        """TLS towards workers; none without an authority to trust, or a certificate to show."""
        return self.tls if self.tls.ca_path or self.tls.cert_path else None
