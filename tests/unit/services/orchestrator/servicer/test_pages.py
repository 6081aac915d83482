"""Pages of requests from several orchestrators."""

from collections.abc import Sequence

import pytest

from services.orchestrator.servicer.pages import Mark, page_of, page_size, read_token
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import peer_service_pb2
from stagemesh.errors import MeshError


class Owner:
    """An orchestrator's requests, by number; each was opened `ago` seconds ago."""

    def __init__(self, name: str, ago: Sequence[float], incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.lines = [
            pb.RequestSummary(
                request_id=f"{name}{number}",
                orchestrator_id=name,
                opened_ago_s=one,
                number=number,
                epoch=1,
            )
            for number, one in enumerate(ago, start=1)
        ]

    def shown(self, marks: dict[str, Mark], count: int) -> peer_service_pb2.ShowRequestsResponse:
        """Answer as an orchestrator does."""
        befores = {mark.incarnation: mark.before for mark in marks.values()}
        before = befores.get(self.incarnation, 1 << 60)
        lines = [line for line in reversed(self.lines) if line.number < before]
        return peer_service_pb2.ShowRequestsResponse(
            requests=lines[:count], orchestrator_id=self.name, incarnation=self.incarnation
        )


def all_pages(owners: Sequence[Owner], size: int) -> list[list[str]]:
    pages: list[list[str]] = []
    token = ""
    while not pages or token:
        marks = read_token(token)
        page, token = page_of([owner.shown(marks, size) for owner in owners], marks, size)
        pages.append([line.request_id for line in page])
        assert len(pages) < 20
    return pages


@pytest.mark.parametrize("size", [1, 2, 3, 5, 50])
def test_every_request_is_on_one_page_the_last_first(size: int) -> None:
    owners = [Owner("a", [9, 7, 3, 1], 1), Owner("b", [8, 2], 2), Owner("c", [], 3)]
    pages = all_pages(owners, size)
    assert [name for page in pages for name in page] == ["a4", "b2", "a3", "a2", "b1", "a1"]
    assert all(len(page) <= size for page in pages)


def test_of_a_request_with_two_owners_the_last_one_speaks() -> None:
    one, two = Owner("a", [5, 4], 1), Owner("b", [3], 2)
    two.lines[0].request_id, two.lines[0].epoch = "a1", 2
    page, token = page_of([one.shown({}, 10), two.shown({}, 10)], {}, 10)
    assert [(line.request_id, line.orchestrator_id) for line in page] == [("a1", "b"), ("a2", "a")]
    assert token == ""


def test_a_page_that_is_only_just_full_does_not_leave_the_rest_out() -> None:
    pages = all_pages([Owner("a", [4, 3, 2, 1])], 2)
    assert [len(page) for page in pages[:2]] == [2, 2]


def test_who_has_started_anew_is_listed_anew() -> None:
    old = Owner("a", [4, 3], 1)
    _, token = page_of([old.shown({}, 1)], {}, 1)
    marks = read_token(token)
    new = Owner("a", [0.5], 9)
    page, _ = page_of([new.shown(marks, 1)], marks, 1)
    assert [line.request_id for line in page] == ["a1"]


def test_a_page_has_a_size_whatever_is_asked() -> None:
    assert [page_size(asked) for asked in (0, 1, 200, 4_000_000_000)] == [50, 1, 200, 200]


@pytest.mark.parametrize(
    "token", ["x", "!!!", "e30x", "AAAA", "WzFd", "x" * 20_000, "eyJhIjoxfQ=="]
)
def test_a_token_that_no_page_gave_is_refused_by_name(token: str) -> None:
    with pytest.raises(MeshError) as caught:
        read_token(token)
    assert caught.value.info.param == "page_token"


def test_no_token_is_the_first_page() -> None:
    assert read_token("") == {}
