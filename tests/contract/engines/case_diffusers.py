"""The shapes model as a whole."""

from functools import partial

from services.stage_worker.engines.base import EngineConfig, ResumeContract, TensorsInput, TextInput
from stagemesh.media import Modality
from tests.contract.engines.case import EngineCase
from tests.helpers.engines import MODEL_MARKS, lacks

CASE = EngineCase(
    config=EngineConfig(
        pool="pool",
        replica_id="replica-0",
        model="shapes",
        options={"loader": "services.stage_worker.models.shapes.loader:load", "sizes": [[32, 32]]},
    ),
    wanted=frozenset({Modality.IMAGE}),
    contract=ResumeContract.REPLAY,
    usual=TextInput(text="a red star on a white background"),
    refused=TensorsInput(buffers={"": b"no tensors"}),
    marks=MODEL_MARKS,
    missing=partial(lacks, "shapes", "diffusers", "torch", "diffusers"),
)
