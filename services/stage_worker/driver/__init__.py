"""The thin shell around the core: one loop, one engine, one payload store."""

from services.stage_worker.driver.actor import Driver, LinkEffect, Outlet
from services.stage_worker.driver.intakes import Intakes
from services.stage_worker.driver.ledger import Ledger
from services.stage_worker.driver.outgoing import Outgoing

__all__ = ["Driver", "Intakes", "Ledger", "LinkEffect", "Outgoing", "Outlet"]
