"""The synthetic engine, giving everything at once."""

from services.stage_worker.engines.base import EngineConfig, ResumeContract, TextInput
from stagemesh.media import Modality
from tests.contract.engines.case import EngineCase

CASE = EngineCase(
    config=EngineConfig(
        pool="pool",
        replica_id="replica-0",
        model="",
        options={"gives": ["text", "audio", "image", "video", "tensor"], "slots": 64},
    ),
    wanted=frozenset(Modality),
    contract=ResumeContract.REPLAY,
    usual=TextInput(text='#synthetic {"tokens": 12, "each_ms": 1}'),
    lasting=TextInput(text='#synthetic {"tokens": 100000, "each_ms": 2}'),
    refused=TextInput(text="#synthetic {"),
    chunkings=(
        (
            TextInput(text=""),
            TextInput(text=" one", units=1),
            TextInput(text=" two three", units=2),
        ),
        (TextInput(text=""), TextInput(text=" one two three", units=3)),
        (TextInput(text=" one two", units=2), TextInput(text=" three", units=1)),
    ),
)
