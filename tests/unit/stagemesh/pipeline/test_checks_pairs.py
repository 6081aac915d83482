"""Pairs of stages and constraints, in mesh files that get them wrong."""

import pytest

from tests.helpers.mesh_texts import mesh_text, problems_of

PAIR = """
m:
  stages:
    first: {pool: numbers}
    then: {pool: words, inputs: [input, {from: first, modality: tensor}], prefill: first}
  outputs: {text: then}
"""


def test_a_pair_is_sound() -> None:
    assert problems_of(mesh_text(PAIR)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "prefill: first",
            "prefill: fist",
            "then.prefill: no stage is called fist; did you mean first?",
        ),
        (
            "inputs: [input, {from: first, modality: tensor}], ",
            "inputs: [input], ",
            "then.prefill: then must read the tensor of first whole",
        ),
        ("[input, {from", "[{from", "then.prefill: then and first must both read input"),
        (
            "  outputs: {text: then}",
            "    more: {pool: sound, inputs: [{from: first, modality: tensor}]}\n"
            "  outputs: {text: then, audio: more}",
            "then.prefill: only then may read first",
        ),
        (
            "first: {pool: numbers}",
            "first: {pool: numbers, choices: true}",
            "first.choices: a stage that prefills has no choices",
        ),
        (
            "first: {pool: numbers}",
            "first: {pool: numbers, companions: [other]}",
            "first.companions: a stage that prefills has no companions",
        ),
        (
            "first: {pool: numbers}",
            "first: {pool: numbers, constraints: {sampling: {tokens_max: 4}}}",
            "first.constraints.sampling.tokens_max: that is laid down for a stage that prefills",
        ),
    ],
)
def test_what_is_wrong_with_a_pair_is_told(old: str, new: str, expected: str) -> None:
    problems = problems_of(mesh_text(PAIR.replace(old, new)))
    assert any(expected in problem for problem in problems), problems


def test_a_prefill_is_no_output_and_there_is_one_pair_at_most() -> None:
    text = mesh_text(
        """
        m:
          stages:
            first: {pool: anything, bridge: own}
            then:
              pool: anything
              bridge: own
              inputs: [input, {from: first, modality: tensor}]
              prefill: first
            last:
              pool: words
              inputs: [input, {from: then, modality: tensor}]
              prefill: then
          outputs: {text: last, audio: first}
        """
    )
    problems = "\n".join(problems_of(text))
    assert "first cannot be an output: it makes one token" in problems
    assert "a pipeline has room for one pair" in problems
    assert "then.prefill: a stage that prefills has no prefill" in problems


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (
            "constraints: {sampling: {temperature: {min: 1, max: 0.5}}}",
            "constraints.sampling.temperature: min must be at most max (0.5), not 1",
        ),
        (
            "constraints: {sampling: {tokens_max: {max: 5}}}",
            "constraints.sampling.tokens_max: bounds need a default: give tokens_max in params too",
        ),
        (
            "params: {sampling: {tokens_max: 9}}, constraints: {sampling: {tokens_max: {max: 5}}}",
            "constraints.sampling.tokens_max: the default in params (9) is out of these bounds",
        ),
        (
            "params: {sampling: {top_k: 1}}, constraints: {sampling: {top_k: {min: 2}}}",
            "constraints.sampling.top_k: the default in params (1) is out of these bounds",
        ),
        ("constraints: {sampling: {tokens_max: {}}}", "needs at least 1 entries"),
        ("constraints: {sampling: {tokens_max: {most: 1}}}", "unknown key"),
        ("constraints: {sampling: {tokens_max: x}}", "must be a whole number or a mapping, not x"),
        ("constraints: {sampling: {temperature: 3}}", "must be at most 2, not 3"),
        ("constraints: {sampling: {heat: 3}}", "unknown key"),
        ("join_s: 0", "must be at least 0.1, not 0"),
    ],
)
def test_what_is_wrong_with_a_constraint_is_told(stage: str, expected: str) -> None:
    text = mesh_text(f"m: {{stages: {{s: {{pool: words, {stage}}}}}, outputs: {{text: s}}}}")
    problems = problems_of(text)
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [
        ("{a: {weight: 0}}", "must be at least 0.001, not 0"),
        ("{a: {size: 1}}", "unknown key"),
        ("{a b: {}}", "not a name"),
        ("{}", "needs at least 1 entries"),
    ],
)
def test_what_is_wrong_with_a_tenant_is_told(tenants: str, expected: str) -> None:
    text = mesh_text("m: {stages: {s: {pool: words}}, outputs: {text: s}}")
    (problem,) = problems_of(f"{text}tenants: {tenants}\n")
    assert "tenants" in problem
    assert expected in problem
