import json
from pathlib import Path

import jsonschema

from stagemesh.pipeline import mesh_schema

PUBLISHED = Path("docs/reference/mesh.schema.json")


def test_the_published_schema_is_the_one_in_use() -> None:
    # `stagemesh schema > docs/reference/mesh.schema.json` makes it anew.
    assert json.loads(PUBLISHED.read_text()) == mesh_schema()


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(mesh_schema())


def test_every_property_says_what_it_is() -> None:
    silent = []

    def walk(name: str, schema: object) -> None:
        if not isinstance(schema, dict):
            return
        for key, value in schema.get("properties", {}).items():
            if not (value.get("description") or "enum" in value):
                silent.append(f"{name}.{key}")
            walk(f"{name}.{key}", value)
        for inner in ("additionalProperties", "items"):
            walk(name, schema.get(inner))

    walk("", mesh_schema())
    assert silent == []
