from services.stage_worker.bridges.base import Fed
from services.stage_worker.bridges.script import FRAME_SAMPLES, create
from services.stage_worker.engines.base import TextInput
from stagemesh.media import Modality
from tests.helpers.bridge_contexts import (
    CLIENT,
    appended,
    context,
    said,
    source,
    spoken,
    user,
)


def test_the_text_of_the_request_comes_first_and_has_no_units() -> None:
    thinker = source()
    bridge = create(context(user("go"), sources=[thinker]))
    assert bridge.start() == [TextInput(text="go")]
    assert bridge.feed(said(thinker, " w0 w1", units=2)) == [
        TextInput(text=" w0 w1", units=2, origin=(0, 2))
    ]
    assert not bridge.complete
    assert bridge.feed(said(thinker, "", units=0, last=True)) == []
    assert bridge.complete


def test_without_sources_the_request_is_all() -> None:
    bridge = create(context(user(spoken())))
    assert bridge.start() == [TextInput(text="")]
    assert bridge.complete


def test_a_stage_that_does_not_read_the_request_begins_with_its_source() -> None:
    thinker = source()
    bridge = create(context(sources=[thinker]))
    assert bridge.start() == []
    assert bridge.feed(said(thinker, " w5", pos=5, last=True)) == [
        TextInput(text=" w5", units=1, origin=(5, 6))
    ]
    assert bridge.complete


def test_audio_counts_one_unit_for_each_frame() -> None:
    talker = source(modality=Modality.AUDIO)
    bridge = create(context(sources=[talker]))
    fed = Fed(source=talker, units=FRAME_SAMPLES * 2 + 1)
    assert bridge.feed(fed) == [TextInput(text="", units=3, origin=(0, FRAME_SAMPLES * 2 + 1))]


def test_what_another_stage_hands_over_is_waited_for_and_counts_nothing() -> None:
    prefill = source(modality=Modality.TENSOR)
    bridge = create(context(user("go"), sources=[prefill], options={"handover": prefill.stage}))
    assert bridge.start() == []
    assert not bridge.complete
    assert bridge.feed(Fed(source=prefill, units=1)) == []
    assert bridge.feed(Fed(source=prefill, units=0, last=True)) == [TextInput(text="go")]
    assert bridge.complete


def test_a_clients_piece_is_good_for_one_word_and_its_audio_for_its_length() -> None:
    bridge = create(context(user("go"), sources=[CLIENT]))
    assert bridge.start() == [TextInput(text="go")]
    frame = b"x" * 2 * FRAME_SAMPLES
    for at, (fed, units) in enumerate(
        [
            (appended("so it is"), 1),
            (appended(data=frame * 3, pos=1), 3),
            (appended(data=frame + b"xx", pos=2), 2),
            (appended(data=frame * 3, media_type="audio/mpeg", pos=3), 1),
        ]
    ):
        assert bridge.feed(fed) == [TextInput(text=fed.text, units=units, origin=(at, at + 1))]
    assert bridge.feed(appended(pos=4, segment_end=True)) == []
    assert not bridge.complete
    assert bridge.feed(appended(pos=5, last=True)) == []
    assert bridge.complete
