"""What every effect of an orchestrator's core must satisfy."""

from services.orchestrator.core import effects as fx
from services.orchestrator.core.contracts import ResumeContract, effective
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import WorkerCard
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import (
    REQUEST_SOURCE,
    Grant,
    LaneDigest,
    LaneJournal,
    Row,
    Window,
    row_cost,
)
from stagemesh.media import Modality, split_lane
from stagemesh.outcome import ErrorCode, Outcome, Terminal
from stagemesh.pipeline import Mesh
from tests.helpers.core_parties import (
    Desk,
    WorldAttempt,
    WorldClient,
    WorldReplica,
    WorldRequest,
    text_at,
)

__all__ = ["Checks"]


class Checks:
    """Knows what clients and workers were told so far, and objects to what does not fit."""

    def __init__(self, mesh: Mesh, settings: CoreSettings) -> None:
        self.mesh = mesh
        self.settings = settings
        self.core = Orchestrator(mesh, settings)
        self.cards = dict.fromkeys(mesh.pools, WorkerCard())
        self.clients: dict[int, WorldClient] = {}
        self.replicas: dict[int, WorldReplica] = {}
        self.requests: dict[tuple[int, int], WorldRequest] = {}
        self.by_id: dict[str, WorldRequest] = {}
        self.desk = Desk()
        self._pipelines = {
            name: pipeline for pipeline in mesh.pipelines.values() for name in pipeline.model_names
        }

    def check(self, effect: fx.Effect) -> None:
        """Take an effect."""
        match effect:
            case fx.SendRows(link=link, rows=rows):
                self._check_rows(link, rows)
            case fx.SendGrants(link=link, grants=grants) if link in self.clients:
                self._check_input_grants(link, grants)
            case fx.SendGrants(link=link, grants=grants):
                self._check_grants(self.replicas[link], grants)
            case fx.SubmitAttempts():
                self._check_submit(effect)
            case fx.AbortAttempt(link=link, slot=slot, cause=cause):
                self._check_abort(self.replicas[link], slot, cause)
            case fx.ReleaseHandles(link=link, request_id=request_id):
                self._check_release(self.by_id[request_id], self.replicas[link])
            case fx.RenewHandles(link=link, request_id=request_id):
                assert self.by_id[request_id].terminal is None
                assert link not in self.by_id[request_id].released
                assert request_id in self.replicas[link].holds
            case fx.SendPrompt(link=link, slot=slot, interaction_id=name):
                attempt = self.replicas[link].attempts[slot]
                assert not attempt.aborted, "a prompt for an attempt that was aborted"
                assert name in attempt.request.asked
                attempt.prompts.append(name)
            case fx.FenceRequest(link=link, request_id=request_id, epoch=epoch):
                request = self.by_id[request_id]
                assert epoch == request.epoch > 1
                request.fenced.add(link)
            case fx.AskWorker() | fx.AnswerControl():
                self.desk.take(effect, self.replicas)
            case fx.PublishModels(models=models):
                assert {model.model for model in models} == set(self._pipelines)
            case _:
                self._check_news(effect)

    def _check_news(self, effect: fx.Effect) -> None:
        """Check what a client is told of its request, apart from rows."""
        match effect:
            case fx.AnswerUnknown(link=link) | fx.SayGoAway(link=link):
                assert link in self.clients
            case fx.EndRequest(link=link, slot=slot, terminal=terminal):
                self._check_end(self.requests[link, slot], terminal)
            case fx.AnswerInteraction(link=link, slot=slot, interaction_id=name):
                request = self.requests[link, slot]
                assert request.terminal is None, "an answer after the terminal"
                assert not request.lost
                request.asked.remove(name)
            case fx.PlaceNotice(link=link, slot=slot, placed=placed):
                request = self.requests[link, slot]
                assert request.mirrors
                assert not request.lost
                request.journal.placed[placed.stage, placed.role] = placed
            case fx.ResetLanes(link=link, slot=slot, stages=stages):
                request = self.requests[link, slot]
                assert request.mirrors
                request.journal.reset(stages)
            case fx.HandBackRequest(link=link, slot=slot):
                request = self.requests.pop((link, slot))
                assert request.mirrors, "only a gateway can open a request elsewhere"
                assert request.terminal is None
                request.lost = True
            case fx.DropRequest(link=link, slot=slot, request_id=request_id):
                request = self.by_id[request_id]
                if request.waiting and (request.link, request.slot) == (link, slot):
                    request.waiting, request.lost = False, True
                assert request.lost or (request.link, request.slot) != (link, slot)
            case _:
                raise AssertionError(effect)

    def _check_rows(self, link: int, rows: list[Row]) -> None:
        assert rows, "a SendRows without rows"
        for row in rows:
            if link in self.clients:
                self._check_output(self.requests[link, row.slot], row)
            else:
                self._check_input(self.replicas[link].attempts[row.slot], row)

    def _check_release(self, request: WorldRequest, replica: WorldReplica) -> None:
        assert request.request_id in replica.holds
        assert replica.link not in request.released, "released twice"
        assert request.terminal is not None or request.lost
        request.released.add(replica.link)

    def _check_output(self, request: WorldRequest, row: Row) -> None:
        assert request.terminal is None, "an output after the terminal"
        assert not (request.lost or request.waiting), "an output for a gateway that is gone"
        assert row.visible or request.mirrors, "a hidden output for a client that keeps no journal"
        request.journal.take(row)
        said = text_at(row.lane, row.pos, row.units, plain=request.plain)
        assert row.text in ("", said), "another text than before"
        if not row.visible:
            return
        units, size = row_cost(row)
        free = request.partials or not (units or size)
        free |= row.pos < request.sent_to.get(row.lane, 0)  # Sent before, and not confirmed.
        assert request.window.open or free, "an output without credit"
        request.window.spend(units, size)
        request.taken_units += units
        request.taken_bytes += size
        if request.detach_s:
            request.sent.append(row)

    def _check_input(self, attempt: WorldAttempt, row: Row) -> None:
        request = attempt.request
        assert not attempt.aborted, "input for an attempt that was aborted"
        assert request.terminal is None, "input after the terminal"
        assert not request.lost, "input for a request that has no owner"
        if row.lane not in attempt.input_next and attempt.contract is ResumeContract.PER_INPUT:
            attempt.input_next[row.lane] = row.pos
        assert row.pos == attempt.input_next.get(row.lane, 0), "inputs skipped or repeated"
        assert row.lane not in attempt.input_ended, "input after its end"
        if row.lane == REQUEST_SOURCE:
            self._check_piece(request, row)
        else:
            said = text_at(row.lane, row.pos, row.units, plain=request.plain)
            assert row.text in ("", said), "another text than before"
        mirrored = request.mirrors and row.lane != REQUEST_SOURCE and not request.plain
        mirrored &= not (request.waiting or request.taken_over)
        if mirrored and self._contract(request, row.lane) is not ResumeContract.REPLAY:
            assert request.journal.has(row), "an effect may come before its cause"
        attempt.input_next[row.lane] = row.pos + row.units
        window = attempt.inputs[row.lane]
        units, size = row_cost(row)
        assert window.open or not (units or size), "input without credit"
        window.spend(units, size)
        if row.end is not None:
            attempt.input_ended.add(row.lane)

    def _check_piece(self, request: WorldRequest, row: Row) -> None:
        """A stage gets what the client said, cut as the client cut it, but for a bare end."""
        assert request.said is not None
        if request.plain:
            return  # It counts from the beginning of its segment.
        pieces = [one for one in request.said if row.pos <= one.pos < row.pos + row.units]
        assert row.text == "".join(one.text for one in pieces), "another piece than was said"
        assert len(pieces) <= 1, "pieces are joined"
        assert row.end is None or request.said_all

    def _contract(self, request: WorldRequest, lane: int) -> ResumeContract:
        stage = self._pipelines[request.request.model].stages[split_lane(lane).stage]
        return effective(self.cards[stage.pool])

    def _check_input_grants(self, link: int, grants: list[Grant]) -> None:
        for grant in grants:
            request = self.requests[link, grant.slot]
            assert grant.source == REQUEST_SOURCE
            assert request.said is not None, "credit for input that nobody gives"
            assert request.terminal is None, "credit after the terminal"
            assert grant.units <= request.said_units + self.settings.window_units
            assert grant.bytes <= request.said_bytes + self.settings.window_bytes
            request.input_window.grant(grant.units, grant.bytes)

    def _check_grants(self, replica: WorldReplica, grants: list[Grant]) -> None:
        for grant in grants:
            attempt = replica.attempts[grant.slot]
            assert not attempt.aborted, "credit for an attempt that was aborted"
            assert grant.units <= attempt.sent_units + self.settings.window_units
            assert grant.bytes <= attempt.sent_bytes + self.settings.window_bytes
            attempt.window.grant(grant.units, grant.bytes)

    def _check_submit(self, effect: fx.SubmitAttempts) -> None:
        request = self.by_id[effect.request_id]
        replica = self.replicas[effect.link]
        stage = self._pipelines[effect.model].stages[effect.stage]
        assert request.terminal is None, "work after the terminal"
        assert not request.stopped, "work for a request that was ended"
        assert not request.lost, "work for a request that has no owner"
        assert not request.waiting, "work is begun for a request without a gateway"
        assert effect.epoch == request.work_epoch, "work under an old epoch"
        assert replica.usable, "work for a replica that takes none"
        assert replica.pool == stage.pool, "work for another pool's replica"
        assert len(replica.attempts) + len(effect.roles) <= replica.slots, "overbooked"
        if request.work_epoch > 1:
            assert replica.link in request.fenced or replica.link > max(request.fenced, default=0)
        home = self.replicas.get(request.homes.get(stage.pool, -1))
        usable = {view.link for view in self.core.replica_views() if view.usable}
        if home is not None and home.link in usable and request.request_id not in home.given_up:
            assert home is replica, "a request moved though its replica could be used"
        request.homes[stage.pool] = replica.link
        marks = {mark.lane: mark for mark in effect.resume}
        for role in effect.roles:
            self._check_role(effect, role, marks)
            assert role.slot not in replica.slots_seen, "a slot used again"
            replica.slots_seen.add(role.slot)
            choice = role.role % request.choices
            sources = [source.lane for source in effect.sources if source.choice == choice]
            replica.attempts[role.slot] = WorldAttempt(
                request=request,
                link=replica.link,
                slot=role.slot,
                stage=effect.stage,
                window=Window(self.settings.window_units, self.settings.window_bytes),
                input_units=replica.units,
                input_bytes=replica.bytes,
                next={lane: marks[lane].next if lane in marks else 0 for lane in role.lanes},
                ended={lane for lane in role.lanes if lane in marks and marks[lane].end},
                inputs={lane: Window(replica.units, replica.bytes) for lane in sources},
                took={lane: [0, 0] for lane in sources},
                contract=effect.contract or effective(replica.card),
                ids=role.token_ids,
            )

    def _check_role(
        self, effect: fx.SubmitAttempts, role: fx.RoleOrder, marks: dict[int, LaneJournal]
    ) -> None:
        request = self.by_id[effect.request_id]
        key = (effect.stage, role.role)
        assert effect.attempt > request.tried.get(key, 0), "attempts go up"
        request.tried[key] = effect.attempt
        assert all(split_lane(lane).stage == effect.stage for lane in role.lanes)
        if request.mirrors and not request.taken_over:
            placed = request.journal.placed[key]
            assert (placed.attempt, placed.incarnation) == (effect.attempt, effect.link)
        for number in role.lanes:
            given = request.journal.lanes.get(number)
            mark = marks.get(number)
            run_units = 0 if given is None else given.cursor.next - given.segment_pos
            if mark is None:
                shown = given is not None and given.visible and run_units
                assert not shown, "the client would get it again"
                continue
            self._check_mark(effect, mark)
            if given is not None and given.visible and effect.contract is not None:
                exact = effect.contract is not ResumeContract.PER_INPUT
                assert mark.next >= run_units if exact else True

    def _check_mark(self, effect: fx.SubmitAttempts, mark: LaneJournal) -> None:
        text = split_lane(mark.lane).modality is Modality.TEXT
        assert effect.contract is not ResumeContract.NONE
        if effect.contract is ResumeContract.TOKENS and text:
            assert mark.ids == list(range(mark.next)), "ids that it did not give"
        if mark.digest and text:
            whole = LaneDigest()
            plain = self.by_id[effect.request_id].plain
            whole.add_bytes(text_at(mark.lane, 0, mark.next, plain=plain).encode())
            assert mark.digest == whole.value, "a digest of something else"

    def _check_abort(self, replica: WorldReplica, slot: int, cause: str) -> None:
        attempt = replica.attempts.get(slot)
        if attempt is None:
            assert slot not in replica.strangers, "an unknown slot answered twice"
            replica.strangers.add(slot)
            return
        assert not attempt.aborted, "aborted twice"
        attempt.aborted = True
        if cause == "stalled":
            replica.given_up.add(attempt.request.request_id)

    def _check_end(self, request: WorldRequest, terminal: Terminal) -> None:
        assert request.link in self.clients
        assert request.terminal is None, "two terminals"
        request.terminal = terminal
        shown = [lane for lane in request.journal.lanes.values() if lane.visible]
        if terminal.outcome is Outcome.COMPLETED:
            assert terminal.error is None
            assert shown
            assert not request.sent, "completed before all was confirmed"
            assert all(lane.cursor.ended for lane in shown), "completed with an open lane"
            units = sum(
                lane.cursor.next
                for lane in shown
                if split_lane(lane.number).modality is Modality.TEXT
            )
            assert terminal.usage.completion_tokens == units
        else:
            assert terminal.error is not None, "an end without its cause"
        if terminal.outcome is Outcome.CANCELLED:
            assert terminal.error is not None
            assert terminal.error.code is ErrorCode.ABORTED
            assert request.stopped
