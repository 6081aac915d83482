"""The rules of a mesh file that a schema cannot say."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stagemesh.pipeline.engines import BUILT_IN, gives, synthetic_gives
from stagemesh.pipeline.graph import Sources, ancestors, cycle_in
from stagemesh.pipeline.problems import Path
from stagemesh.pipeline.schema import MODALITIES
from stagemesh.pipeline.shape import nearest

__all__ = [
    "Fault",
    "RawEdge",
    "input_mode",
    "name_faults",
    "pipeline_faults",
    "pool_faults",
    "raw_edges",
]

Values = Mapping[str, Any]
Fault = tuple[Path, str]


class RawEdge(NamedTuple):
    """An edge as the file has it, its defaults filled in; `at` is its place among the inputs."""

    source: str
    modality: str
    mode: str
    at: int


def raw_edges(stage: Values) -> tuple[RawEdge, ...]:
    """Read a stage's inputs, `input` left out."""
    edges = []
    for at, edge in enumerate(stage.get("inputs", ())):
        values = {"from": edge} if isinstance(edge, str) else edge
        modality, mode = values.get("modality", "text"), values.get("mode", "whole")
        edges.append(RawEdge(values["from"], modality, mode, at))
    return tuple(edge for edge in edges if edge.source != "input")


def input_mode(stage: Values) -> str | None:
    """Tell how a stage reads what the client sent; None if it does not."""
    for edge in stage.get("inputs", ("input",)):
        if edge == "input":
            return "whole"
        if isinstance(edge, Mapping) and edge["from"] == "input":
            mode: str = edge.get("mode", "whole")
            return mode
    return None


def pool_faults(name: str, pool: Values) -> Iterator[Fault]:
    """Check one pool by itself."""
    place: Path = ("pools", name)
    engine, options = pool["engine"], pool.get("options", {})
    if engine != "synthetic":
        if engine in BUILT_IN and "model" not in pool:
            yield place, f"the key model is missing: {engine} has nothing to load"
        return
    for word in sorted(synthetic_gives(options) - set(MODALITIES)):
        listed = ", ".join(MODALITIES)
        yield (*place, "options", "gives"), f"must be some of {listed}, not {word}"
    slots = options.get("slots", 1)
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        yield (*place, "options", "slots"), f"must be a whole number of at least 1, not {slots}"


def name_faults(pipelines: Mapping[str, Values]) -> Iterator[Fault]:
    """Check that no two models answer to one name."""
    owners = {name: name for name in pipelines}
    for name, pipeline in pipelines.items():
        for at, alias in enumerate(pipeline.get("aliases", ())):
            owner = owners.setdefault(alias, name)
            if owner != name:
                what = "is the name of a pipeline" if owner == alias else f"is an alias of {owner}"
                yield ("pipelines", name, "aliases", at), f"{alias} {what} already"
            elif alias == name:
                yield ("pipelines", name, "aliases", at), f"{alias} is the pipeline's own name"


def pipeline_faults(name: str, pipeline: Values, pools: Mapping[str, Values]) -> Iterator[Fault]:
    """Check one pipeline; a pool that is not sound in itself is an empty one in `pools`."""
    yield from _Graph(("pipelines", name), pipeline, pools).faults()


class _Graph:
    """One pipeline's stages and edges, as the file has them."""

    def __init__(self, place: Path, pipeline: Values, pools: Mapping[str, Values]) -> None:
        self._place = place
        self._pipeline = pipeline
        self._pools = pools
        self._stages: Mapping[str, Values] = pipeline["stages"]
        self._edges = {name: raw_edges(stage) for name, stage in self._stages.items()}
        # Edges from stages that do not exist have a fault of their own; the rest ignores them.
        self._sources: Sources = {
            name: [edge.source for edge in edges if edge.source in self._stages]
            for name, edges in self._edges.items()
        }

    def faults(self) -> Iterator[Fault]:
        for name, stage in self._stages.items():
            yield from self._stage_faults(name, stage)
            yield from self._edge_faults(name)
            yield from self._companion_faults(name, stage.get("companions", ()))
            yield from self._prefill_faults(name, stage)
        yield from self._output_faults()
        cycle = cycle_in(self._sources)
        if cycle:
            trail = " -> ".join((*cycle, cycle[0]))
            yield self._at(cycle[0]), f"reads its own result: {trail}"
            return
        yield from self._reach_faults()
        yield from self._when_faults()
        yield from self._segment_faults()

    def _at(self, stage: str, *more: str | int) -> Path:
        return (*self._place, "stages", stage, *more)

    def _stage_faults(self, name: str, stage: Values) -> Iterator[Fault]:
        if name == "input":
            yield self._at(name), "no stage may be called input: that is what the client sent"
        pool = self._pools.get(stage["pool"])
        if pool is None:
            close = nearest(stage["pool"], self._pools)
            yield self._at(name, "pool"), f"no pool is called {stage['pool']}{close}"
        elif "bridge" not in stage and pool.get("engine") not in {None, *BUILT_IN}:
            yield self._at(name), f"the key bridge is missing: {pool['engine']} has no default"
        sampling = stage.get("params", {}).get("sampling", {})
        least, most = sampling.get("tokens_min", 0), sampling.get("tokens_max")
        if most is not None and least > most:
            place = self._at(name, "params", "sampling", "tokens_min")
            yield place, f"must be at most tokens_max ({most}), not {least}"
        yield from self._constraint_faults(name, stage)

    def _constraint_faults(self, name: str, stage: Values) -> Iterator[Fault]:
        for group, fields in stage.get("constraints", {}).items():
            for field, told in fields.items():
                if not isinstance(told, dict):
                    continue
                place = self._at(name, "constraints", group, field)
                least, most = told.get("min"), told.get("max")
                default = stage.get("params", {}).get(group, {}).get(field)
                if least is not None and most is not None and least > most:
                    yield place, f"min must be at most max ({most}), not {least}"
                elif default is None:
                    yield place, f"bounds need a default: give {field} in params too"
                elif (least is not None and default < least) or (
                    most is not None and default > most
                ):
                    yield place, f"the default in params ({default}) is out of these bounds"

    def _edge_faults(self, name: str) -> Iterator[Fault]:
        seen = set()
        read = 0
        for at, item in enumerate(self._stages[name].get("inputs", ())):
            source = item if isinstance(item, str) else item["from"]
            if source != "input":
                continue
            read += 1
            if read > 1:
                yield self._at(name, "inputs", at), "reads what the client sent twice"
            streamed = isinstance(item, dict) and item.get("mode") in ("stream", "segment")
            if isinstance(item, dict) and ("modality" in item or not streamed):
                what = "what the client sent is read by the word input alone, or with the mode"
                yield self._at(name, "inputs", at), f"{what} stream or segment and no modality"
        for edge in self._edges[name]:
            place = self._at(name, "inputs", edge.at)
            if edge.source not in self._stages:
                yield place, f"no stage is called {edge.source}{nearest(edge.source, self._stages)}"
                continue
            can = self._gives(edge.source)
            if can is not None and edge.modality not in can:
                yield place, f"{edge.source} gives {_either(can)}, not {edge.modality}"
            if (edge.source, edge.modality) in seen:
                yield place, f"reads the {edge.modality} of {edge.source} twice"
            seen.add((edge.source, edge.modality))

    def _companion_faults(self, name: str, companions: Sequence[str]) -> Iterator[Fault]:
        if not companions:
            return
        place = self._at(name, "companions")
        readers = [
            (reader, edge)
            for reader, edges in self._edges.items()
            for edge in edges
            if edge.source == name
        ]
        for reader, edge in readers:
            if edge.mode != "whole":
                what = f"{name} has companions, which are joined whole; mode must be whole"
                yield self._at(reader, "inputs", edge.at), what
        whole = (edge for _, edge in readers if edge.mode == "whole")
        if not any(edge.modality in {"tensor", "text"} for edge in whole):
            yield place, f"no stage reads the tensor or the text of {name} whole, to join them"

    def _prefill_faults(self, name: str, stage: Values) -> Iterator[Fault]:
        """Check a pair: the prompt goes to both, one token's state from one to the other."""
        if "prefill" not in stage:
            return
        place, other = self._at(name, "prefill"), stage["prefill"]
        if other not in self._stages:
            yield place, f"no stage is called {other}{nearest(other, self._stages)}"
            return
        first = self._stages[other]
        if not any(
            (edge.source, edge.modality, edge.mode) == (other, "tensor", "whole")
            for edge in self._edges[name]
        ):
            yield place, f"{name} must read the tensor of {other} whole"
        if any(input_mode(one) != "whole" for one in (stage, first)):
            yield place, f"{name} and {other} must both read input"
        if sum(edge.source == other for edges in self._edges.values() for edge in edges) > 1:
            yield place, f"only {name} may read {other}"
        if other in self._pipeline["outputs"].values():
            yield place, f"{other} cannot be an output: it makes one token"
        for key in ("choices", "companions", "prefill", "when"):
            if first.get(key):
                yield self._at(other, key), f"a stage that prefills has no {key}"
        for field in ("stop", "tokens_max", "tokens_min"):
            if field in first.get("constraints", {}).get("sampling", {}):
                laid = self._at(other, "constraints", "sampling", field)
                yield laid, f"that is laid down for a stage that prefills (for {name})"
        if sum("prefill" in one for one in self._stages.values()) > 1:
            yield place, "a pipeline has room for one pair"

    def _segment_faults(self) -> Iterator[Fault]:
        """Only a streamed input has segments, and who reads by them reads nothing as a stream."""
        for name, stage in self._stages.items():
            edges, mode = self._edges[name], input_mode(stage)
            for edge in edges:
                if edge.mode == "segment" and not self._has_segments(edge.source):
                    what = "gives no segments: no streamed input leads to it by segments"
                    yield self._at(name, "inputs", edge.at), f"{edge.source} {what}"
            modes = [mode, *(edge.mode for edge in edges)]
            if "segment" in modes and stage.get("companions"):
                what = "has companions, and cannot run once for each segment"
                yield self._at(name, "companions"), what
            if "segment" in modes and len(self._used(name)) > 1:
                yield self._at(name), "runs once for each segment, and so gives one modality only"
            if modes.count("segment") > 1 or ("segment" in modes and "stream" in modes):
                what = "reads one thing by segments, so it must read everything else whole"
                yield self._at(name, "inputs"), what

    def _used(self, name: str) -> set[str]:
        """Give the modalities of a stage that somebody reads or is shown."""
        read = {e.modality for edges in self._edges.values() for e in edges if e.source == name}
        return read | {word for word, stage in self._pipeline["outputs"].items() if stage == name}

    def _has_segments(self, name: str) -> bool:
        """Tell whether a stage runs by segments; what does not exist has a fault of its own."""
        stage = self._stages.get(name)
        modes = [edge.mode for edge in self._edges.get(name, ())]
        return stage is None or "segment" in (input_mode(stage), *modes)

    def _output_faults(self) -> Iterator[Fault]:
        for modality, stage in self._pipeline["outputs"].items():
            place = (*self._place, "outputs", modality)
            if stage not in self._stages:
                yield place, f"no stage is called {stage}{nearest(stage, self._stages)}"
                continue
            can = self._gives(stage)
            if can is not None and modality not in can:
                yield place, f"{stage} gives {_either(can)}, not {modality}"
            if "when" in self._stages[stage]:
                yield place, f"{stage} may be left out (when), so it cannot be an output"

    def _reach_faults(self) -> Iterator[Fault]:
        outputs = [name for name in self._pipeline["outputs"].values() if name in self._stages]
        needed = ancestors(self._sources, outputs) | set(outputs)
        for name, stage in self._stages.items():
            if outputs and name not in needed:
                yield self._at(name), "no output needs this stage"
            above = (s for s in ancestors(self._sources, [name]) if self._stages[s].get("choices"))
            for other in sorted(above) if stage.get("choices") else ():
                yield self._at(name, "choices"), f"choices fan out at {other} already"

    def _when_faults(self) -> Iterator[Fault]:
        accepts = self._pipeline.get("accepts")
        for name, stage in self._stages.items():
            when = stage.get("when")
            if when and accepts is not None and when.removeprefix("input.") not in accepts:
                yield (
                    self._at(name, "when"),
                    f"clients may not send this: accepts has no {when[6:]}",
                )
            if input_mode(stage) is not None or not self._sources[name]:
                continue
            # Without what the client sent, at least one source must always be there when it runs.
            optional = {self._stages[source].get("when") for source in self._sources[name]}
            if None not in optional and when not in optional:
                what = "every source may be left out (when); add input or the same when"
                yield self._at(name, "inputs"), what

    def _gives(self, stage: str) -> frozenset[str] | None:
        pool = self._pools.get(self._stages[stage]["pool"], {})
        return gives(pool["engine"], pool.get("options", {})) if "engine" in pool else None


def _either(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
