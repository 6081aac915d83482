"""The JSON Schema of a mesh file: shapes, names and ranges.

What a schema cannot say (that an edge's source exists, that there is no cycle) is in `checks`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stagemesh.media import Modality

__all__ = ["MODALITIES", "MODEL_NAME", "VARIABLE", "WORD", "mesh_schema"]

WORD: Final = "^[a-z][a-z0-9]*([_-][a-z0-9]+)*$"
VARIABLE: Final = "^[A-Za-z_][A-Za-z0-9_]*$"
MODEL_NAME: Final = "^[A-Za-z0-9]([A-Za-z0-9._/:-]*[A-Za-z0-9])?$"

_Schema = dict[str, Any]

MODALITIES: Final = tuple(modality.name.lower() for modality in Modality)
CLIENT_MODALITIES: Final = tuple(name for name in MODALITIES if name != "tensor")


def mesh_schema() -> _Schema:
    """Make the JSON Schema (draft 2020-12) of a mesh file."""
    pools = _named(_pool(), word_max=40, max_entries=256)
    pipelines = _named(_pipeline(), pattern=MODEL_NAME, word_max=128, max_entries=256)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://stagemesh.dev/schemas/mesh.schema.json",
        "title": "StageMesh mesh file",
        **_object(
            "Pools of stage workers, and the pipelines that they serve.",
            {
                "pools": {
                    **pools,
                    "description": "Sets of interchangeable stage workers, by name.",
                },
                "pipelines": {**pipelines, "description": "What clients see as models, by name."},
                "tenants": {
                    **_named(_tenant(), pattern=MODEL_NAME, word_max=128, max_entries=4096),
                    "description": "Who shares the mesh, by name; others have weight 1.",
                },
            },
            needs=["pools", "pipelines"],
        ),
    }


def _pool() -> _Schema:
    return _object(
        "Interchangeable stage workers that run one engine configuration.",
        {
            "engine": _word("The engine, as its entry point in `stagemesh.engines` is called."),
            "replicas": _integer("How many workers.", 1, 1024, default=1),
            "model": _string(
                "A model's name, or the path of one below a configured root.", 1, 4096
            ),
            "options": {"type": "object", "description": "What the engine itself understands."},
            "replica_choice": {
                "type": "string",
                "enum": ["least_loaded", "prefix_affinity", "round_robin"],
                "default": "least_loaded",
                "description": "Which replica a request gets; it stays there.",
            },
            "companions": {
                "type": "string",
                "enum": ["apart", "together"],
                "default": "together",
                "description": "Whether companions must share the replica of what they belong to.",
            },
            "env": {
                "type": "object",
                "description": "Environment variables of the workers.",
                "propertyNames": {"pattern": VARIABLE},
                "additionalProperties": {"type": "string"},
            },
        },
        needs=["engine"],
    )


def _pipeline() -> _Schema:
    outputs = _object(
        "Which stage gives the client each modality.",
        {name: _word(f"The stage that gives {name}.") for name in CLIENT_MODALITIES},
    )
    outputs["minProperties"] = 1
    return _object(
        "A graph of stages, published as a model.",
        {
            "stages": {
                **_named(_stage(), word_max=40, max_entries=64),
                "description": "The nodes.",
            },
            "outputs": outputs,
            "aliases": _list(
                "More names of the model.",
                {"type": "string", "pattern": MODEL_NAME, "maxLength": 128},
                items_max=32,
            ),
            "accepts": _list(
                "What clients may send; by default what the stages read and ask for by `when`.",
                {"type": "string", "enum": list(CLIENT_MODALITIES)},
                items_min=1,
            ),
            "deadline_s": _number("How long a request may take unless it says so.", 0.1, 86_400),
            "limits": _object(
                "Admission limits, as totals of the whole mesh.",
                {
                    "running_max": _integer("Requests that run at once.", 1, 1_000_000),
                    "waiting_max": _integer("Requests that wait to run.", 0, 1_000_000),
                    "input_bytes_max": _integer("Bytes of their input.", 1, 1 << 40),
                    "tenant_running_max": _integer(
                        "Requests of one tenant that run at once.", 1, 1_000_000
                    ),
                    "tenant_waiting_max": _integer(
                        "Requests of one tenant that wait to run.", 0, 1_000_000
                    ),
                    "tenant_input_bytes_max": _integer(
                        "Bytes of the input of one tenant's requests.", 1, 1 << 40
                    ),
                },
            ),
        },
        needs=["stages", "outputs"],
    )


def _tenant() -> _Schema:
    return _object(
        "One tenant.",
        {"weight": _number("Its share where tenants wait, against others'.", 0.001, 1000)},
    )


def _stage() -> _Schema:
    return _object(
        "One node of a pipeline.",
        {
            "pool": _word("The pool that runs it."),
            "inputs": _list("What it reads: `input`, and other stages.", _edge(), items_min=1),
            "bridge": _word("How its sources become its engine's input."),
            "bridge_options": {
                "type": "object",
                "description": "What the bridge itself understands.",
            },
            "params": _params(),
            "constraints": _constraints(),
            "comprehends": {
                "type": "boolean",
                "description": "Whether it gets what a client says of tokens without naming a"
                " stage; where no stage says so, the first that reads input whole and gives text"
                " does.",
            },
            "prefill": _word(
                "The stage that reads the prompt for this one, as a single token, and hands it"
                " over; this one reads its tensor, and the prompt."
            ),
            "when": {
                "type": "string",
                "enum": [f"input.{name}" for name in CLIENT_MODALITIES],
                "description": "Leave the stage out unless the client sent this.",
            },
            "companions": _list(
                "Extra runs for the same request, joined at the stages that read from this one.",
                _word("A companion's name."),
                items_max=8,
            ),
            "join_s": _number(
                "How long companions may go on once the stage itself has ended.", 0.1, 86_400
            ),
            "choices": {
                "type": "boolean",
                "description": "Whether a request for n choices fans out here.",
            },
        },
        needs=["pool"],
    )


def _edge() -> _Schema:
    # One schema for both forms: each keyword minds only the type that it is about.
    long_form = _object(
        "A stage's name, or how its result is read; `input` may be read as it is streamed.",
        {
            "mode": {"type": "string", "enum": ["whole", "stream", "segment"], "default": "whole"},
            "modality": {"type": "string", "enum": list(MODALITIES), "default": "text"},
            **{"from": _word("The stage that is read.")},
        },
        needs=["from"],
    )
    return {**long_form, "type": ["string", "object"], "pattern": WORD, "maxLength": 40}


def _params() -> _Schema:
    return _object(
        "What a request gets where it does not say.",
        {
            "sampling": _object(
                "How tokens are drawn.",
                {
                    "tokens_max": _integer("Tokens at most.", 1, 1_000_000),
                    "tokens_min": _integer("Tokens at least.", 0, 1_000_000),
                    "temperature": _number("0 is greedy.", 0, 2),
                    "top_p": _number(
                        "Mass of the tokens that may be drawn.", 0, 1, open_below=True
                    ),
                    "top_k": _integer("How many tokens may be drawn; 0 means all.", 0, 1_000_000),
                    "min_p": _number("Least probability, as a part of the greatest.", 0, 1),
                    "frequency_penalty": _number("Against repeating often.", -2, 2),
                    "presence_penalty": _number("Against repeating at all.", -2, 2),
                    "repetition_penalty": _number("A factor; 1 is none.", 0, 10, open_below=True),
                    "stop": _list(
                        "Texts that end the output.", _string("A text.", 1, 256), items_max=16
                    ),
                    "ignore_eos": {
                        "type": "boolean",
                        "description": "Whether to run on past the end token.",
                    },
                },
            ),
            "audio": _object(
                "How speech is made or heard.",
                {
                    "voice": _string("A voice's name.", 1, 128),
                    "speed": _number("1 is as recorded.", 0.25, 4),
                    "language": _string("A language tag, such as en.", 1, 35),
                },
            ),
            "image": _object(
                "How images are made.",
                {
                    "width": _integer("Pixels.", 1, 16_384),
                    "height": _integer("Pixels.", 1, 16_384),
                    "steps": _integer("Steps of the sampler.", 1, 1000),
                    "guidance_scale": _number("How much the prompt counts.", 0, 100),
                },
            ),
        },
    )


def _constraints() -> _Schema:
    """Every field of `params`; a number as itself, or as bounds that it is moved into."""
    groups = _params()["properties"]
    return _object(
        "What holds whatever anybody wishes: a value, or bounds (min, max) for a number.",
        {
            name: _object(
                group["description"],
                {field: _bounded(schema) for field, schema in group["properties"].items()},
            )
            for name, group in groups.items()
        },
    )


def _bounded(value: _Schema) -> _Schema:
    if value["type"] not in ("integer", "number"):
        return value
    # One schema for both forms, as in `_edge`.
    bounds = _object(
        value["description"],
        {
            "min": {**value, "description": "What is less becomes this."},
            "max": {**value, "description": "What is more becomes this."},
        },
    )
    return {**value, **bounds, "type": [value["type"], "object"], "minProperties": 1}


def _object(
    description: str, properties: Mapping[str, _Schema], needs: Sequence[str] = ()
) -> _Schema:
    schema: _Schema = {
        "type": "object",
        "description": description,
        "properties": dict(properties),
        "additionalProperties": False,
    }
    return {**schema, "required": list(needs)} if needs else schema


def _named(entry: _Schema, *, pattern: str = WORD, word_max: int, max_entries: int) -> _Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": pattern, "maxLength": word_max},
        "additionalProperties": entry,
        "minProperties": 1,
        "maxProperties": max_entries,
    }


def _word(description: str) -> _Schema:
    return {"type": "string", "pattern": WORD, "maxLength": 40, "description": description}


def _string(description: str, length_min: int, length_max: int) -> _Schema:
    return {
        "type": "string",
        "minLength": length_min,
        "maxLength": length_max,
        "description": description,
    }


def _integer(description: str, least: int, most: int, *, default: int | None = None) -> _Schema:
    schema: _Schema = {
        "type": "integer",
        "minimum": least,
        "maximum": most,
        "description": description,
    }
    return schema if default is None else {**schema, "default": default}


def _number(description: str, least: float, most: float, *, open_below: bool = False) -> _Schema:
    bound = "exclusiveMinimum" if open_below else "minimum"
    return {"type": "number", bound: least, "maximum": most, "description": description}


def _list(description: str, items: _Schema, *, items_min: int = 0, items_max: int = 64) -> _Schema:
    return {
        "type": "array",
        "description": description,
        "items": items,
        "minItems": items_min,
        "maxItems": items_max,
        "uniqueItems": True,
    }
