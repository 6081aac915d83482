from services.stage_worker.bridges.request import last_user_text, media_parts
from stagemesh.media import Message, Request, TextPart
from tests.helpers.bridge_contexts import spoken, user


def test_the_last_text_is_the_users_whoever_spoke_after() -> None:
    answer = Message(role="assistant", parts=(TextPart("hi"),))
    assert last_user_text(Request(model="m", messages=(user("a"), user("b"), answer))) == "b"
    assert last_user_text(Request(model="m", messages=(answer,))) == ""


def test_media_are_found_in_their_order() -> None:
    one, two = spoken("one"), spoken("two")
    request = Request(model="m", messages=(user("a", one), user(two)))
    assert media_parts(request) == [one, two]
