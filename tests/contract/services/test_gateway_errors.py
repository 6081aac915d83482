"""What clients see of errors: each code's status, type and headers, in OpenAI's shape."""

from typing import Any

import openai
import pytest

from services.gateway.client import ClientPolicy
from stagemesh.outcome import ErrorCode, Outcome, default_reason, error_for, status_of
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import running_gateway

HELLO: Any = [{"role": "user", "content": "Hi"}]
ENDS = [
    (outcome, code)
    for outcome in (Outcome.FAILED, Outcome.REJECTED)
    for code in ErrorCode
    if outcome is Outcome.FAILED or status_of(outcome, code).not_admitted
]


@pytest.mark.parametrize("stream", [True, False])
async def test_every_code_has_its_status_whether_streamed_or_not(stream: bool) -> None:
    """All ends over one gateway: the label says which one the orchestrator is to give."""

    async def play(asked: FakeRequest) -> None:
        outcome, code = ENDS[int(asked.request.label)]
        asked.fail(error_for(default_reason(code), stage="thinker", param="n"), outcome)

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        for at, (outcome, code) in enumerate(ENDS):
            answer = await mesh.http.post(
                "/v1/chat/completions",
                json={"model": "echo", "messages": HELLO, "stream": stream},
                headers={"x-request-id": str(at)},
            )
            status = status_of(outcome, code)
            error = answer.json()["error"]
            assert answer.status_code == status.http, (outcome, code)
            assert error["type"] == status.openai_type
            assert error["code"] == default_reason(code)
            assert (error["param"], error["stage"]) == ("n", "thinker")
            assert error["request_id"] == answer.headers["x-request-id"]
            assert ("retry-after" in answer.headers) == (status.http in {429, 503})
            assert ("x-stagemesh-not-admitted" in answer.headers) == status.not_admitted
            assert answer.headers.get("x-should-retry") == ("false" if status.no_retry else None)


async def test_the_sdk_raises_the_exception_that_belongs_to_the_status() -> None:
    kinds = {
        "invalid_value": openai.BadRequestError,
        "model_not_found": openai.NotFoundError,
        "rate_limit_exceeded": openai.RateLimitError,
        "queue_full": openai.RateLimitError,
        "conflict": openai.ConflictError,
        "permission_denied": openai.PermissionDeniedError,
        "invalid_api_key": openai.AuthenticationError,
        "engine_error": openai.InternalServerError,
    }

    async def play(asked: FakeRequest) -> None:
        asked.fail(error_for(asked.request.label), Outcome.REJECTED)

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        for reason, kind in kinds.items():
            with pytest.raises(kind) as caught:
                await mesh.openai.chat.completions.create(
                    model="echo", messages=HELLO, extra_headers={"x-request-id": reason}
                )
            assert caught.value.code == reason


async def test_a_field_that_the_door_names_is_called_as_the_client_called_it() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.fail(error_for("invalid_value", param=asked.request.label), Outcome.REJECTED)

    bodies = [
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}, "max_completion_tokens",
         "max_tokens"),
        ("/v1/chat/completions", {"messages": HELLO}, "max_completion_tokens",
         "max_completion_tokens"),
        ("/v1/images/generations", {"prompt": "a"}, "steps", "num_inference_steps"),
        ("/v1/audio/speech", {"input": "a"}, "messages", "input"),
    ]  # fmt: skip
    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        for path, body, named, shown in bodies:
            answer = await mesh.http.post(
                path, json={"model": "echo", **body}, headers={"x-request-id": named}
            )
            assert answer.json()["error"]["param"] == shown


async def test_a_deadline_is_enforced_here_when_the_orchestrator_does_not() -> None:
    async def play(asked: FakeRequest) -> None:
        await asked.aborted.wait()

    fake = FakeOrchestrator(script=play)
    policy = ClientPolicy(deadline_slack_s=0.05, abort_wait_s=0.05)
    async with running_gateway(fake, client=policy) as mesh:
        answer = await mesh.http.post(
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO},
            headers={"X-Request-Timeout": "0.1"},
        )
        assert fake.requests[0].deadline_left_s == pytest.approx(0.1)
        await fake.requests[0].aborted.wait()
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_exceeded"


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "1e9"])
async def test_a_deadline_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        answer = await mesh.http.post(
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO},
            headers={"X-Request-Timeout": text},
        )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Request-Timeout"
