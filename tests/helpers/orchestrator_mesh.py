"""A small mesh for the orchestrator's shell: a pipeline of one stage, and one of two."""

import msgspec

from stagemesh.media import Modality, Params, Sampling
from stagemesh.pipeline import Edge, EdgeMode, Limits, Mesh, Pipeline, Pool, Stage

__all__ = ["CONVERSING", "ECHO", "MESH", "TALK", "TALK_DEFAULTS", "with_deadline"]

ROOM = Limits(running_max=4096, waiting_max=4096)

ECHO = Pipeline(
    name="echo",
    revision="r-echo",
    stages=(Stage(index=0, name="thinker", pool="thinker", reads_input=True, choices=True),),
    outputs={Modality.TEXT: 0},
    inputs=frozenset({Modality.TEXT, Modality.AUDIO}),
    deadline_s=20.0,
    limits=ROOM,
)

TALK_DEFAULTS = Params(sampling=Sampling(tokens_max=512, temperature=0.5, stop=("###",)))

TALK = Pipeline(
    name="talk",
    revision="r-talk",
    stages=(
        Stage(
            index=0,
            name="thinker",
            pool="thinker",
            reads_input=True,
            bridge="chat",
            bridge_options={"system": "Be brief.", "turns_max": 3},
            params=TALK_DEFAULTS,
            choices=True,
        ),
        Stage(
            index=1,
            name="talker",
            pool="talker",
            reads_input=False,
            edges=(Edge(stage=0, modality=Modality.TEXT, mode=EdgeMode.STREAM),),
            bridge="clauses",
        ),
    ),
    outputs={Modality.TEXT: 0, Modality.AUDIO: 1},
    inputs=frozenset({Modality.TEXT}),
    limits=ROOM,
    aliases=("parrot",),
)

MESH = Mesh(
    pools={
        "thinker": Pool(name="thinker", engine="synthetic"),
        "talker": Pool(name="talker", engine="synthetic"),
    },
    pipelines={"echo": ECHO, "talk": TALK},
)


CONVERSING = msgspec.structs.replace(
    MESH,
    pipelines={
        **MESH.pipelines,
        "listen": Pipeline(
            name="listen",
            revision="r-listen",
            stages=(
                Stage(
                    index=0,
                    name="listener",
                    pool="thinker",
                    reads_input=True,
                    streamed=EdgeMode.STREAM,
                    bridge="script",
                ),
            ),
            outputs={Modality.TEXT: 0},
            inputs=frozenset({Modality.TEXT, Modality.AUDIO}),
            deadline_s=20.0,
            limits=ROOM,
        ),
    },
)
"""The same, and a stage that hears its client piece by piece."""


def with_deadline(mesh: Mesh, model: str, deadline_s: float) -> Mesh:
    """Give one pipeline of a mesh another deadline."""
    pipeline = msgspec.structs.replace(mesh.pipelines[model], deadline_s=deadline_s)
    return msgspec.structs.replace(mesh, pipelines={**mesh.pipelines, model: pipeline})
