"""The only owner of the core: it steps events, performs effects, and keeps the core's clock."""

from services.orchestrator.driver.actor import Core, Driver, Observer, Outlet
from services.orchestrator.driver.ledger import Ledger

__all__ = ["Core", "Driver", "Ledger", "Observer", "Outlet"]
