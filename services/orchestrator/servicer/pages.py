"""Pages of requests, put together from the lists of several orchestrators."""

import base64
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import peer_service_pb2
from stagemesh.errors import invalid

__all__ = ["PAGE_MAX", "Mark", "page_of", "page_size", "read_token"]

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 200
TOKEN_CHARS_MAX: Final = 16_384


class Mark(NamedTuple):
    """How far the list of one orchestrator was given: only lower numbers follow."""

    incarnation: int
    before: int


Marks = Mapping[str, Mark]


def page_size(asked: int) -> int:
    """Give how many requests a page has at most."""
    return min(asked or PAGE_DEFAULT, PAGE_MAX)


def read_token(token: str) -> dict[str, Mark]:
    """Read how far each orchestrator's list was given, by its id.

    Raises:
        MeshError: If it is no token of ours.
    """
    if not token:
        return {}
    try:
        if len(token) > TOKEN_CHARS_MAX:
            raise ValueError("too long")
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=dict[str, Mark])
    except ValueError as error:  # Of base64 and of msgspec alike.
        raise invalid("It is no token that a page gave.", param="page_token") from error


def page_of(
    lists: Iterable[peer_service_pb2.ShowRequestsResponse], marks: Marks, size: int
) -> tuple[list[pb.RequestSummary], str]:
    """Merge lists, the requests opened last first; give a page and the token of the next.

    Where several orchestrators show a request, its last owner does; the others' lines are passed.
    """
    lists = list(lists)
    lines = sorted(
        (line for one in lists for line in one.requests), key=lambda line: line.opened_ago_s
    )
    owners: dict[str, int] = {}
    for line in lines:
        owners[line.request_id] = max(line.epoch, owners.get(line.request_id, 0))
    incarnations = {one.orchestrator_id: one.incarnation for one in lists}
    told = dict(marks)
    page: list[pb.RequestSummary] = []
    passed = 0
    for line in lines:
        owns = line.epoch == owners[line.request_id]
        if owns and len(page) == size:
            break
        passed += 1
        name = line.orchestrator_id
        told[name] = Mark(incarnations[name], line.number)
        if owns:
            page.append(line)
    # Who filled its list may have more; who did not has shown all.
    more = passed < len(lines) or any(len(one.requests) == size for one in lists)
    return page, _token(told) if more and page else ""


def _token(marks: Marks) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(marks)).decode("ascii")
