"""A small English transcriber."""

from functools import partial

from services.stage_worker.engines.base import AudioInput, EngineConfig, ResumeContract
from stagemesh.media import Modality
from tests.contract.engines.case import EngineCase
from tests.helpers.engines import MODEL_MARKS, lacks, recording

CASE = EngineCase(
    config=EngineConfig(pool="pool", replica_id="replica-0", model="whisper-tiny.en"),
    wanted=frozenset({Modality.TEXT}),
    contract=ResumeContract.REPLAY,
    usual=recording(),
    lasting=recording(times=60),
    refused=AudioInput(data=b"no audio" * 100, media_type="audio/wav", param="file"),
    marks=MODEL_MARKS,
    missing=partial(lacks, "whisper-tiny.en", "ct2", "faster_whisper"),
)
