"""Frames of the orchestrator link."""

import pytest

from services.gateway.translate import (
    SelfPortrait,
    abort_frame,
    fence_frame,
    handle_lost_frame,
    hello_of,
    models_of,
    open_frames,
    ping_of,
    request_bytes,
    request_of,
    takes_work,
    terminal_of,
)
from stagemesh.api.types.v1 import link_pb2, media_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Journal, LaneJournal, join_journals
from stagemesh.link.pump import journal_from_proto
from stagemesh.media import Message, Modality, Request, TextPart
from stagemesh.outcome import Outcome, Terminal
from stagemesh.wire import request_from_proto, terminal_to_proto

PORTRAIT = SelfPortrait(
    gateway_id="g0", incarnation=9, version="1.2", pid=3, payload_address="a:1", window_units=64,
    window_bytes=1000,
)  # fmt: skip


def test_a_hello_says_who_speaks_and_how_much_each_request_may_hold() -> None:
    hello = hello_of(PORTRAIT)
    assert hello.service == link_pb2.SERVICE_KIND_GATEWAY
    assert (hello.id, hello.incarnation, hello.payload_address) == ("g0", 9, "a:1")
    assert (hello.limits.window_units, hello.limits.window_bytes) == (64, 1000)


@pytest.mark.parametrize("draining", [True, False])
def test_a_sign_of_life_says_whether_work_is_taken(draining: bool) -> None:
    assert takes_work(ping_of(draining=draining).state) is not draining


def _open(request: Request, journal: Journal, epoch: int = 1) -> list[link_pb2.Frame]:
    return open_frames(
        slot=3, request_id="r", epoch=epoch, deadline_left_s=1.5, request=request, journal=journal
    )


def test_an_open_carries_the_request_under_its_first_epoch() -> None:
    request = Request(model="m", messages=(), seed=5, choices=2)
    (frame,) = _open(request, Journal())
    opened = frame.open
    assert (opened.slot, opened.request_id, opened.epoch) == (3, "r", 1)
    assert (opened.deadline_left_s, opened.more) == (1.5, False)
    assert not opened.HasField("journal")
    assert request_from_proto(opened.request) == request


def test_a_small_journal_is_in_the_open() -> None:
    journal = Journal(lanes=[LaneJournal(lane=1, next=2, ids=[7, 8], visible_pos=2)])
    (frame,) = _open(Request(model="m", messages=()), journal, epoch=2)
    assert (frame.open.epoch, frame.open.more) == (2, False)
    assert journal_from_proto(frame.open.journal) == journal


@pytest.mark.parametrize(("ids", "said"), [(200_000, ""), (10, "x" * 2**20)])
def test_a_journal_that_is_large_or_comes_with_a_large_request_goes_in_parts(
    ids: int, said: str
) -> None:
    journal = Journal(lanes=[LaneJournal(lane=1, next=ids, ids=list(range(ids)))])
    message = Message(role="user", parts=(TextPart(said),))
    first, *parts, last = _open(Request(model="m", messages=(message,)), journal)
    assert (first.open.more, first.open.HasField("journal")) == (True, False)
    assert last.go == link_pb2.Go(slot=3)
    assert {part.journal_part.slot for part in parts} == {3}
    assert all(part.ByteSize() < 2**20 for part in parts)
    whole = join_journals(journal_from_proto(part.journal_part.journal) for part in parts)
    assert whole == journal


def test_the_small_frames_name_their_slot() -> None:
    assert abort_frame(4, "why").abort == link_pb2.Abort(slot=4, cause="why")
    assert fence_frame(4).fence == link_pb2.Fence(slot=4, epoch=2**32 - 1)
    assert handle_lost_frame(4, "h").handle_lost == link_pb2.HandleLost(slot=4, handle_id="h")


def test_a_terminal_is_read_and_an_unknown_one_is_the_peers_mistake() -> None:
    terminal = Terminal(outcome=Outcome.COMPLETED)
    assert terminal_of(terminal_to_proto(1, terminal)) == terminal
    with pytest.raises(MeshError):
        terminal_of(link_pb2.Terminal(slot=1))


def test_models_are_read_by_name_and_unknown_modalities_are_refused() -> None:
    pipeline = link_pb2.PublishedPipeline(
        model="m", revision="r", ready=True, output_modalities=[media_pb2.MODALITY_TEXT]
    )
    models = models_of(link_pb2.Hello(pipelines=[pipeline]))
    assert list(models) == ["m"]
    assert models["m"].output_modalities == frozenset({Modality.TEXT})
    pipeline.output_modalities.append(14)  # type: ignore[arg-type]
    with pytest.raises(MeshError):
        models_of(link_pb2.Ping(pipelines=[pipeline]))


def test_an_open_says_how_long_it_may_be_kept_and_since_when_the_owner_has_it() -> None:
    (frame,) = open_frames(
        slot=3, request_id="r", epoch=4, deadline_left_s=1.5, journal=Journal(),
        request=Request(model="m", messages=()), detach_s=30.0, owner_since=2,
    )  # fmt: skip
    assert (frame.open.detach_s, frame.open.owner_since) == (30.0, 2)
    (plain,) = _open(Request(model="m", messages=()), Journal())
    assert (plain.open.detach_s, plain.open.owner_since) == (0.0, 0)


def test_a_request_is_read_as_it_was_written() -> None:
    request = Request(
        model="m", messages=(Message(role="user", parts=(TextPart(text="Hi"),)),), seed=5,
        modalities=(Modality.AUDIO,), tenant="t",
    )  # fmt: skip
    assert request_of(request_bytes(request)) == request
    with pytest.raises(MeshError, match="damaged"):
        request_of(request_bytes(request)[:-1])
