from typing import Any

import pytest

from stagemesh.pipeline.document import BYTES_MAX, DEPTH_MAX, read_document


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("2026-01-01", "2026-01-01"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars_are_those_of_the_core_schema(scalar: str, value: Any) -> None:
    document, problems = read_document(f"key: {scalar}")
    assert problems == []
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_each_path_has_the_line_of_its_key_or_item() -> None:
    document, _ = read_document("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n")
    assert document.line(("a",)) == 1
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "c", 1)) == 5
    assert document.line(("a", "c", 1, "y")) == 5


def test_a_path_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    document, _ = read_document("a:\n  b: 1\n")
    assert document.line(("a", "b", "nowhere")) == 2
    assert document.line(()) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: a: given twice, first on line 1; one has to go"),
        ("a: {1: x}", "line 1: a: the key '1' is not a word; write it in quotes, on one line"),
        ('"a\\n": x', "line 1: the key 'a\\n' is not a word; write it in quotes, on one line"),
        ("? [a]\n: x", "line 1: the key 'here' is not a word; write it in quotes, on one line"),
        ("a: &x 1", "line 1: anchors (&x) are not allowed"),
        ("a: !!python/object:os.system x", "tags (tag:yaml.org,2002:python/object:os.system)"),
        ("a: !mine x", "line 1: tags (!mine) are not allowed"),
        ("a: 1\n\tb: 2", "line 2: not YAML: found character '\\t' that cannot start any token"),
        ("a: [1,\n", "line 2: not YAML: expected the node content, but found '<stream end>'"),
        ("a: 1\n---\nb: 2", "line 2: not YAML: but found another document"),
        ("a: \x00", "not YAML: unacceptable character #x0000"),
        ("", "line 1: the file is empty; it needs `pools` and `pipelines`"),
        ("# only words\n", "line 1: the file is empty; it needs `pools` and `pipelines`"),
        ("[" * (DEPTH_MAX + 1), f"line 1: nested deeper than {DEPTH_MAX} levels"),
        ("[" * 100_000, f"line 1: nested deeper than {DEPTH_MAX} levels"),
        ("#" * (BYTES_MAX + 1), f"line 1: the file is larger than {BYTES_MAX} bytes"),
    ],
)
def test_what_surprises_is_refused(text: str, expected: str) -> None:
    _, problems = read_document(text)
    assert len(problems) == 1
    assert expected in str(problems[0])


def test_every_anchor_and_alias_is_named() -> None:
    _, problems = read_document("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n")
    assert [str(problem) for problem in problems] == [
        "line 1: anchors (&x) are not allowed",
        "line 2: aliases (*x) are not allowed; write it out",
        "line 4: aliases (*x) are not allowed; write it out",
    ]
