"""What an operator may set of a gateway."""

from dataclasses import dataclass, field
from pathlib import Path

from services.gateway.client import ClientPolicy
from services.gateway.core.limits import EdgeLimits
from stagemesh.link.core import WINDOW_BYTES, WINDOW_UNITS
from stagemesh.payload import PAYLOAD_DIRECTORY
from stagemesh.rpc import Tls
from stagemesh.settings import refuse_exposed, split_address

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One gateway: its name, its ports, who may call, and its limits."""

    id: str
    """The name of this gateway in the mesh."""
    discovery: str
    """Where orchestrators are found: `file:PATH` or `static:orchestrators=ID@HOST:PORT,…`."""
    http: str = "127.0.0.1:8000"
    """The port for clients."""
    payload: str = "127.0.0.1:8001"
    """Where large inputs of clients are fetched from."""
    insecure: bool = False
    """Allow addresses that are not loopback without TLS."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that requests may give as `Host`, beside loopback and `http`'s own; `*` is any."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call, such as `https://app.example`; `*` is any."""
    drain_s: float = 30.0
    """How long requests may go on after SIGTERM."""
    slow_s: float = 30.0
    """How long a client's socket may take nothing before its connection is cut."""
    send_buffer_bytes: int = 64 * 1024
    """Of a client's socket: more would only hide that the client does not read."""
    window_units: int = WINDOW_UNITS
    """How many units an orchestrator may run ahead of a client, for each request."""
    window_bytes: int = WINDOW_BYTES
    """How many bytes it may."""
    fetch_s: float = 30.0
    """How long the bytes of one output may take."""
    payload_bytes_max: int = 1024 * 1024 * 1024
    """How much large input of clients is held at once."""
    payload_directory: Path = PAYLOAD_DIRECTORY
    """Where the bytes of large inputs lie."""
    lease_s: float = 60.0
    """How long they are kept without a sign of life of their request."""
    store: str = ""
    """SQLite file of requests that outlive a gateway, for all of one machine; empty: none do."""
    log_level: str = "INFO"
    """The least level that is logged."""
    client: ClientPolicy = field(default_factory=ClientPolicy)
    limits: EdgeLimits = field(default_factory=EdgeLimits)
    tls: Tls = field(default_factory=Tls)
    """For the payload port, and towards orchestrators and workers."""

    def __post_init__(self) -> None:
        """Check the addresses and the numbers.

        Raises:
            BadSettings: If the HTTP address is malformed, or open to others without `insecure`.
            ValueError: If a number is out of range, or the id is empty.
        """
        if not self.id:
            raise ValueError("id must not be empty")
        refuse_exposed(self.http, secure=False, insecure=self.insecure)
        if split_address(self.payload)[1] == 0:
            raise ValueError("payload must name its port, since handles tell it to others")
        positive = {
            "fetch_s": self.fetch_s,
            "lease_s": self.lease_s,
            "payload_bytes_max": self.payload_bytes_max,
            "send_buffer_bytes": self.send_buffer_bytes,
            "slow_s": self.slow_s,
            "window_bytes": self.window_bytes,
            "window_units": self.window_units,
        }
        for name, value in positive.items():
            if value <= 0:
                raise ValueError(f"{name} must be above zero")
        if self.drain_s < 0:
            raise ValueError("drain_s must not be negative")

    @property
    def server_tls(self) -> Tls | None:
        """TLS of the payload port; none without a certificate."""
        return self.tls if self.tls.cert_path else None

    @property
    def channel_tls(self) -> Tls | None:
        """TLS towards others; none without an authority to trust, or a certificate to show."""
        return self.tls if self.tls.ca_path or self.tls.cert_path else None
