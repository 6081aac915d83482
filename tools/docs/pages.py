"""Which pages are generated, and from what."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from services.gateway.edges.matrix import routes_page
from stagemesh.pipeline import mesh_schema
from tools.docs.errors import errors_page
from tools.docs.faults import faults_page
from tools.docs.metrics import metrics_page
from tools.docs.protocol import protocol_page
from tools.docs.settings import settings_page
from tools.docs.states import states_page

__all__ = ["DOCS", "PAGES"]

DOCS: Final = Path(__file__).parents[2] / "docs"


def _schema() -> str:
    return json.dumps(mesh_schema(), indent=2) + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "design/faults.md": faults_page,
        "design/run-states.md": states_page,
        "reference/errors.md": errors_page,
        "reference/mesh.schema.json": _schema,
        "reference/metrics.md": metrics_page,
        "reference/protocol.md": protocol_page,
        "reference/routes.md": routes_page,
        "reference/settings.md": settings_page,
    }
)
"""The text of each page, by its path below `docs/`."""
