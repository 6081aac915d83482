"""An English voice; without its noise, so that the same clause is the same speech."""

from functools import partial

from services.stage_worker.engines.base import AudioInput, EngineConfig, ResumeContract, TextInput
from stagemesh.media import Modality
from tests.contract.engines.case import EngineCase
from tests.helpers.engines import MODEL_MARKS, lacks

CASE = EngineCase(
    config=EngineConfig(
        pool="pool",
        replica_id="replica-0",
        model="joe",
        options={"noise_scale": 0.0, "noise_w": 0.0},
    ),
    wanted=frozenset({Modality.AUDIO}),
    contract=ResumeContract.PER_INPUT,
    usual=TextInput(text="Good morning."),
    lasting=TextInput(text="One two three four five. " * 400),
    refused=AudioInput(data=b"", media_type="audio/wav"),
    chunkings=(
        (TextInput(text="Good morning, "), TextInput(text="Joe.")),
        (TextInput(text=""), TextInput(text="Good morning, "), TextInput(text="Joe.")),
        (TextInput(text="Good morning, "), TextInput(text="..."), TextInput(text="Joe.")),
    ),
    marks=MODEL_MARKS,
    missing=partial(lacks, "joe", "onnx", "onnxruntime", "misaki"),
)
