"""What the random tests of the worker's core draw from."""

from typing import Any, Final

from hypothesis import strategies as st

from services.stage_worker.core import RoleSpec, Source, Submission
from stagemesh.link.core import REQUEST_SOURCE
from stagemesh.media import Modality, Params, Request

__all__ = ["BEHAVIOURS", "LANES", "SOURCE", "STAGE", "seldom", "submission_of"]

STAGE: Final = 1
SOURCE: Final = REQUEST_SOURCE

LANES = st.sets(st.sampled_from([Modality.TEXT, Modality.IMAGE]), min_size=1)
BEHAVIOURS = st.sampled_from([*["starts"] * 8, "waits", "breaks", "has nothing"])


def seldom(n: int) -> st.SearchStrategy[bool]:
    """True once in `n` times; shrinks to False."""
    return st.integers(0, n - 1).map(lambda drawn: drawn == n - 1)


def submission_of(
    request_id: str, epoch: int, roles: tuple[RoleSpec, ...], **more: Any
) -> Submission:
    """Make a submission of one stage; every role reads the same source."""
    return Submission(
        request_id=request_id,
        epoch=epoch,
        stage=STAGE,
        stage_name="stage",
        roles=roles,
        sources=tuple(
            Source(lane=SOURCE, stage="source", companion="", choice=choice)
            for choice in range(len(roles))
        ),
        request=Request(model="m", messages=(), choices=len(roles)),
        params=Params(),
        bridge="script",
        bridge_options={},
        **more,
    )
