"""Makes the model from checked values."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from stagemesh.media import Modality, Params
from stagemesh.pipeline.checks import input_mode, raw_edges
from stagemesh.pipeline.engines import BUILT_IN
from stagemesh.pipeline.graph import in_order
from stagemesh.pipeline.model import Edge, EdgeMode, Limits, Mesh, Pipeline, Pool, Stage

__all__ = ["build_mesh", "revision_of"]

Values = Mapping[str, Any]


def build_mesh(value: Values) -> Mesh:
    """Make a mesh of a document in which nothing is wrong."""
    pools = {
        name: msgspec.convert({"name": name, **pool}, Pool) for name, pool in value["pools"].items()
    }
    pipelines = {
        name: _pipeline(name, pipeline, pools) for name, pipeline in value["pipelines"].items()
    }
    return Mesh(pools=pools, pipelines=pipelines)


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
    stages = tuple(_stage(stage, raw[stage], index, pools) for stage in index)
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


def _stage(name: str, value: Values, index: Mapping[str, int], pools: Mapping[str, Pool]) -> Stage:
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
        when=_modality(when.removeprefix("input.")) if when else None,
        companions=tuple(value.get("companions", ())),
        choices=value.get("choices", False),
        streamed=None if mode in (None, "whole") else EdgeMode[mode.upper()],
    )


def _inputs(value: Values, stages: tuple[Stage, ...]) -> frozenset[Modality]:
    if "accepts" in value:
        return frozenset(_modality(name) for name in value["accepts"])
    asked = {stage.when for stage in stages if stage.when is not None}
    read = {Modality.TEXT for stage in stages if stage.reads_input}
    return frozenset(asked | read)


def _modality(name: str) -> Modality:
    return Modality[name.upper()]
