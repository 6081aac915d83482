"""One job of each kind, through the official OpenAI SDK, each with its check."""

import base64
import io
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from openai import OpenAI
from PIL import Image
from tokenizers import Tokenizer

from services.stage_worker.engines.support.weights import locate
from tools.demo.checks import check, loudness, pcm_of_wav, plausible_s, word_error
from tools.demo.words import draw_question, draw_sentence
from tools.shapes.drawing import Judge, draw_caption

__all__ = ["JOBS", "Bench", "Job"]

VOICE_QUESTION = "Please explain in three short sentences why people like to drink tea."
DELTAS_MIN = 10
TRANSCRIPT_ERROR_MAX = 0.20
SPOKEN_REPLY_ERROR_MAX = 0.35
QUIET = 0.01


class Bench(msgspec.Struct):
    """What a job works with: the client, the folder for its files, its random inputs."""

    client: OpenAI
    out: Path
    rng: random.Random
    spoken: tuple[str, bytes] | None = None


class Job(msgspec.Struct, frozen=True):
    """A job's name, the pools it runs on, and the code that runs and checks it."""

    name: str
    pools: tuple[str, ...]
    run: Callable[[Bench], str]


def chat(bench: Bench) -> str:
    """Stream a chat completion; count deltas, finishes and tokens."""
    question = draw_question(bench.rng)
    stream = bench.client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": question}],
        max_completion_tokens=64,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, finishes, usages = [], [], []
    for chunk in stream:
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            texts += [choice.delta.content] if choice.delta.content else []
            finishes += [choice.finish_reason] if choice.finish_reason else []
    text = "".join(texts)
    (bench.out / "chat.txt").write_text(f"{question}\n\n{text}\n")
    check(len(texts) >= DELTAS_MIN, f"{len(texts)} deltas, wanted {DELTAS_MIN}")
    check(len(finishes) == 1, f"{len(finishes)} finishes")
    check(len(usages) == 1, f"{len(usages)} usage chunks")
    usage, counted = usages[0], _count_tokens(text)
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, "usage does not add")
    # The token that ends a turn has no text; a cut inside a character merges two tokens' text.
    slack = usage.completion_tokens - counted
    check(-1 <= slack <= 2, f"usage says {usage.completion_tokens} tokens, the text has {counted}")
    return f"{len(texts)} deltas, {usage.completion_tokens} tokens, finish {finishes[0]}"


def speech(bench: Bench) -> str:
    """Speak a random sentence as a WAV file, and as raw samples that are streamed."""
    text = draw_sentence(bench.rng)
    answer = bench.client.audio.speech.create(
        model="piper-joe", voice="joe", input=text, response_format="wav"
    )
    pcm, rate_hz = pcm_of_wav(answer.content)
    (bench.out / "speech.wav").write_bytes(answer.content)
    duration_s = len(pcm) / 2 / rate_hz
    check(plausible_s(text, duration_s), f"{duration_s:.2f} s for {len(text)} characters")
    check(loudness(pcm) > QUIET, "silence")
    bench.spoken = text, answer.content

    with bench.client.audio.speech.with_streaming_response.create(
        model="piper-joe", voice="joe", input=text, response_format="pcm"
    ) as streamed:
        pieces = [piece for piece in streamed.iter_bytes() if piece]
    raw = b"".join(pieces)
    check(len(raw) % 2 == 0 and plausible_s(text, len(raw) / 2 / rate_hz), "odd raw length")
    check(loudness(raw) > QUIET, "raw silence")
    return f"wav {duration_s:.2f} s, pcm {len(raw)} bytes in {len(pieces)} pieces: {text!r}"


def transcription(bench: Bench) -> str:
    """Transcribe the sentence that was just spoken."""
    check(bench.spoken is not None, "nothing was spoken")
    assert bench.spoken is not None
    text, wav = bench.spoken
    heard = _transcribe(bench.client, wav)
    (bench.out / "transcription.txt").write_text(f"{text}\n{heard}\n")
    error = word_error(text, heard)
    check(error < TRANSCRIPT_ERROR_MAX, f"word error {error:.0%}: {heard!r} for {text!r}")
    return f"word error {error:.0%}: {heard!r}"


def spoken_chat(bench: Bench) -> str:
    """Ask aloud, get text and speech in one stream, and listen to the speech again."""
    question = bench.client.audio.speech.create(
        model="piper-joe", voice="joe", input=VOICE_QUESTION, response_format="wav"
    ).content
    stream = bench.client.chat.completions.create(
        model="smollm2-voice",
        messages=[{"role": "user", "content": [_audio_part(question)]}],
        modalities=["text", "audio"],
        audio={"voice": "joe", "format": "pcm16"},
        max_completion_tokens=96,
        temperature=0,
        stream=True,
        extra_body={"min_tokens": 40},
    )
    order: list[str] = []
    text, pcm = "", b""
    for chunk in stream:
        for choice in chunk.choices:
            audio = choice.delta.audio
            if choice.delta.content:
                order.append("text")
                text += choice.delta.content
            if audio and audio.data:
                order.append("audio")
                pcm += base64.b64decode(audio.data)
    (bench.out / "spoken_chat.txt").write_text(f"{VOICE_QUESTION}\n\n{text}\n")
    check("audio" in order and "text" in order, f"only {set(order)}")
    last_text = len(order) - 1 - order[::-1].index("text")
    check(order.index("audio") < last_text, "no audio before the last text delta")
    rate_hz = pcm_of_wav(question)[1]
    wav = _wav(pcm, rate_hz)
    (bench.out / "spoken_chat.wav").write_bytes(wav)
    heard = _transcribe(bench.client, wav)
    error = word_error(text, heard)
    check(error <= SPOKEN_REPLY_ERROR_MAX, f"word error {error:.0%}: {heard!r} for {text!r}")
    first = order[: order.index("audio")].count("text")
    return (
        f"audio after {first} of {order.count('text')} text deltas, "
        f"{len(pcm) / 2 / rate_hz:.1f} s of speech, word error {error:.0%}"
    )


def image(bench: Bench) -> str:
    """Draw a caption, get its image, and measure its colours."""
    colour, _, background, caption = draw_caption(bench.rng)
    answer = bench.client.images.generate(
        model="shapes",
        prompt=caption,
        response_format="b64_json",
        size="32x32",
    )
    (made,) = answer.data or []
    data = base64.b64decode(made.b64_json or "")
    (bench.out / "image.png").write_bytes(data)
    picture = Image.open(io.BytesIO(data))
    check(picture.format == "PNG" and picture.size == (32, 32), f"{picture.format} {picture.size}")
    seen = Judge().colours(picture)
    check(seen == (colour, background), f"{caption!r} gave {seen[0]} on {seen[1]}")
    return f"{caption!r}: {seen[0]} on {seen[1]}"


JOBS = (
    Job("chat", ("thinker",), chat),
    Job("speech", ("talker",), speech),
    Job("transcription", ("listener",), transcription),
    Job("spoken chat", ("listener", "thinker", "talker"), spoken_chat),
    Job("image", ("encoder", "painter"), image),
)


def _count_tokens(text: str) -> int:
    weights = locate("smollm2-135m-instruct", "hf")
    tokenizer = Tokenizer.from_file(str(weights.path / "tokenizer.json"))
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def _transcribe(client: OpenAI, wav: bytes) -> str:
    return client.audio.transcriptions.create(model="whisper-tiny", file=("speech.wav", wav)).text


def _audio_part(wav: bytes) -> Any:
    data = base64.b64encode(wav).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def _wav(pcm: bytes, rate_hz: int) -> bytes:
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(pcm), b"WAVE", b"fmt ", 16, 1, 1,
                       rate_hz, rate_hz * 2, 2, 16, b"data", len(pcm))  # fmt: skip
    return head + pcm
