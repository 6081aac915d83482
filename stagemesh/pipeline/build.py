"""Makes the model from checked values."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stagemesh.media import Modality, Params
from stagemesh.pipeline.checks import RawEdge, input_mode, raw_edges
from stagemesh.pipeline.engines import BUILT_IN
from stagemesh.pipeline.graph import in_order
from stagemesh.pipeline.model import (
    JOIN_S,
    Clamp,
    Constraint,
    Edge,
    EdgeMode,
    Fixed,
    Limits,
    Mesh,
    Pipeline,
    Pool,
    Stage,
    Tenant,
)

__all__ = ["build_mesh", "revision_of"]

Values = Mapping[str, Any]

_ONE_TOKEN: Final[Mapping[str, Constraint]] = {
    "sampling.tokens_max": Fixed(1),
    "sampling.tokens_min": Fixed(None),
    "sampling.stop": Fixed(()),
}
"""What holds for a stage that only prefills, since the stage that it does it for decodes."""


def build_mesh(value: Values) -> Mesh:
    """Make a mesh of a document in which nothing is wrong."""
    pools = {
        name: msgspec.convert({"name": name, **pool}, Pool) for name, pool in value["pools"].items()
    }
    pipelines = {
        name: _pipeline(name, pipeline, pools) for name, pipeline in value["pipelines"].items()
    }
    tenants = msgspec.convert(value.get("tenants", {}), dict[str, Tenant])
    return Mesh(pools=pools, pipelines=pipelines, tenants=tenants)


def revision_of(
    stages: tuple[Stage, ...], outputs: Mapping[Modality, int], pools: Mapping[str, Pool]
) -> str:
    """Hash everything that shapes a request's lanes and what is in them, as 16 hex digits.

    Limits, names, numbers of replicas and environments are left out: a request that was begun
    before they changed can go on.
    """
    used = {
        stage.pool: [pools[stage.pool].engine, pools[stage.pool].model, pools[stage.pool].options]
        for stage in stages
    }
    canonical = msgspec.to_builtins([stages, {m.name: at for m, at in outputs.items()}, used])
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pipeline(name: str, value: Values, pools: Mapping[str, Pool]) -> Pipeline:
    raw = value["stages"]
    sources = {stage: [edge.source for edge in raw_edges(raw[stage])] for stage in raw}
    index = {stage: at for at, stage in enumerate(in_order(sources))}
    comprehends = _comprehending(value, index)
    prefills = {one["prefill"] for one in raw.values() if "prefill" in one}
    stages = tuple(
        _stage(
            stage,
            raw[stage],
            index,
            pools,
            comprehends=stage in comprehends,
            laid_down=_ONE_TOKEN if stage in prefills else {},
        )
        for stage in index
    )
    outputs = {_modality(modality): index[stage] for modality, stage in value["outputs"].items()}
    rest = {key: value[key] for key in ("deadline_s", "aliases") if key in value}
    return msgspec.convert(
        {
            **rest,
            "name": name,
            "revision": revision_of(stages, outputs, pools),
            "stages": stages,
            "outputs": outputs,
            "inputs": _inputs(value, stages),
            "limits": msgspec.convert(value.get("limits", {}), Limits),
        },
        Pipeline,
    )


def _stage(
    name: str,
    value: Values,
    index: Mapping[str, int],
    pools: Mapping[str, Pool],
    *,
    comprehends: bool,
    laid_down: Mapping[str, Constraint],
) -> Stage:
    known = BUILT_IN.get(pools[value["pool"]].engine)
    when = value.get("when")
    mode = input_mode(value)
    return Stage(
        index=index[name],
        name=name,
        pool=value["pool"],
        reads_input=mode is not None,
        edges=tuple(
            Edge(
                stage=index[edge.source],
                modality=_modality(edge.modality),
                mode=EdgeMode[edge.mode.upper()],
            )
            for edge in raw_edges(value)
        ),
        bridge=value.get("bridge") or (known.bridge if known else ""),
        bridge_options=value.get("bridge_options", {}),
        params=msgspec.convert(value.get("params", {}), Params),
        constraints={**_constraints(value.get("constraints", {})), **laid_down},
        comprehends=comprehends,
        when=_modality(when.removeprefix("input.")) if when else None,
        companions=tuple(value.get("companions", ())),
        apart=pools[value["pool"]].companions == "apart",
        join_s=value.get("join_s", JOIN_S),
        choices=value.get("choices", False),
        streamed=None if mode in (None, "whole") else EdgeMode[mode.upper()],
    )


def _constraints(value: Values) -> dict[str, Constraint]:
    return {
        f"{group}.{name}": (
            Clamp(least=told.get("min"), most=told.get("max"))
            if isinstance(told, dict)
            else Fixed(tuple(told) if isinstance(told, list) else told)
        )
        for group, fields in value.items()
        for name, told in fields.items()
    }


def _comprehending(pipeline: Values, order: Iterable[str]) -> frozenset[str]:
    """Find the stages that get what a client says of tokens without naming a stage.

    Those that the file marks; else the first that is never left out, reads whole what the client
    sent and gives text that somebody reads; else the first of these that reads what others made of
    it. Whoever prefills for such a stage is another one.
    """
    stages = pipeline["stages"]
    pairs = {name: one["prefill"] for name, one in stages.items() if "prefill" in one}
    marked = frozenset(name for name in stages if stages[name].get("comprehends"))
    chosen = marked or _first_comprehending(pipeline, order)
    return chosen | {pairs[name] for name in chosen if name in pairs}


def _first_comprehending(pipeline: Values, order: Iterable[str]) -> frozenset[str]:
    stages = pipeline["stages"]
    read = {edge.source for one in stages.values() for edge in raw_edges(one) if _is_text(edge)}
    texts = [
        name
        for name in order
        if "when" not in stages[name]
        and stages[name].get("comprehends") is not False
        and (name in read or name == pipeline["outputs"].get("text"))
    ]
    first = [name for name in texts if input_mode(stages[name]) == "whole"]
    return frozenset((first or texts)[:1])


def _is_text(edge: RawEdge) -> bool:
    return edge.modality == "text"


def _inputs(value: Values, stages: tuple[Stage, ...]) -> frozenset[Modality]:
    if "accepts" in value:
        return frozenset(_modality(name) for name in value["accepts"])
    asked = {stage.when for stage in stages if stage.when is not None}
    read = {Modality.TEXT for stage in stages if stage.reads_input}
    return frozenset(asked | read)


def _modality(name: str) -> Modality:
    return Modality[name.upper()]
