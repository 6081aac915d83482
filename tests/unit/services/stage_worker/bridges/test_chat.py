import pytest

from services.stage_worker.bridges.base import Fed
from services.stage_worker.bridges.chat import create
from services.stage_worker.engines.base import ChatInput
from stagemesh.errors import MeshError
from stagemesh.media import Body, MediaPart, Message, Modality, OutputKind, TextPart
from stagemesh.outcome import ErrorCode
from tests.helpers.bridge_contexts import (
    CLIENT,
    appended,
    context,
    said,
    source,
    spoken,
    user,
)

SYSTEM = Message(role="system", parts=(TextPart("Be brief."),))


def test_a_conversation_without_media_is_given_at_once() -> None:
    bridge = create(context(SYSTEM, user("Hello")))
    assert bridge.start() == [ChatInput(messages=(SYSTEM, user("Hello")))]
    assert bridge.complete


def test_speech_is_replaced_where_it_was_said() -> None:
    listener = source()
    bridge = create(context(SYSTEM, user("Listen: ", spoken(), "!"), sources=[listener]))
    assert bridge.start() == []
    assert bridge.feed(said(listener, " What is ")) == []
    assert not bridge.complete
    assert bridge.feed(said(listener, "this? ", last=True)) == [
        ChatInput(messages=(SYSTEM, user("Listen: ", "What is this?", "!")))
    ]
    assert bridge.complete


def test_silence_is_an_empty_text() -> None:
    listener = source()
    bridge = create(context(user(spoken()), sources=[listener]))
    assert bridge.feed(said(listener, "", units=0, last=True)) == [ChatInput(messages=(user(""),))]


def test_text_of_a_source_without_speech_is_what_the_user_said_last() -> None:
    other = source()
    bridge = create(context(user("First"), sources=[other]))
    assert bridge.feed(said(other, "second", last=True)) == [
        ChatInput(messages=(user("First"), user("second")))
    ]


def test_reasoning_of_a_source_is_not_what_was_heard() -> None:
    other = source()
    bridge = create(context(user("A"), sources=[other]))
    bridge.feed(Fed(source=other, units=1, text="hm", kind=OutputKind.REASONING))
    assert bridge.feed(said(other, "B", last=True)) == [ChatInput(messages=(user("A"), user("B")))]


@pytest.mark.parametrize(
    "part",
    [
        spoken("messages[0].content[1].input_audio"),
        MediaPart(
            modality=Modality.IMAGE,
            body=Body(inline=b"png"),
            param="messages[0].content[1].image_url",
        ),
    ],
)
def test_media_that_nobody_read_are_refused_by_their_field(part: MediaPart) -> None:
    with pytest.raises(MeshError) as caught:
        create(context(user("Look", part))).start()
    info = caught.value.info
    assert (info.code, info.reason) == (ErrorCode.UNSUPPORTED, "unsupported_modality")
    assert info.param == part.param


def test_media_are_not_fetched_for_it() -> None:
    assert not create.reads_media


def test_what_a_client_appends_is_a_message_and_cannot_be_sound() -> None:
    bridge = create(context(SYSTEM, sources=[CLIENT]))
    assert bridge.start() == []
    assert bridge.feed(appended("What is ")) == []
    assert bridge.feed(appended("that?", pos=1)) == []
    assert bridge.feed(appended(pos=2, last=True)) == [
        ChatInput(messages=(SYSTEM, user("What is that?")))
    ]
    with pytest.raises(MeshError) as caught:
        create(context(sources=[CLIENT])).feed(appended(data=b"pcm"))
    assert caught.value.info.param == "append"
