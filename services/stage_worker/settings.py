"""What an operator may set of a stage worker."""

from dataclasses import dataclass, field
from pathlib import Path

from services.stage_worker.core import Limits
from stagemesh.payload import PAYLOAD_DIRECTORY, WARM_BYTES_MAX
from stagemesh.rpc import Tls
from stagemesh.settings import split_address

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One worker: its mesh, its pool, its name, its ports and its limits."""

    mesh: Path
    """The mesh file."""
    pool: str
    """The pool of the mesh file that this worker is a replica of."""
    replica_id: str
    """The name of this replica in the mesh."""
    listen: str
    """`StageService`, `PayloadService` and health."""
    advertise: str = ""
    """Where others reach `listen`, for the payloads held here; empty means at `listen` itself."""
    metrics: str = ""
    """Where `/metrics` is served; empty means nowhere."""
    load_s: float = 1800.0
    """How long the engine may take to load its model."""
    drain_s: float = 30.0
    """How long attempts may go on after SIGTERM."""
    stall_s: float = 30.0
    """After how long without an engine step a worker with work counts as stalled."""
    orphan_s: float = 2.0
    """How long an attempt goes on whose orchestrator is gone; nobody gets its outputs."""
    lease_s: float = 60.0
    """How long payloads live without a sign of life of their request."""
    payload_bytes_max: int = 4 * 1024 * 1024 * 1024
    """How many bytes of results may be held for others at once."""
    payload_warm_bytes_max: int = WARM_BYTES_MAX
    """How much of that may be memory of payloads that are over, kept up to `lease_s` for the next
    ones, since new memory is slow; 0 keeps none. It is at most an eighth of the directory."""
    payload_directory: Path = PAYLOAD_DIRECTORY
    """Where those bytes lie."""
    outbox_bytes_max: int = 4 * 1024 * 1024
    """What one attempt may hold back for want of credit."""
    insecure: bool = False
    """Allow addresses that are not loopback without TLS."""
    reflection: bool = False
    """Serve reflection."""
    log_level: str = "INFO"
    """The least level that is logged."""
    tls: Tls = field(default_factory=Tls)
    """For the port, and towards other holders of payloads."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: If one is out of range, or a name is empty.
        """
        if not self.replica_id or not self.pool:
            raise ValueError("pool and replica_id must not be empty")
        if min(self.drain_s, self.orphan_s, self.payload_bytes_max) < 0:
            raise ValueError("drain_s, orphan_s and payload_bytes_max must not be negative")
        if self.payload_warm_bytes_max < 0:
            raise ValueError("payload_warm_bytes_max must not be negative")
        if min(self.load_s, self.stall_s, self.lease_s, self.outbox_bytes_max) <= 0:
            raise ValueError("load_s, stall_s, lease_s and outbox_bytes_max must be above zero")
        if self.advertise:
            split_address(self.advertise)

    @property
    def limits(self) -> Limits:
        """The core's part."""
        return Limits(
            outbox_bytes_max=self.outbox_bytes_max, stall_s=self.stall_s, orphan_s=self.orphan_s
        )

    @property
    def server_tls(self) -> Tls | None:
        """TLS of the port; none without a certificate."""
        return self.tls if self.tls.cert_path else None

    @property
    def channel_tls(self) -> Tls | None:
        """TLS towards others; none without an authority to trust, or a certificate to show."""
        return self.tls if self.tls.ca_path or self.tls.cert_path else None
