"""The text encoder of the shapes model."""

from functools import partial

from services.stage_worker.engines.base import AudioInput, EngineConfig, ResumeContract, TextInput
from stagemesh.media import Modality
from tests.contract.engines.case import EngineCase
from tests.helpers.engines import MODEL_MARKS, lacks

CASE = EngineCase(
    config=EngineConfig(
        pool="pool",
        replica_id="replica-0",
        model="shapes",
        options={
            "format": "diffusers",
            "model_folder": "text_encoder",
            "tokenizer_folder": "tokenizer",
            "pad_to_max": True,
        },
    ),
    wanted=frozenset({Modality.TENSOR}),
    contract=ResumeContract.REPLAY,
    usual=TextInput(text="a red star on a white background"),
    refused=AudioInput(data=b"", media_type="audio/wav"),
    marks=MODEL_MARKS,
    missing=partial(lacks, "shapes", "diffusers", "torch", "transformers"),
)
