"""The effects of an orchestrator's core as scenarios tell them, with the names of everything."""

from collections.abc import Iterator
from typing import Any

import msgspec

from services.orchestrator.core import effects as fx
from stagemesh.link.core import REQUEST_SOURCE, LaneJournal, Row
from stagemesh.media import Params, split_lane
from stagemesh.outcome import Terminal
from stagemesh.pipeline import Mesh, Pipeline, wished_fields
from tests.helpers.core_controls import shown_control

__all__ = ["Names"]


class Names:
    """What links, slots and lanes are called in a scenario."""

    def __init__(self, mesh: Mesh) -> None:
        self.models = {
            name: pipeline for pipeline in mesh.pipelines.values() for name in pipeline.model_names
        }
        self.links: dict[str, int] = {}
        self.requests: dict[tuple[int, int], tuple[str, Pipeline]] = {}
        self.attempts: dict[tuple[int, int], Pipeline] = {}

    def shown(self, effect: fx.Effect) -> Iterator[str]:
        """Tell of an effect, one line for each thing in it."""
        match effect:
            case fx.SendRows(link=link, rows=rows):
                for row in rows:
                    yield f"send {self._key(link, row.slot)} {self._row(link, row)}"
            case fx.SendGrants(link=link, grants=grants):
                for grant in grants:
                    totals = f"units={grant.units} bytes={grant.bytes}"
                    yield f"grant {self._key(link, grant.slot)} {totals}"
            case fx.SubmitAttempts():
                yield from self._submit(effect)
            case fx.AbortAttempt(link=link, slot=slot, cause=cause, partials=partials):
                more = " with partials" if partials else ""
                yield f"abort {self._key(link, slot)} ({cause}){more}"
            case fx.EndRequest(link=link, slot=slot, terminal=terminal):
                yield f"end {self._key(link, slot)} {_terminal(terminal)}"
            case fx.AnswerUnknown(link=link, slot=slot):
                yield f"answer-unknown {self._name(link)} slot {slot}"
            case fx.ReleaseHandles(link=link, request_id=request_id):
                yield f"release {self._name(link)} {request_id}"
            case fx.RenewHandles(link=link, request_id=request_id):
                yield f"renew {self._name(link)} {request_id}"
            case fx.PublishModels(models=models):
                yield "publish " + " ".join(m.model for m in models if m.ready)
            case _:
                yield from self._shown_of_recovery(effect)

    def _shown_of_recovery(self, effect: fx.Effect) -> Iterator[str]:
        match effect:
            case fx.SendPrompt(link=link, slot=slot, interaction_id=name, text=text):
                yield f'prompt {self._key(link, slot)} {name} "{text}"'
            case fx.AnswerInteraction(link=link, slot=slot, interaction_id=name):
                error = effect.error
                at = (
                    f"at {effect.applied_at}"
                    if error is None
                    else f"{error.code.name} {error.reason}"
                )
                yield f"answer {self._key(link, slot)} {name} {at}"
            case fx.SayGoAway(link=link, reason=reason, drain_s=drain_s):
                yield f"go-away {self._name(link)} {reason} {drain_s:g}"
            case fx.HandBackRequest(link=link, slot=slot):
                yield f"hand-back {self._key(link, slot)}"
            case fx.DropRequest(link=link, slot=slot):
                yield f"drop {self._key(link, slot)}"
            case fx.PlaceNotice(link=link, slot=slot, placed=placed):
                where = f"role {placed.role} at {placed.replica_id} attempt={placed.attempt}"
                pipeline = self.requests[link, slot][1]
                yield f"placed {self._key(link, slot)} {pipeline.stages[placed.stage].name} {where}"
            case fx.ResetLanes(link=link, slot=slot, stages=stages):
                names = [self.requests[link, slot][1].stages[at].name for at in stages]
                yield f"reset {self._key(link, slot)} {' '.join(names)}"
            case fx.AskWorker() | fx.AnswerControl():
                yield from shown_control(effect, self._name)
            case fx.FenceRequest(link=link, request_id=request_id, epoch=epoch, handle_ids=ids):
                keeping = f" keeping {' '.join(ids)}" if ids else ""
                yield f"fence {self._name(link)} {request_id} epoch={epoch}{keeping}"

    def _submit(self, effect: fx.SubmitAttempts) -> Iterator[str]:
        pipeline = self.models[effect.model]
        for role in effect.roles:
            self.attempts[effect.link, role.slot] = pipeline
        stage = pipeline.stages[effect.stage].name
        line = f"submit {effect.request_id} {stage} to {self._name(effect.link)}"
        again = "" if effect.contract is None else f" by {effect.contract.name}"
        yield f"{line} attempt={effect.attempt} left={effect.deadline_left_s:g}{again}"
        for role in effect.roles:
            lanes = " ".join(_lane_name(pipeline, lane) for lane in role.lanes)
            who = f"companion {role.companion}" if role.companion else "choice"
            ids = " with ids" if role.token_ids else ""
            yield f"    #{role.slot} {who}, role {role.role}, gives {lanes}{ids}"
        told = _params(effect.params)
        if told != _params(pipeline.stages[effect.stage].params):
            yield f"    with {told}"
        for source in effect.sources:
            lane = _lane_name(pipeline, source.lane)
            yield f"    choice {source.choice} reads {lane} {source.mode.name.lower()}"
        for prompt in effect.prompts:
            yield f'    prompt {prompt.interaction_id} "{prompt.text}" at {prompt.applied_at}'
        for mark in effect.resume:
            yield f"    goes on {_lane_name(pipeline, mark.lane)} at {_mark(mark)}"

    def _key(self, link: int, slot: int) -> str:
        name = self._name(link)
        if (link, slot) in self.requests:
            return f"{name} {self.requests[link, slot][0]}"
        return f"{name} #{slot}"

    def _row(self, link: int, row: Row) -> str:
        key = (link, row.slot)
        pipeline = self.requests[key][1] if key in self.requests else self.attempts[key]
        words = [_lane_name(pipeline, row.lane), f"{row.pos}+{row.units}"]
        if row.text:
            words.append(f'"{row.text}"')
        if row.ids is not None:
            words.append("ids=" + ",".join(map(str, row.ids)))
        if row.body is not None and row.body.handle is not None:
            words.append(f"handle={row.body.handle.handle_id}")
        elif row.body is not None:
            words.append(f"pcm={len(row.body.inline)}")
        if row.segment_end:
            words.append("segment-end")
        if row.end is not None:
            words.append(f"end={row.end.finish_reason.name}")
        if not row.visible:
            words.append("(hidden)")
        return " ".join(words)

    def _name(self, link: int) -> str:
        return next(n for n, number in self.links.items() if number == link)


def _params(params: Params) -> str:
    fields = ((name, *name.split(".")) for name in wished_fields(params))
    return " ".join(
        f"{name}={getattr(getattr(params, group), field)}" for name, group, field in fields
    )


def _terminal(terminal: Terminal) -> str:
    words = [terminal.outcome.name]
    error = terminal.error
    if error is not None:
        words += [error.code.name, error.reason]
        for name in ("stage", "pool", "replica_id", "attempt", "param", "retry_after_s"):
            value: Any = getattr(error, name)
            if value not in ("", 0, None):
                words.append(f"{name}={value}")
        if error.retryable:
            words.append("retryable")
        if error.message.startswith("Companion"):
            words.append(f'"{error.message}"')
    usage = msgspec.structs.asdict(terminal.usage)
    words += [f"{name}={value}" for name, value in usage.items() if value and name != "complete"]
    if not terminal.usage.complete:
        words.append("usage-incomplete")
    return " ".join(words)


def _lane_name(pipeline: Pipeline, number: int) -> str:
    if number == REQUEST_SOURCE:
        return "input"
    lane = split_lane(number)
    return f"{pipeline.stages[lane.stage].name}.{lane.role}.{lane.modality.name.lower()}"


def _mark(mark: LaneJournal) -> str:
    words = [str(mark.next)]
    if mark.ids:
        words.append("after ids " + ",".join(map(str, mark.ids)))
    if mark.digest:
        words.append(f"digest {mark.digest.hex()[:8]}")
    if mark.end is not None:
        words.append(f"end={mark.end.finish_reason.name}")
    return " ".join(words)
