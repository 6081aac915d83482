import pytest

from services.stage_worker.bridges.base import Fed, SourceSpec
from services.stage_worker.bridges.condition import create
from services.stage_worker.engines.base import TensorsInput
from stagemesh.errors import MeshError
from stagemesh.media import Body, Modality
from stagemesh.outcome import ErrorCode
from tests.helpers.bridge_contexts import context, source, user

OWN = source(modality=Modality.TENSOR)
NEGATIVE = source(modality=Modality.TENSOR, role=1, companion="negative")


def tensor(given: SourceSpec, data: bytes, *, last: bool = True) -> Fed:
    return Fed(source=given, units=1, body=Body(inline=data), last=last)


def test_it_joins_its_own_tensor_and_those_of_companions() -> None:
    bridge = create(context(user("a red circle"), sources=[OWN, NEGATIVE]))
    assert bridge.start() == []
    assert bridge.feed(tensor(NEGATIVE, b"n")) == []
    assert not bridge.complete
    assert bridge.feed(tensor(OWN, b"o")) == [
        TensorsInput(buffers={"": b"o", "negative": b"n"}, text="a red circle")
    ]
    assert bridge.complete


def test_an_end_may_come_apart_from_the_tensor() -> None:
    bridge = create(context(sources=[OWN]))
    assert bridge.feed(tensor(OWN, b"o", last=False)) == []
    assert bridge.feed(Fed(source=OWN, units=0, last=True)) == [TensorsInput(buffers={"": b"o"})]


def test_a_source_that_gives_none_or_two_breaks_the_join() -> None:
    for feeds in (
        [Fed(source=OWN, units=0, last=True)],
        [tensor(OWN, b"a", last=False), tensor(OWN, b"b")],
    ):
        bridge = create(context(sources=[OWN, NEGATIVE]))
        with pytest.raises(MeshError) as caught:
            for fed in feeds:
                bridge.feed(fed)
        assert caught.value.info.code is ErrorCode.PROTOCOL


@pytest.mark.parametrize("sources", [[], [OWN, source(1, modality=Modality.TENSOR)]])
def test_sources_that_cannot_be_joined_are_refused(sources: list[SourceSpec]) -> None:
    with pytest.raises(MeshError):
        create(context(sources=sources))
