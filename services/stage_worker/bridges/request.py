"""What bridges read of a request."""

from stagemesh.media import MediaPart, Request

__all__ = ["last_user_text", "media_parts"]


def last_user_text(request: Request) -> str:
    """Give the text of the user's last message; empty if there is none."""
    for message in reversed(request.messages):
        if message.role == "user":
            return message.text
    return ""


def media_parts(request: Request) -> list[MediaPart]:
    """Give all media of a request, in order."""
    return [
        part
        for message in request.messages
        for part in message.parts
        if isinstance(part, MediaPart)
    ]
