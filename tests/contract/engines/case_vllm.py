"""The same small chat model on vLLM."""

from functools import partial

from services.stage_worker.engines.base import EngineConfig, ResumeContract, TextInput
from stagemesh.media import Modality, Sampling
from tests.contract.engines.case import EngineCase
from tests.helpers.engines import MODEL_MARKS, Vocabulary, chat, lacks

CASE = EngineCase(
    config=EngineConfig(
        pool="pool",
        replica_id="replica-0",
        model="smollm2-135m-instruct",
        options={"max_model_len": 2048, "enforce_eager": True},
    ),
    wanted=frozenset({Modality.TEXT}),
    contract=ResumeContract.TOKENS,
    usual=chat("What is the capital of France?"),
    lasting=chat("Tell me a very long story."),
    refused=TextInput(text="word " * 5000),
    vocabulary=Vocabulary("smollm2-135m-instruct", "hf"),
    uncounted=Sampling(presence_penalty=0.5),
    load_s=240.0,
    marks=MODEL_MARKS,
    missing=partial(lacks, "smollm2-135m-instruct", "hf", "vllm"),
)
