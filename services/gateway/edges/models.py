"""`GET /v1/models` and `GET /v1/models/{model}`."""

from typing import Any, Final

from services.gateway.core.replies import encode
from services.gateway.edges.call import JSON, Call
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for
from stagemesh.wire import PublishedModelValue

__all__ = ["MODELS_PATH", "list_models", "show_model"]

MODELS_PATH: Final = "/v1/models"

_CREATED_S: Final = 0
"""A pipeline has a revision and no birthday; the field is required."""


async def list_models(call: Call) -> None:
    """Answer with everything that is published, and whether it can be served now."""
    models = call.backend.orchestrators.models.values()
    await call.answer(JSON, encode({"object": "list", "data": [_shown(model) for model in models]}))


async def show_model(call: Call) -> None:
    """Answer with one model."""
    name = call.path.removeprefix(f"{MODELS_PATH}/")
    model = call.backend.orchestrators.models.get(name)
    if model is None:
        raise MeshError(
            error_for("model_not_found", f"The model '{name}' does not exist.", param="model")
        )
    await call.answer(JSON, encode(_shown(model)))


def _shown(model: PublishedModelValue) -> dict[str, Any]:
    return {
        "id": model.model,
        "object": "model",
        "created": _CREATED_S,
        "owned_by": "stagemesh",
        "ready": model.ready,
    }
