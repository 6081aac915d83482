import asyncio
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_sse import hear


async def test_the_sdk_lists_and_shows_the_models(client: AsyncOpenAI) -> None:
    names = [model.id async for model in client.models.list()]
    assert names == ["echo", "film", "listen", "paint", "pair", "relay3", "talk", "turns"]
    shown = await client.models.retrieve("talk")
    assert (shown.id, shown.object, shown.owned_by) == ("talk", "model", "stagemesh")
    with pytest.raises(openai.NotFoundError) as refused:
        await client.models.retrieve("nothing/at all")
    assert refused.value.code == "model_not_found"


async def test_an_answer_that_is_not_streamed_has_all_text_a_finish_and_usage(
    client: AsyncOpenAI,
) -> None:
    answer = await client.chat.completions.create(
        model="echo", messages=user("one two three ", tokens=7)
    )
    assert answer.object == "chat.completion"
    assert answer.model == "echo"
    assert [choice.message.content for choice in answer.choices] == [words(7)]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 7)
    assert answer.usage.total_tokens == 10


def test_the_synchronous_sdk_streams_token_by_token_with_usage_last(synthetic: E2eMesh) -> None:
    with OpenAI(base_url=f"{synthetic.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="echo",
            messages=user(tokens=12, each_ms=1),
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    deltas = [
        c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content
    ]
    assert deltas == [f" w{i}" for i in range(12)]
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + [
        "stop"
    ]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


async def test_without_a_script_the_user_is_echoed(client: AsyncOpenAI) -> None:
    text = 'Ünïcödé 🚀 text,\n\twith\u2028odd  spaces and "quotes" '
    answer = await client.chat.completions.create(
        model="echo",
        messages=[
            {"role": "system", "content": "Be silent."},
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": "between"},
            {"role": "user", "content": text},
        ],
    )
    assert answer.choices[0].message.content == text


async def test_two_choices_stream_into_each_other_and_both_are_whole(
    http: httpx.AsyncClient,
) -> None:
    heard = await hear(
        http,
        {
            "model": "echo",
            "messages": user(tokens=20, each_ms=2),
            "n": 2,
            "stream_options": {"include_usage": True},
        },
    )
    assert [heard.text(choice) for choice in (0, 1)] == [words(20)] * 2
    assert sorted(heard.finishes) == [(0, "stop"), (1, "stop")]
    assert [usage["completion_tokens"] for usage in heard.usages] == [40]
    assert (heard.dones, heard.errors) == (1, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_limit_cuts_and_says_length(client: AsyncOpenAI, stream: bool) -> None:
    text, finish = await _text(
        client, stream=stream, messages=user(tokens=50), max_completion_tokens=5
    )
    assert (text, finish) == (words(5), "length")
    exact = await _text(client, stream=stream, messages=user(tokens=5), max_completion_tokens=5)
    assert exact == (words(5), "stop")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_text_before_itself(client: AsyncOpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"stream": stream, "messages": user(tokens=50, each_ms=1)}
    assert await _text(client, **asked, stop=" w7") == (words(7), "stop")
    assert await _text(client, **asked, stop=["w12 w13", "nowhere"]) == (words(12) + " ", "stop")
    assert await _text(client, **asked, stop="nowhere") == (words(50), "stop")


async def test_the_text_is_the_same_with_the_same_seed(client: AsyncOpenAI) -> None:
    answers = [
        await client.chat.completions.create(
            model="talk", messages=user(tokens=4), seed=11, modalities=["text", "audio"],
            audio={"voice": "any", "format": "pcm16"},
        )
        for _ in range(2)
    ]  # fmt: skip
    first, second = (answer.choices[0].message for answer in answers)
    assert first.audio is not None and second.audio is not None
    assert (first.content, first.audio.data) == (second.content, second.audio.data)


async def test_an_answer_without_any_token_still_ends_well(client: AsyncOpenAI) -> None:
    for stream in (False, True):
        assert await _text(client, stream=stream, messages=user(tokens=0)) == ("", "stop")


async def test_every_answer_tells_its_request_id_and_no_two_are_alike(
    http: httpx.AsyncClient,
) -> None:
    body = {"model": "echo", "messages": user(tokens=1)}
    asked = [http.post("/v1/chat/completions", json=body) for _ in range(20)]
    asked += [http.post("/v1/chat/completions", json={**body, "model": "none"}) for _ in range(20)]
    ids = {answer.headers["x-request-id"] for answer in await asyncio.gather(*asked)}
    assert len(ids) == 40
    assert all(name.startswith("req_") and len(name) == 36 for name in ids)


async def _text(client: AsyncOpenAI, *, stream: bool, **asked: Any) -> tuple[str, str | None]:
    """Ask `echo`, either way; give the text and the finish reason."""
    if not stream:
        answer = await client.chat.completions.create(model="echo", **asked)
        return answer.choices[0].message.content or "", answer.choices[0].finish_reason
    text, finish = "", None
    async for chunk in await client.chat.completions.create(model="echo", stream=True, **asked):
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    return text, finish
