import json
from pathlib import Path

import pytest

from services.stage_worker.engines.support.chat_template import ChatTemplate, plain_messages
from stagemesh.errors import MeshError
from stagemesh.media import Body, MediaPart, Message, Modality, TextPart
from stagemesh.outcome import ErrorCode

SOURCE = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}
<{{ message.role }}>{{ message.content }}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""


def said(role: str, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text),))


def test_messages_become_the_prompt_for_the_next_answer() -> None:
    template = ChatTemplate(SOURCE, {"eos_token": "</s>"})
    messages = (said("developer", "be brief"), said("user", "hi"))
    assert template.render(messages) == "<system>be brief</s>\n<user>hi</s>\n<assistant>"


def test_a_refusal_of_the_template_is_the_client_s_error() -> None:
    with pytest.raises(MeshError) as caught:
        ChatTemplate(SOURCE, {}).render((said("tool", "42"),))
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == "messages"
    assert "no tools here" in caught.value.info.message


def test_a_template_cannot_leave_its_sandbox() -> None:
    escaping = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(MeshError):
        ChatTemplate(escaping, {}).render((said("user", "hi"),))


def test_what_a_user_writes_is_never_read_as_a_template() -> None:
    rendered = ChatTemplate(SOURCE, {}).render((said("user", "{{ 6 * 7 }}"),))
    assert "{{ 6 * 7 }}" in rendered


def test_media_are_refused_with_the_client_s_name_of_the_field() -> None:
    part = MediaPart(modality=Modality.IMAGE, body=Body(), param="messages[0].content[1]")
    with pytest.raises(MeshError) as caught:
        plain_messages((Message(role="user", parts=(TextPart("what?"), part)),))
    assert caught.value.info.param == "messages[0].content[1]"


@pytest.mark.parametrize("own_file", [True, False])
def test_a_folder_s_template_is_found(tmp_path: Path, own_file: bool) -> None:
    config = {"eos_token": "</s>", "pad_token": None}
    if own_file:
        (tmp_path / "chat_template.jinja").write_text(SOURCE)
    else:
        config["chat_template"] = SOURCE
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    rendered = ChatTemplate.of_folder(tmp_path).render((said("user", "hi"),))
    assert rendered == "<user>hi</s>\n<assistant>"


def test_a_special_token_may_be_an_object(tmp_path: Path) -> None:
    config = {"eos_token": {"content": "</s>", "lstrip": False}, "chat_template": SOURCE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    rendered = ChatTemplate.of_folder(tmp_path).render((said("user", "hi"),))
    assert rendered == "<user>hi</s>\n<assistant>"


def test_a_folder_without_a_template_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="no chat template"):
        ChatTemplate.of_folder(tmp_path)
