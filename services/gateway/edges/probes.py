"""`GET /health`, `/ready` and `/metrics`."""

from http import HTTPStatus

from services.gateway.core.replies import encode
from services.gateway.edges.call import JSON, Call

__all__ = ["health", "metrics", "ready"]


async def health(call: Call) -> None:
    """Answer that the loop turns."""
    await call.answer(JSON, encode({"status": "ok"}))


async def ready(call: Call) -> None:
    """Answer whether a request could be served: a live link to an orchestrator that is ready.

    That is one with at least one model whose stages all have a replica: a pool that is gone takes
    its own models out, which `/v1/models` shows, and nothing else.
    """
    orchestrators = call.backend.orchestrators
    portrait = orchestrators.portrait
    body = {
        "status": "ready" if orchestrators.ready else "not_ready",
        "id": portrait.gateway_id,
        "pid": portrait.pid,
        "incarnation": f"{portrait.incarnation:016x}",
        "links": orchestrators.links,
        "inflight": orchestrators.open_requests,
    }
    status = HTTPStatus.OK if orchestrators.ready else HTTPStatus.SERVICE_UNAVAILABLE
    await call.answer(JSON, encode(body), status=status)


async def metrics(call: Call) -> None:
    """Answer with the process's metrics, in Prometheus's text or OpenMetrics."""
    data, content_type = call.backend.metrics.registry.render(call.header(b"accept"))
    await call.answer(content_type, data)
