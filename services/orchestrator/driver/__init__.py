"""The only owner of the core: it steps events, performs effects, and keeps the core's clock."""

from services.orchestrator.driver.actor import DRAIN_SLACK_S, Core, Driver, Observer, Outlet
from services.orchestrator.driver.dumping import Dumper
from services.orchestrator.driver.dumps import BadDump, Dump, Step, read_dump, write_dump
from services.orchestrator.driver.endings import Endings
from services.orchestrator.driver.ledger import Ledger
from services.orchestrator.driver.recorder import Recorder

__all__ = [
    "DRAIN_SLACK_S",
    "BadDump",
    "Core",
    "Driver",
    "Dump",
    "Dumper",
    "Endings",
    "Ledger",
    "Observer",
    "Outlet",
    "Recorder",
    "Step",
    "read_dump",
    "write_dump",
]
