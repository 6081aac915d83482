"""What a stage's engine is told of all that was wished: defaults, wishes, constraints.

The pipeline's default comes first. Over it lies what the client asked of the request as a whole:
how tokens are drawn (`Params.sampling`) reaches the stages that comprehend and no other, so that
the temperature of a chat never reaches the decoder of a talker; what is said of sound and images
reaches whoever makes them. Over that lies what the client asked of this very stage, by its name.
The pipeline's constraints have the last word.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from stagemesh.media import AudioParams, ImageParams, Params, Sampling
from stagemesh.pipeline.model import Clamp, Constraint, Stage

__all__ = ["effective_params", "wished_fields"]

P = TypeVar("P", Sampling, AudioParams, ImageParams)

_NOTHING: Final = Params()
_NO_SAMPLING: Final = Sampling()


def effective_params(stage: Stage, wishes: Params, by_stage: Mapping[str, Params]) -> Params:
    """Give what holds at a stage."""
    if not stage.comprehends and wishes.sampling != _NO_SAMPLING:
        wishes = msgspec.structs.replace(wishes, sampling=_NO_SAMPLING)
    params = _over(stage.params, wishes)
    params = _over(params, by_stage.get(stage.name, _NOTHING))
    return _constrained(params, stage.constraints) if stage.constraints else params


def wished_fields(params: Params) -> Iterator[str]:
    """Name the fields that are set, as in `sampling.temperature`."""
    for group in params.__struct_fields__:
        values = getattr(params, group)
        for name in values.__struct_fields__:
            if getattr(values, name) not in (None, ()):
                yield f"{group}.{name}"


def _over(below: Params, above: Params) -> Params:
    if above == _NOTHING:
        return below
    return Params(
        sampling=_laid(below.sampling, above.sampling),
        audio=_laid(below.audio, above.audio),
        image=_laid(below.image, above.image),
    )


def _laid(below: P, above: P) -> P:
    """Lay what is set over what is below it; a list of stop strings is replaced whole."""
    values = {name: getattr(above, name) for name in above.__struct_fields__}
    return msgspec.structs.replace(
        below, **{name: value for name, value in values.items() if value not in (None, ())}
    )


def _constrained(params: Params, constraints: Mapping[str, Constraint]) -> Params:
    changes: dict[str, dict[str, Any]] = {}
    for place, constraint in constraints.items():
        group, _, name = place.partition(".")
        value = getattr(getattr(params, group), name)
        changes.setdefault(group, {})[name] = _held(value, constraint)
    params = msgspec.structs.replace(
        params,
        **{
            group: msgspec.structs.replace(getattr(params, group), **values)
            for group, values in changes.items()
        },
    )
    return _agreeing(params) if "sampling" in changes else params


def _held(value: Any, constraint: Constraint) -> Any:
    if not isinstance(constraint, Clamp):
        return constraint.value
    if constraint.least is not None:
        value = max(value, constraint.least)
    return value if constraint.most is None else min(value, constraint.most)


def _agreeing(params: Params) -> Params:
    """Ask for no more tokens than may be: where a constraint has the last word, it is not asked."""
    least, most = params.sampling.tokens_min, params.sampling.tokens_max
    if least is None or most is None or least <= most:
        return params
    sampling = msgspec.structs.replace(params.sampling, tokens_min=most)
    return msgspec.structs.replace(params, sampling=sampling)
