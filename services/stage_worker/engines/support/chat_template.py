"""A model's own chat template: messages in, the prompt's text out."""

import json
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stagemesh.errors import invalid
from stagemesh.media import MediaPart, Message

__all__ = ["ChatTemplate", "plain_messages"]


def plain_messages(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    """Turn text messages into the mappings that templates read; `developer` reads as `system`.

    Raises:
        MeshError: If a message holds media, which no text model can read.
    """
    for index, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, MediaPart):
                param = part.param or f"messages[{index}].content"
                raise invalid(
                    f"this model cannot read {part.modality.name.lower()} here", param=param
                )
    return [
        {
            "role": "system" if message.role == "developer" else message.role,
            "content": message.text,
        }
        for message in messages
    ]


class ChatTemplate:
    """The Jinja template in a model's folder, run in a sandbox, as its publisher wrote it."""

    def __init__(self, source: str, special_tokens: dict[str, Any]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(source)
        self._special_tokens = special_tokens

    @classmethod
    def of_folder(cls, folder: Path) -> "ChatTemplate":
        """Read `chat_template.jinja`, else the template inside `tokenizer_config.json`.

        Raises:
            ValueError: If the folder has none.
        """
        config = json.loads((folder / "tokenizer_config.json").read_text())
        file = folder / "chat_template.jinja"
        source = file.read_text() if file.exists() else config.get("chat_template")
        if not source:
            raise ValueError(f"{folder} has no chat template")
        special = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in config.items()
            if name.endswith("_token") and value
        }
        return cls(source, special)

    def render(self, messages: tuple[Message, ...]) -> str:
        """Write the prompt that asks for the assistant's next message.

        Raises:
            MeshError: If the template refuses the messages, for example their order of roles.
        """
        try:
            return self._template.render(
                messages=plain_messages(messages),
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except TemplateError as error:
            raise invalid(
                f"the model's chat template refused: {error}", param="messages"
            ) from error


def _refuse(message: str) -> None:
    raise TemplateError(message)
