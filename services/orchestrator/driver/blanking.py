"""Takes the content of clients out of the core's inputs; what is left decides the same.

The core looks at sizes, positions and names, so every piece of content is replaced by as much of
nothing. Names of handles are hashed: they are keys to bytes, and only their equality matters.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from services.orchestrator.core.events import Fenced, HandleLost, InteractAsked, Interacted
from stagemesh.link.core import LaneJournal, Row
from stagemesh.media import (
    AudioParams,
    Body,
    Handle,
    ImageParams,
    Message,
    Request,
    Sampling,
    TextPart,
)
from stagemesh.outcome import End, ErrorInfo

__all__ = ["blanked"]

_CONTENT: Final[Mapping[type[msgspec.Struct], frozenset[str]]] = {
    AudioParams: frozenset({"voice", "language"}),
    Body: frozenset({"inline"}),
    End: frozenset({"stop_match"}),
    ErrorInfo: frozenset({"message", "param"}),
    Handle: frozenset({"address", "probe"}),
    InteractAsked: frozenset({"text"}),
    ImageParams: frozenset({"negative_prompt"}),
    LaneJournal: frozenset({"ids"}),
    Message: frozenset({"name"}),
    Request: frozenset({"label"}),
    Row: frozenset({"text", "ids"}),
    Sampling: frozenset({"stop"}),
    TextPart: frozenset({"text"}),
}

_KEYS: Final[Mapping[type[msgspec.Struct], frozenset[str]]] = {
    Fenced: frozenset({"held"}),
    Handle: frozenset({"handle_id"}),
    HandleLost: frozenset({"handle_id"}),
    InteractAsked: frozenset({"interaction_id"}),
    Interacted: frozenset({"interaction_id"}),
}

_ROLES: Final = frozenset({"assistant", "developer", "system", "tool", "user"})
_NONE: Final[frozenset[str]] = frozenset()


def blanked(value: Any, models: frozenset[str]) -> Any:
    """Give a value without content; a model's name is content unless it is one of `models`."""
    if isinstance(value, msgspec.Struct):
        return _blanked_struct(value, models)
    if isinstance(value, list | tuple):
        return type(value)(blanked(one, models) for one in value)
    if isinstance(value, Mapping):
        return {key: blanked(one, models) for key, one in value.items()}
    return value


def _blanked_struct(value: msgspec.Struct, models: frozenset[str]) -> msgspec.Struct:
    content = _CONTENT.get(type(value), _NONE)
    keys = _KEYS.get(type(value), _NONE)
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name in content:
            changes[name] = _nothing(field)
        elif name in keys:
            changes[name] = _hashed(field)
        elif name == "body" and not isinstance(field, Body):
            changes[name] = None  # A message of the wire, which the core never opens.
        elif isinstance(field, msgspec.Struct | list | tuple | Mapping):
            changes[name] = blanked(field, models)
    if isinstance(value, Message) and value.role not in _ROLES:
        changes["role"] = _nothing(value.role)
    if isinstance(value, Request) and value.model not in models:
        changes["model"] = _nothing(value.model)
    return msgspec.structs.replace(value, **changes)


def _nothing(content: Any) -> Any:
    """Give as much of nothing as there is content."""
    match content:
        case str():
            return "x" * len(content)
        case bytes():
            return bytes(len(content))
        case list():
            return [0] * len(content)
        case tuple():
            return tuple(_nothing(one) for one in content)
        case _:
            return content


def _hashed(key: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(key, tuple):
        return tuple(str(_hashed(one)) for one in key)
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
