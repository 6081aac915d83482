"""`StageService`: the links of orchestrators, and what runs here."""

from services.stage_worker.servicer.links import Links
from services.stage_worker.servicer.ports import register_services
from services.stage_worker.servicer.presence import Presence
from services.stage_worker.servicer.stage import STAGE_SERVICE, StageServicer

__all__ = ["STAGE_SERVICE", "Links", "Presence", "StageServicer", "register_services"]
