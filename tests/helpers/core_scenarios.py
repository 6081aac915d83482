"""Scenarios of the orchestrator's core: text in, text out.

A line such as `1.5 rows thinker-0 #1 thinker.0.text 0+3 "abc"` is an event at 1.5 s; the indented
lines below it are the effects that must follow. Links go by the name of their client or replica,
a client's slots by the name of the request, a worker's by `#` and their number, lanes by stage,
role and modality. Lines that begin with `#` tell the story; `set name=value` changes a setting.

Run this module to write the effects that the core gives now into every scenario, and read the diff.
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import LoadReport, WorkerCard, WorkerState
from services.orchestrator.core.settings import CoreSettings
from stagemesh.control import TAGS, ControlSupport
from stagemesh.link.core import Grant, Journal, LaneJournal, Placed, Row
from stagemesh.media import (
    Body,
    Handle,
    ImageParams,
    MediaPart,
    Message,
    Modality,
    Params,
    Part,
    Request,
    Sampling,
    TextPart,
)
from stagemesh.outcome import End, ErrorCode, ErrorInfo, FinishReason, Outcome, Terminal, Usage
from stagemesh.pipeline import Mesh, Pipeline
from tests.helpers.core_controls import control_asked, control_done, gate_of
from tests.helpers.core_effects import Names
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_pieces import given, lane_number, number, piece, runs_of

__all__ = ["SCENARIOS", "replay", "told"]

SCENARIOS: Final = Path(__file__).parents[1] / "unit/services/orchestrator/core/scenarios"


def told(text: str) -> str:
    """Drop the golden effects of a scenario: what is left is the story and its events."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(" "))


def replay(text: str) -> str:
    """Play a scenario on a new core; return it with the effects that follow each event."""
    lines = told(text).splitlines()
    changes = [line.split(maxsplit=1)[1] for line in lines if line.startswith("set ")]
    settings = msgspec.structs.replace(
        CoreSettings(), **{name: number(value) for name, value in (c.split("=") for c in changes)}
    )
    stage = _Stage(core_mesh(), settings)
    written = []
    for line in lines:
        written.append(line)
        if line and line[0].isdigit():
            written += [f"    {effect}" for effect in stage.play(line)]
    return "\n".join(written) + "\n"


class _Stage:
    """A core, and the names of everything around it."""

    def __init__(self, mesh: Mesh, settings: CoreSettings) -> None:
        self._core = Orchestrator(mesh, settings)
        self._names = Names(mesh)
        self._models = self._names.models
        self._links = self._names.links
        self._requests = self._names.requests
        self._attempts = self._names.attempts
        self._opened: dict[str, tuple[int, int]] = {}

    def play(self, line: str) -> Iterator[str]:
        at, kind, *words = shlex.split(line)
        fields = dict(w.split("=", 1) for w in words if "=" in w)
        names = [w for w in words if "=" not in w]
        if kind == "view":
            yield str(self._core.request_view(names[0]))
            return
        for effect in self._core.step(self._event(kind, names, fields), float(at)):
            yield from self._names.shown(effect)

    def _event(self, kind: str, names: list[str], fields: dict[str, str]) -> ev.Event:
        make = getattr(self, "_on_" + kind.replace("-", "_"))
        event: ev.Event = make(names, fields)
        return event

    def _link(self, name: str) -> int:
        return self._links[name]

    def _new_link(self, name: str) -> int:
        self._links[name] = len(self._links) + 1
        return self._links[name]

    # Events

    def _on_client(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.ClientAttached(
            link=self._new_link(names[0]),
            window_units=int(fields.get("units", 64)),
            window_bytes=int(fields.get("bytes", 1 << 20)),
            mirrors="mirrors" in names,
        )

    def _on_client_lost(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.ClientLost(link=self._link(names[0]))

    def _on_open(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        client, name, model = names[:3]
        link = self._link(client)
        slot = int(fields.get("slot", len(self._requests) + 1))
        if model in self._models:
            self._requests[link, slot] = (name, self._models[model])
        else:
            self._requests[link, slot] = (name, self._models["echo"])
        self._opened[name] = (link, slot)
        return ev.Opened(
            link=link,
            slot=slot,
            request_id=fields.get("id", name),
            epoch=int(fields.get("epoch", 1)),
            deadline_left_s=float(fields.get("deadline", 0)),
            request=_request(model, fields),
            body=None,
            journal=self._journal(self._requests[link, slot][1], fields),
            streamed="streamed" in names,
            inputs=given(slot, fields),
        )

    def _on_interact(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        """Read `REQUEST ID TEXT`, or a slot number."""
        link, slot = self._opened.get(names[0]) or (1, int(names[0]))
        text = "".join(names[2:])
        return ev.InteractAsked(link=link, slot=slot, interaction_id=names[1], text=text)

    def _on_interacted(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        """Read `REPLICA #SLOT ID [at=POS] [error=CODE]`."""
        error = None
        if "error" in fields:
            code = ErrorCode[fields["error"]]
            error = ErrorInfo(code=code, reason=code.name.lower(), message="told so")
        return ev.Interacted(
            link=self._link(names[0]),
            slot=int(names[1][1:]),
            interaction_id=names[2],
            applied_at=int(fields.get("at", 0)),
            error=error,
        )

    def _on_append(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        """Read `REQUEST POS+UNITS [TEXT] [pcm=BYTES] [mark=segment|end]`, or a slot number."""
        link, slot = self._opened.get(names[0]) or (1, int(names[0]))
        return ev.InputsAppended(link=link, rows=[piece(slot, names[1], names[2:], fields)])

    def _journal(self, pipeline: Pipeline, fields: dict[str, str]) -> Journal:
        """Read `journal="LANE NEXT [text=…] [ids=…] [handle=ID@REPLICA] [end=…]; …"`."""
        lanes = []
        for told in filter(None, fields.get("journal", "").split(";")):
            name, next_pos, *words = told.split()
            more = dict(word.split("=", 1) for word in words)
            number, units = lane_number(pipeline, name), int(next_pos)
            end = End(finish_reason=FinishReason[more["end"]]) if "end" in more else None
            ids = [int(word) for word in more.get("ids", "").split(",") if word]
            row = Row(0, number, 0, units, more.get("text", ""), end=end)
            if "handle" in more:
                handle_id, _, holder = more["handle"].partition("@")
                row.body = self._body(handle_id, holder, 1)
            kept = [row] if "text" in more or "handle" in more else []
            lanes.append(LaneJournal(lane=number, next=units, ids=ids, end=end, rows=kept))
            if "shown" in more:
                lanes[-1].visible_pos = int(more["shown"])
            if "runs" in more:
                runs, _, at = more["runs"].partition("@")
                lanes[-1].segments, lanes[-1].segment_pos = int(runs), int(at)
                lanes[-1].rows = runs_of(row, int(runs))
        placed = []
        for told in filter(None, fields.get("placed", "").split(",")):
            role, _, replica = told.partition("@")
            stage, _, number_of_role = role.partition(".")
            index = next(s.index for s in pipeline.stages if s.name == stage)
            placed.append(
                Placed(
                    stage=index,
                    role=int(number_of_role),
                    attempt=1,
                    replica_id=replica,
                    incarnation=1,
                )
            )
        return Journal(lanes=lanes, placed=placed)

    def _body(self, handle_id: str, holder: str, size: int) -> Body:
        handle = Handle(
            handle_id=handle_id,
            request_id="",
            holder_id=holder,
            incarnation=self._links.get(holder, 1),
            address="",
            size_bytes=size,
        )
        return Body(handle=handle)

    def _on_fence(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        link, slot = self._opened[names[0]]
        return ev.FenceRaised(link=link, slot=slot, epoch=int(fields["epoch"]))

    def _on_fenced(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        held = tuple(word for word in fields.get("held", "").split(",") if word)
        return ev.Fenced(
            link=self._link(names[0]),
            request_id=names[1],
            epoch=int(fields["epoch"]),
            held=held,
        )

    def _on_handed_back(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.HandedBack(link=self._link(names[0]), slot=int(names[1][1:]))

    def _on_abort(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        link, slot = self._opened.get(names[0], (1, 0))
        return ev.AbortAsked(link=link, slot=slot, cause="asked", partials="partials" in names)

    def _on_abort_by_id(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.RequestAbortAsked(
            request_id=names[0],
            cause="asked",
            tenant=fields.get("tenant", ""),
            partials="partials" in names,
        )

    def _on_credit(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        link, slot = self._opened[names[0]]
        return ev.CreditGranted(link=link, grants=[_grant(slot, 0, fields)])

    def _on_handle_lost(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        if names[0] in self._opened:
            link, slot = self._opened[names[0]]
        else:
            link, slot = self._link(names[0]), int(names[1][1:])
        return ev.HandleLost(link=link, slot=slot, handle_id=names[-1])

    def _on_replica(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        name = names[0]
        return ev.ReplicaAttached(
            link=self._new_link(name),
            pool=fields.get("pool", name.split("-")[0]),
            replica_id=name.split("/")[0],
            incarnation=len(self._links),
            card=WorkerCard(
                slots=int(fields.get("slots", 4)),
                context_tokens_max=int(fields.get("context", 0)),
                resume_contract=ResumeContract[fields.get("contract", "NONE")],
                deterministic=True,
                control=ControlSupport(sleep_tags=TAGS),
                interactions="interactive" in names,
            ),
            state=WorkerState[fields.get("state", "READY")],
            gate=gate_of(fields),
            window_units=int(fields.get("units", 64)),
            window_bytes=int(fields.get("bytes", 1 << 20)),
        )

    def _on_report(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.ReplicaReported(
            link=self._link(names[0]),
            state=WorkerState[fields.get("state", "READY")],
            load=LoadReport(
                running=int(fields.get("running", 0)), steps=int(fields.get("steps", 0))
            ),
            gate=gate_of(fields),
        )

    def _on_unlisted(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.ReplicaListed(replica_id=names[0], listed=False)

    def _on_listed(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.ReplicaListed(replica_id=names[0], listed=True)

    def _on_replica_lost(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.ReplicaLost(link=self._link(names[0]))

    def _on_rows(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        """Read `REPLICA #SLOT LANE POS+UNITS [TEXT] [pcm=BYTES] [handle=ID] [end=REASON]`."""
        link, slot = self._link(names[0]), int(names[1][1:])
        pos, units = map(int, names[3].split("+"))
        row = Row(slot, self._lane(link, slot, names[2]), pos, units, "".join(names[4:]))
        if "ids" in fields:
            row.ids = [int(word) for word in fields["ids"].split(",")]
        if "pcm" in fields:
            row.body = Body(inline=b"x" * int(fields["pcm"]))
        if "handle" in fields:
            row.body = self._body(fields["handle"], names[0], int(fields.get("size", 1)))
        if "from" in fields:
            start, _, stop = fields["from"].partition("-")
            row.origin = (int(start), int(stop))
        if "end" in fields:
            usage = Usage(prompt_tokens=int(fields.get("prompt", 0)))
            row.end = End(finish_reason=FinishReason[fields["end"]], usage=usage)
        return ev.RowsArrived(link=link, rows=[row])

    def _on_ended(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        """Read `REPLICA #SLOT OUTCOME [CODE] [reason=REASON]`."""
        error = None
        if len(names) > 3:
            reason = fields.get("reason", names[3].lower())
            error = ErrorInfo(code=ErrorCode[names[3]], reason=reason, message="told so")
        return ev.AttemptEnded(
            link=self._link(names[0]),
            slot=int(names[1][1:]),
            terminal=Terminal(outcome=Outcome[names[2]], error=error),
        )

    def _on_unknown(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.AttemptUnknown(link=self._link(names[0]), slot=int(names[1][1:]))

    def _on_input_credit(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        link, slot = self._link(names[0]), int(names[1][1:])
        grant = _grant(slot, self._lane(link, slot, names[2]), fields)
        return ev.InputCreditGranted(link=link, grants=[grant])

    def _on_drain(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.DrainAsked(drain_s=float(names[0]))

    def _on_undrain(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.UndrainAsked()

    def _on_control(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return control_asked(names, fields)

    def _on_done(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return control_done(self._link(names[0]), names)

    def _on_tick(self, names: list[str], fields: dict[str, str]) -> ev.Event:
        return ev.Tick()

    def _lane(self, link: int, slot: int, name: str) -> int:
        return lane_number(self._attempts.get((link, slot), self._models["talk"]), name)


def _request(model: str, fields: dict[str, str]) -> Request:
    parts: list[Part] = [TextPart(fields.get("text", "hello"))]
    if "audio" in fields:
        body = Body(inline=b"x" * int(fields["audio"]))
        parts.append(MediaPart(modality=Modality.AUDIO, body=body, param="messages[0].content[1]"))
    wanted = [word for word in fields.get("give", "").split(",") if word]
    return Request(
        model=model,
        messages=(Message(role="user", parts=tuple(parts)),),
        modalities=tuple(Modality[word.upper()] for word in wanted),
        choices=int(fields.get("n", 1)),
        tenant=fields.get("tenant", "default"),
        priority=int(fields.get("priority", 0)),
        stage_params={
            name.removeprefix("at-"): Params(sampling=Sampling(temperature=float(value)))
            for name, value in fields.items()
            if name.startswith("at-")
        },
        params=Params(
            sampling=Sampling(
                temperature=float(fields["temperature"]) if "temperature" in fields else None,
                tokens_max=int(fields["tokens_max"]) if "tokens_max" in fields else None,
            ),
            image=ImageParams(width=int(fields["width"]) if "width" in fields else None),
        ),
    )


def _grant(slot: int, source: int, fields: dict[str, str]) -> Grant:
    return Grant(slot, source, int(fields["units"]), int(fields.get("bytes", 1 << 20)))


def main() -> None:
    """Write what the core does now into every scenario."""
    for path in sorted(SCENARIOS.glob("*.txt")):
        before = path.read_text()
        after = replay(before)
        path.write_text(after)
        sys.stdout.write(f"{'unchanged' if after == before else 'WRITTEN'} {path.name}\n")


if __name__ == "__main__":
    main()
