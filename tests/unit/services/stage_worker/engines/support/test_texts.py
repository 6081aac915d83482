import pytest

from services.stage_worker.engines.base import AudioInput, ChatInput, TextInput
from services.stage_worker.engines.support.texts import text_of
from stagemesh.errors import MeshError
from stagemesh.media import Message, TextPart
from stagemesh.outcome import ErrorCode


def said(role: str, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text),))


def test_plain_text_is_itself() -> None:
    assert text_of(TextInput(text="hello"), param="input") == "hello"


def test_a_conversation_stands_for_its_last_message() -> None:
    given = ChatInput(messages=(said("user", "one"), said("user", "two")))
    assert text_of(given, param="input") == "two"


@pytest.mark.parametrize(
    "given", [AudioInput(data=b"", media_type="audio/wav"), ChatInput(messages=())]
)
def test_anything_else_is_refused(given: AudioInput | ChatInput) -> None:
    with pytest.raises(MeshError) as caught:
        text_of(given, param="input")
    assert caught.value.info.code is ErrorCode.UNSUPPORTED
    assert caught.value.info.param == "input"
