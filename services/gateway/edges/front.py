"""The ASGI application: who may call, which endpoint answers, and what every error becomes."""

import logging
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from services.gateway.client import ended_by
from services.gateway.edges.call import Backend, Call
from services.gateway.edges.relay import EndedBadly
from services.gateway.edges.routes import Route, find
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorInfo, Outcome, error_for, outcome_of, status_of
from stagemesh.telemetry import request_logs

__all__ = ["Front"]

_log = logging.getLogger(__name__)

_METHODS: Final = {"HEAD": "GET"}


class Front:
    """Answers every HTTP request; one terminal answer each."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI wants it."""
        if scope["type"] != "http":
            return  # WebSockets are refused by the server when nobody accepts them.
        call = Call(scope, receive, send, self._backend)
        self._backend.open_calls += 1
        self._backend.metrics.open_requests.inc()
        try:
            with request_logs(call.request_id):
                await self._answer(call)
        finally:
            call.forget_body()
            self._backend.open_calls -= 1
            self._backend.metrics.open_requests.dec()
            self._backend.metrics.requests.labels(call.route, str(call.status)).inc()

    async def _answer(self, call: Call) -> None:
        try:
            self._admit(call)
            route = await self._route(call)
            if route is not None:
                await route.endpoint(call)
        except EndedBadly as ended:
            await _refuse(call, ended.terminal.outcome, ended_by(ended.terminal))
        except MeshError as error:
            await _refuse(call, outcome_of(error.info.code), error.info)
        except Exception:
            # The last resort: a bug of ours ends one request, with its trace in the log and nothing
            # of it in the answer.
            _log.exception("request_failed", extra={"route": call.route})
            await _refuse(call, Outcome.FAILED, error_for("internal_error"))

    def _admit(self, call: Call) -> None:
        self._backend.access.check(call.header(b"host"), call.header(b"origin"))
        full = self._backend.open_calls > self._backend.limits.requests_max
        # Probes are answered however much there is to do: a busy gateway is not a dead one.
        if full and call.path.startswith("/v1/"):
            raise MeshError(error_for("queue_full", "Too many requests at once.", retry_after_s=1))

    async def _route(self, call: Call) -> Route | None:
        """Find the route; a wrong method is answered here, since no outcome is a 405."""
        method: str = call.scope["method"]
        routes = find(call.path)
        if not routes:
            raise MeshError(error_for("not_found", f"There is no {method} {call.path}."))
        route = routes.get(_METHODS.get(method, method))
        if route is None:
            allowed = ", ".join(sorted(routes))
            info = error_for("method_not_allowed", f"{call.path} takes {allowed}, not {method}.")
            status = status_of(Outcome.REJECTED, info.code)
            await call.refuse(
                msgspec.structs.replace(status, http=HTTPStatus.METHOD_NOT_ALLOWED),
                info,
                (("allow", allowed),),
            )
            return None
        call.route = route.path
        return route


async def _refuse(call: Call, outcome: Outcome, info: ErrorInfo) -> None:
    """Answer with an error, unless the answer has begun: then being cut off is the error."""
    if call.status:
        _log.warning("answer_cut_off", extra={"route": call.route, "reason": info.reason})
        return
    await call.refuse(status_of(outcome, info.code), info)
