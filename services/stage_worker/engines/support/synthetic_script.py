"""The script of a synthetic attempt: a JSON object after `#synthetic` in the user's text."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stagemesh.errors import invalid
from stagemesh.outcome import ErrorCode, FinishReason

__all__ = ["MARK", "Script", "read_script", "split_tokens", "word"]

MARK: Final = "#synthetic"

_TOKEN: Final = re.compile(r"\s*\S+")
_WORDS: Final = tuple(f" w{i}" for i in range(4096))


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an attempt shall do. A unit is a token, or an input unit where input is streamed.

    The faults `fail_at`, `crash_at` and `hang_at` come after that many units.
    """

    tokens: int | None = None
    text: str | None = None
    first_ms: float = 0.0
    each_ms: float = 0.0
    batch: int = 1
    fail_at: int | None = None
    fail_code: str = ErrorCode.ENGINE_ERROR.name
    crash_at: int | None = None
    hang_at: int | None = None
    ignore_abort: bool = False
    reject: bool | str = False
    audio_ms: float | None = None
    image_px: int | None = None
    payload_bytes: int | None = None
    seed: int | None = None
    finish: str = FinishReason.STOP.name

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError("batch must be at least 1")
        if self.image_px is not None and not 1 <= self.image_px <= IMAGE_PX_MAX:
            raise ValueError(f"image_px must be from 1 to {IMAGE_PX_MAX}")
        if min(self.first_ms, self.each_ms, self.tokens or 0, self.payload_bytes or 0) < 0:
            raise ValueError("times and sizes must not be negative")
        if self.fail_code.upper() not in ErrorCode.__members__:
            raise ValueError(f"{self.fail_code} is no error code")
        if self.finish.upper() not in FinishReason.__members__:
            raise ValueError(f"{self.finish} is no finish reason")
        if isinstance(self.reject, str) and self.reject.upper() not in ErrorCode.__members__:
            raise ValueError(f"{self.reject} is no error code")

    @property
    def failure(self) -> ErrorCode:
        """The code of the error at `fail_at`."""
        return ErrorCode[self.fail_code.upper()]

    @property
    def rejection(self) -> ErrorCode | None:
        """The code with which the attempt is refused at once; None if it is not."""
        if isinstance(self.reject, str):
            return ErrorCode[self.reject.upper()]
        return ErrorCode.OVERLOADED if self.reject else None

    @property
    def finish_reason(self) -> FinishReason:
        """How its lanes end."""
        return FinishReason[self.finish.upper()]

    def next_fault(self, made: int = 0) -> int | None:
        """Tell after how many units the first fault comes, where `made` of them are there."""
        faults = (self.fail_at, self.crash_at, self.hang_at)
        return min((at for at in faults if at is not None and at >= made), default=None)


IMAGE_PX_MAX: Final = 4096
_NO_SCRIPT: Final = Script()


def read_script(text: str, stage: str, companion: str = "") -> tuple[str, Script]:
    """Split a text into what stands before the mark and the script for `stage`.

    Keys whose values are objects are names of stages, or of a companion as in `encoder.negative`;
    the others hold for every stage.

    Raises:
        MeshError: If what follows the mark is no script.
    """
    before, mark, rest = text.rpartition(MARK)
    if not mark:
        return text, _NO_SCRIPT
    try:
        found, _ = json.JSONDecoder().raw_decode(rest.lstrip())
        return before, msgspec.convert(_for_stage(found, stage, companion), Script)
    except (ValueError, RecursionError) as error:
        raise invalid(f"bad script: {error}", param="messages") from error


def split_tokens(text: str, count: int | None = None) -> list[str]:
    """Split a text into words with the space before them; joined again they are the text.

    With a `count` there are as many: the last one takes the rest, and others are empty.
    """
    tokens = _TOKEN.findall(text)
    taken = sum(map(len, tokens))
    if taken < len(text):
        tokens = [*tokens[:-1], tokens[-1] + text[taken:]] if tokens else [text]
    if count is None or len(tokens) == count:
        return tokens
    if len(tokens) > count:
        return [*tokens[: count - 1], "".join(tokens[count - 1 :])]
    return tokens + [""] * (count - len(tokens))


def word(i: int) -> str:
    """Give the text of token `i`: ` w0`, ` w1`, …."""
    return _WORDS[i] if i < len(_WORDS) else f" w{i}"


def _for_stage(found: Any, stage: str, companion: str) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        raise ValueError("a script is a JSON object")
    script = {key: value for key, value in found.items() if not isinstance(value, Mapping)}
    script.update(found.get(stage, {}))
    if companion:
        script.update(found.get(f"{stage}.{companion}", {}))
    return script
