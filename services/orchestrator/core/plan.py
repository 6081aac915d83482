"""What runs for a request: a pipeline, cut down to what the request needs.

The unit is a *group*: one choice of a stage with its companions. A group is placed whole, on one
replica, in one submission.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from services.orchestrator.core.effects import SourceOrder
from stagemesh.errors import unsupported
from stagemesh.link.core import REQUEST_SOURCE
from stagemesh.media import Modality, lane_of
from stagemesh.pipeline import Edge, EdgeMode, Pipeline, Stage

__all__ = ["CLIENT_STAGE", "GroupPlan", "Plan", "Planner", "RolePlan", "compile_plan"]

CLIENT_STAGE: Final = "input"
"""What a stage's source is called that its client gives piece by piece."""


class RolePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a group: the choice itself, or a companion of it."""

    role: int
    companion: str
    lanes: tuple[int, ...]


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One choice of a stage with its companions."""

    stage: Stage
    choice: int
    roles: tuple[RolePlan, ...]
    sources: tuple[SourceOrder, ...]

    @property
    def slots(self) -> int:
        """How many engine slots it takes."""
        return len(self.roles)

    @cached_property
    def segmented(self) -> bool:
        """Whether it runs once for each segment of one of its inputs."""
        return any(source.mode is EdgeMode.SEGMENT for source in self.sources)

    @property
    def stream_inputs(self) -> int:
        """How many of its inputs come piece by piece."""
        return sum(source.mode is EdgeMode.STREAM for source in self.sources)

    def reads_segments(self, lane: int) -> bool:
        """Whether it runs once for each segment of a lane."""
        return any(s.lane == lane and s.mode is EdgeMode.SEGMENT for s in self.sources)

    def reads_stream(self, lane: int) -> bool:
        """Whether it reads a lane piece by piece."""
        return any(s.lane == lane and s.mode is EdgeMode.STREAM for s in self.sources)


class Plan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The groups of a request in topological order, and the lanes that its client gets."""

    pipeline: Pipeline
    choices: int
    groups: tuple[GroupPlan, ...]
    visible: frozenset[int]

    @property
    def streamed(self) -> bool:
        """Whether some stage hears the client as it speaks, or by segments."""
        return REQUEST_SOURCE in self.readers

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Which groups, by index, read a lane; lanes that nobody reads are missing."""
        readers: dict[int, tuple[int, ...]] = {}
        for index, group in enumerate(self.groups):
            for source in group.sources:
                readers[source.lane] = (*readers.get(source.lane, ()), index)
        return readers


_Key = tuple[str, frozenset[Modality], int, frozenset[Modality], bool]


class Planner:
    """Compiles plans, and keeps those that were asked for lately."""

    def __init__(self, plans_max: int = 1024) -> None:
        self._plans_max = plans_max
        self._plans: dict[_Key, Plan] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def plan(
        self,
        pipeline: Pipeline,
        *,
        modalities: Iterable[Modality],
        choices: int,
        inputs: frozenset[Modality],
        streamed: bool = False,
    ) -> Plan:
        """Give the plan for a request; see `compile_plan`."""
        wanted = frozenset(modalities)
        key = (pipeline.name, wanted, choices, inputs, streamed)
        plan = self._plans.get(key)
        if plan is None:
            plan = compile_plan(
                pipeline, modalities=wanted, choices=choices, inputs=inputs, streamed=streamed
            )
            if len(self._plans) >= self._plans_max:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return plan


def compile_plan(
    pipeline: Pipeline,
    *,
    modalities: frozenset[Modality],
    choices: int,
    inputs: frozenset[Modality],
    streamed: bool = False,
) -> Plan:
    """Cut a pipeline down to what the wanted modalities need; none named means all that can be.

    With `streamed` the client gives its input piece by piece.

    Raises:
        MeshError: If a wanted modality cannot be had, or not in several choices, or nothing that is
            needed reads a streamed input.
    """
    present = _present(pipeline, inputs)
    outputs = _wanted_outputs(pipeline, modalities, present)
    needed = _needed(pipeline, outputs.values(), present)
    fanned = _fanned(pipeline, needed)
    if choices > 1 and not fanned.issuperset(outputs.values()):
        raise unsupported(f"{pipeline.name} gives one choice only.", param="n")
    if streamed and not any(stage.streamed for stage in needed):
        raise unsupported(f"{pipeline.name} takes no streamed input.", param="model")
    return _Compiler(pipeline, outputs, needed, fanned, choices, streamed=streamed).plan()


def _present(pipeline: Pipeline, inputs: frozenset[Modality]) -> frozenset[int]:
    """Give the stages that have something to work on: `when` holds, and a source is there."""
    present: set[int] = set()
    for stage in pipeline.stages:
        asked = stage.when is None or stage.when in inputs
        fed = stage.reads_input or any(edge.stage in present for edge in stage.edges)
        if asked and fed:
            present.add(stage.index)
    return frozenset(present)


def _wanted_outputs(
    pipeline: Pipeline, modalities: frozenset[Modality], present: frozenset[int]
) -> dict[Modality, int]:
    can = {modality: at for modality, at in pipeline.outputs.items() if at in present}
    for modality in sorted(modalities):
        if modality not in can:
            raise unsupported(
                f"{pipeline.name} gives no {modality.name.lower()} here.",
                param="modalities",
                reason="unsupported_modality",
            )
    outputs = {modality: at for modality, at in can.items() if modality in modalities} or can
    if not outputs:
        raise unsupported(
            f"{pipeline.name} can make nothing of such an input.",
            param="messages",
            reason="unsupported_modality",
        )
    return outputs


def _needed(
    pipeline: Pipeline, outputs: Iterable[int], present: frozenset[int]
) -> tuple[Stage, ...]:
    """Give the output stages and everything that they read from, in topological order."""
    needed = set(outputs)
    for stage in reversed(pipeline.stages):
        if stage.index in needed:
            needed.update(edge.stage for edge in stage.edges if edge.stage in present)
    return tuple(stage for stage in pipeline.stages if stage.index in needed)


def _fanned(pipeline: Pipeline, needed: tuple[Stage, ...]) -> frozenset[int]:
    """Give the stages that run once for each choice."""
    fanned: set[int] = set()
    for stage in needed:
        if stage.choices or any(edge.stage in fanned for edge in stage.edges):
            fanned.add(stage.index)
    return frozenset(fanned)


class _Compiler:
    def __init__(
        self,
        pipeline: Pipeline,
        outputs: Mapping[Modality, int],
        needed: tuple[Stage, ...],
        fanned: frozenset[int],
        choices: int,
        *,
        streamed: bool,
    ) -> None:
        self._pipeline = pipeline
        self._outputs = outputs
        self._needed = needed
        self._running = {stage.index for stage in needed}
        self._fanned = fanned
        self._choices = choices
        self._streamed = streamed

    def plan(self) -> Plan:
        groups = [
            self._group(stage, choice) for stage in self._needed for choice in self._runs(stage)
        ]
        return Plan(
            pipeline=self._pipeline,
            choices=self._choices,
            groups=tuple(groups),
            visible=frozenset(
                lane_of(at, choice, modality)
                for modality, at in self._outputs.items()
                for choice in self._runs(self._pipeline.stages[at])
            ),
        )

    def _runs(self, stage: Stage) -> range:
        return range(self._choices if stage.index in self._fanned else 1)

    def _group(self, stage: Stage, choice: int) -> GroupPlan:
        seen = {modality for modality, at in self._outputs.items() if at == stage.index}
        read = {
            edge.modality: edge.mode
            for reader in self._needed
            for edge in reader.edges
            if edge.stage == stage.index
        }
        roles = [self._role(stage, choice, "", seen | read.keys())]
        # Companions are joined whole, so they give only what somebody reads whole.
        joined = {modality for modality, mode in read.items() if mode is EdgeMode.WHOLE}
        if joined:
            roles += [
                self._role(stage, number * self._choices + choice, name, joined)
                for number, name in enumerate(stage.companions, start=1)
            ]
        sources = [
            source
            for edge in stage.edges
            if edge.stage in self._running
            for source in self._sources(edge, choice)
        ]
        if self._streamed and stage.streamed is not None:
            sources.insert(0, _client_source(stage.streamed, choice))
        return GroupPlan(stage=stage, choice=choice, roles=tuple(roles), sources=tuple(sources))

    def _role(
        self, stage: Stage, role: int, companion: str, modalities: Iterable[Modality]
    ) -> RolePlan:
        lanes = tuple(lane_of(stage.index, role, modality) for modality in sorted(modalities))
        return RolePlan(role=role, companion=companion, lanes=lanes)

    def _sources(self, edge: Edge, choice: int) -> list[SourceOrder]:
        source = self._pipeline.stages[edge.stage]
        role = choice if edge.stage in self._fanned else 0
        names = ("", *source.companions) if edge.mode is EdgeMode.WHOLE else ("",)
        return [
            SourceOrder(
                lane=lane_of(edge.stage, number * self._choices + role, edge.modality),
                stage=source.name,
                companion=name,
                mode=edge.mode if self._streamed else _unsegmented(edge.mode),
                choice=choice,
            )
            for number, name in enumerate(names)
        ]


def _unsegmented(mode: EdgeMode) -> EdgeMode:
    """Give how an edge is read where the input is all there at once, as one segment."""
    return EdgeMode.WHOLE if mode is EdgeMode.SEGMENT else mode


def _client_source(mode: EdgeMode, choice: int) -> SourceOrder:
    return SourceOrder(
        lane=REQUEST_SOURCE, stage=CLIENT_STAGE, companion="", mode=mode, choice=choice
    )
