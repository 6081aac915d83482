"""What the one suite for all engines needs to know of an engine; `case_<name>.py` tells it."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from services.stage_worker.engines.base import (
    EngineConfig,
    EngineInput,
    Resume,
    ResumeContract,
    Work,
)
from stagemesh.media import Modality, Params, Sampling
from tests.helpers.engines import Vocabulary

__all__ = ["EngineCase", "for_cases", "work"]


class EngineCase(msgspec.Struct, frozen=True, kw_only=True):
    """One engine under test.

    `contract` is the one by which it says that it goes on after a loss.
    `usual` is an input that it answers, within seconds. `lasting` is one that keeps it busy until
    it is aborted; `refused` is one that it must refuse with a client's error; None if it has no
    such. `chunkings` are ways to cut one streamed input, which must all give the same result.
    `vocabulary` is that of an engine that goes on by its tokens, and `uncounted` what it cannot
    then take into account. `marks` are for engines that need weights or a device.
    """

    config: EngineConfig
    wanted: frozenset[Modality]
    contract: ResumeContract
    usual: EngineInput
    params: Params = Params(sampling=Sampling(tokens_max=16, temperature=0.0))
    lasting: EngineInput | None = None
    lasting_params: Params = Params(sampling=Sampling(tokens_max=4096, ignore_eos=True))
    refused: EngineInput | None = None
    chunkings: Sequence[Sequence[EngineInput]] = ()
    vocabulary: Vocabulary | None = None
    uncounted: Sampling | None = None
    load_s: float = 60.0
    answer_s: float = 60.0
    marks: tuple[pytest.MarkDecorator, ...] = ()
    missing: Callable[[], str] = str
    """Gives the reason why it cannot run here, or nothing."""


def for_cases(applies: Callable[[EngineCase], object]) -> pytest.MarkDecorator:
    """Run a test of the suite with those engines only that it says something about."""
    return pytest.mark.for_cases(applies=applies)


def work(
    case: EngineCase,
    attempt: int,
    given: EngineInput,
    *,
    params: Params | None = None,
    streamed: bool = False,
    resume: Resume | None = None,
) -> Work:
    """Make an attempt of a case."""
    return Work(
        attempt=attempt,
        request_id=f"req_{attempt}",
        stage="stage",
        companion="",
        choice=0,
        seed=7,
        seed_explicit=True,
        params=params or case.params,
        wanted=case.wanted,
        ids_wanted=True,
        input=given,
        streamed=streamed,
        resume=resume,
    )
