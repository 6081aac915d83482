"""A small chat model on CTranslate2."""

from functools import partial

from services.stage_worker.engines.base import EngineConfig, ResumeContract, TextInput
from stagemesh.media import Modality, Sampling
from tests.contract.engines.case import EngineCase
from tests.helpers.engines import MODEL_MARKS, Vocabulary, chat, lacks

CASE = EngineCase(
    config=EngineConfig(pool="pool", replica_id="replica-0", model="smollm2-135m-instruct"),
    wanted=frozenset({Modality.TEXT}),
    contract=ResumeContract.TOKENS,
    usual=chat("What is the capital of France?"),
    lasting=chat("Tell me a very long story."),
    refused=TextInput(text="word " * 5000),
    vocabulary=Vocabulary("smollm2-135m-instruct", "ct2-int8"),
    uncounted=Sampling(repetition_penalty=1.3),
    marks=MODEL_MARKS,
    missing=partial(lacks, "smollm2-135m-instruct", "ct2-int8", "ctranslate2"),
)
