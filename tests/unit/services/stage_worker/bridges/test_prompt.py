import pytest

from services.stage_worker.bridges.prompt import create
from services.stage_worker.engines.base import TextInput
from stagemesh.errors import MeshError
from stagemesh.media import ImageParams, Params
from stagemesh.outcome import ErrorCode
from tests.helpers.bridge_contexts import context, said, source, user

AVOID = Params(image=ImageParams(negative_prompt="blurry"))


def test_the_prompt_is_the_users_last_text() -> None:
    bridge = create(context(user("first"), user("a red ", "circle"), params=AVOID))
    assert bridge.start() == [TextInput(text="a red circle")]
    assert bridge.complete
    assert bridge.feed(said(source())) == []


@pytest.mark.parametrize(("params", "text"), [(AVOID, "blurry"), (Params(), "")])
def test_the_negative_companion_gets_what_to_avoid(params: Params, text: str) -> None:
    bridge = create(context(user("a circle"), companion="negative", params=params))
    assert bridge.start() == [TextInput(text=text)]


def test_another_companion_has_no_prompt() -> None:
    with pytest.raises(MeshError) as caught:
        create(context(user("a circle"), companion="style")).start()
    assert caught.value.info.code is ErrorCode.UNSUPPORTED
