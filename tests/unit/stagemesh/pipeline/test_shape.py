import pytest

from stagemesh.pipeline.shape import nearest
from tests.helpers.mesh_texts import problems_of

PIPELINES = "pipelines: {a: {stages: {s: {pool: p}}, outputs: {text: s}}}\n"


def pool(text: str) -> list[str]:
    return problems_of(f"pools: {{p: {text}}}\n{PIPELINES}")


def stage(text: str) -> list[str]:
    return problems_of(
        "pools: {p: {engine: synthetic}}\n"
        "pipelines:\n"
        "  a:\n"
        "    stages:\n"
        f"      s: {text}\n"
        "    outputs: {text: s}\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{engin: synthetic}",
            ["key engine is missing", "engin: unknown key; did you mean engine?"],
        ),
        ("{}", ["the key engine is missing"]),
        ("", ["must be a mapping, not nothing"]),
        ("vllm", ["must be a mapping, not vllm"]),
        ("{engine: 3}", ["engine: must be a word or text, not 3; write it in quotes"]),
        ("{engine: A B}", ["engine: A B must be lower-case letters and digits"]),
        ("{engine: synthetic, replicas: 0}", ["replicas: must be at least 1, not 0"]),
        ("{engine: synthetic, replicas: 9999}", ["replicas: must be at most 1024, not 9999"]),
        ("{engine: synthetic, replicas: 1.5}", ["replicas: must be a whole number, not 1.5"]),
        ("{engine: synthetic, replicas: true}", ["replicas: must be a whole number, not true"]),
        ("{engine: synthetic, model: ''}", ["model: needs at least 1 characters"]),
        ("{engine: synthetic, env: {A: 1}}", ["env.A: must be a word or text, not 1; write"]),
        (
            "{engine: synthetic, env: {1A: x}}",
            ["env.1A: not a name: 1A must be letters, digits and _, beginning"],
        ),
        ("{engine: synthetic, options: [a]}", ["options: must be a mapping, not a list"]),
    ],
)
def test_a_pool_of_the_wrong_shape_is_explained(text: str, expected: list[str]) -> None:
    problems = pool(text)
    assert len(problems) == len(expected)
    for problem, part in zip(problems, expected, strict=True):
        assert problem.startswith("line 1: pools.p")
        assert part in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{pool: p, inputs: []}", "inputs: needs at least 1 entries"),
        ("{pool: p, inputs: [input, input]}", "inputs: says the same thing twice"),
        ("{pool: p, inputs: [3]}", "inputs[0]: must be a word or text or a mapping, not 3"),
        ("{pool: p, inputs: [{mode: whole}]}", "inputs[0]: the key from is missing"),
        (
            "{pool: p, inputs: [{from: input, mode: segments}]}",
            "inputs[0].mode: must be one of whole, stream, segment, not segments; "
            "did you mean segment?",
        ),
        (
            "{pool: p, when: input.smell}",
            "when: must be one of input.text, input.audio, input.image, input.video, "
            "not input.smell",
        ),
        (
            "{pool: p, when: input.audo}",
            "when: must be one of input.text, input.audio, input.image, input.video, "
            "not input.audo; did you mean input.audio?",
        ),
        ("{pool: p, when: input.tensor}", "when: must be one of input.text, input.audio, "),
        ("{pool: p, companions: [a, a]}", "companions: says the same thing twice"),
        ("{pool: p, choices: 1}", "choices: must be true or false, not 1"),
        ("{pool: p, params: {sampling: {top_p: 0}}}", "top_p: must be above 0, not 0"),
        ("{pool: p, params: {sampling: {temperature: -1}}}", "must be at least 0, not -1"),
        ("{pool: p, params: {sampling: {stop: x}}}", "stop: must be a list, not x"),
        ("{pool: p, params: {audio: {speed: 9}}}", "speed: must be at most 4, not 9"),
        ("{pool: p, params: {image: {steps: 0}}}", "steps: must be at least 1, not 0"),
        ("{pool: p, params: {samplng: {}}}", "samplng: unknown key; did you mean sampling?"),
    ],
)
def test_a_stage_of_the_wrong_shape_is_explained(text: str, expected: str) -> None:
    problems = stage(text)
    assert len(problems) == 1
    assert problems[0].startswith("line 5: pipelines.a.stages.s")
    assert expected in problems[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("just words", ["line 1: must be a mapping, not just words"]),
        ("[a, b]", ["line 1: must be a mapping, not a list"]),
        ("null", ["line 1: the file says nothing; it needs `pools` and `pipelines`"]),
        (
            "pools: {p: {engine: synthetic}}",
            ["line 1: the key pipelines is missing"],
        ),
        (
            "pools: {}\n" + PIPELINES,
            [
                "line 1: pools: needs at least 1 entries",
                "line 2: pipelines.a.stages.s.pool: no pool is called p; there is none",
            ],
        ),
        (
            "pools: {p: {engine: synthetic}}\npipelines: {-a: {}}",
            [
                "line 2: pipelines.-a: not a name: -a must be letters, digits and . _ / : - "
                "between them",
                "line 2: pipelines.-a: the key outputs is missing",
                "line 2: pipelines.-a: the key stages is missing",
            ],
        ),
    ],
)
def test_a_file_of_the_wrong_shape_is_explained(text: str, expected: list[str]) -> None:
    assert problems_of(text) == expected


def test_a_long_value_is_cut_in_messages() -> None:
    (problem,) = pool(f"{{engine: synthetic, replicas: {'x' * 500}}}")
    assert problem.endswith(f"not {'x' * 60}...")


def test_the_nearest_name_is_suggested_or_what_there_is() -> None:
    assert nearest("thinkr", ["thinker", "talker"]) == "; did you mean thinker?"
    assert nearest("zzz", ["b", "a"]) == "; there is a, b"
    assert nearest("zzz", []) == "; there is none"
    assert nearest("zzz", [f"p{n}" for n in range(9)]).endswith("p7 and more")
