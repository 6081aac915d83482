import pytest

from tests.helpers.mesh_texts import mesh_text, problems_of


@pytest.mark.parametrize(
    ("pipelines", "expected"),
    [
        pytest.param(
            """
            m:
              stages:
                input: {pool: words}
              outputs: {text: input}
            """,
            ["line 11: pipelines.m.stages.input: no stage may be called input: that is what the "
             "client sent"],
            id="a-stage-called-input",
        ),
        pytest.param(
            """
            m:
              stages: {s: {pool: wordz}}
              outputs: {text: s}
            """,
            ["line 10: pipelines.m.stages.s.pool: no pool is called wordz; did you mean words?"],
            id="a-missing-pool",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: words, inputs: [thinker]}
              outputs: {text: s}
            """,
            ["line 11: pipelines.m.stages.s.inputs[0]: no stage is called thinker; there is s"],
            id="an-edge-from-nowhere",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: words, inputs: [{from: input, mode: whole}]}
                t: {pool: words, inputs: [s, {from: input, modality: text, mode: stream}]}
              outputs: {text: t}
            """,
            ["line 11: pipelines.m.stages.s.inputs[0]: what the client sent is read by the word "
             "input alone, or with the mode stream or segment and no modality",
             "line 12: pipelines.m.stages.t.inputs[1]: what the client sent is read by the word "
             "input alone, or with the mode stream or segment and no modality"],
            id="input-in-a-way-that-it-cannot-be-read",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: words, inputs: [input, {from: input, mode: stream}]}
              outputs: {text: s}
            """,
            ["line 11: pipelines.m.stages.s.inputs[1]: reads what the client sent twice"],
            id="input-twice",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: words}
                t: {pool: words, inputs: [{from: s, mode: segment}]}
              outputs: {text: t}
            """,
            ["line 12: pipelines.m.stages.t.inputs[0]: s gives no segments: no streamed input "
             "leads to it by segments"],
            id="segments-of-what-has-none",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: words, inputs: [{from: input, mode: segment}]}
                t: {pool: words, inputs: [{from: input, mode: segment}, {from: s, mode: stream}]}
              outputs: {text: t}
            """,
            ["line 12: pipelines.m.stages.t.inputs: reads one thing by segments, so it must read "
             "everything else whole"],
            id="segments-beside-a-stream",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: words, inputs: [{from: input, mode: segment}], companions: [negative]}
                t: {pool: words, inputs: [s]}
              outputs: {text: t}
            """,
            ["line 11: pipelines.m.stages.s.companions: has companions, and cannot run once for "
             "each segment"],
            id="segments-with-companions",
        ),
        pytest.param(
            """
            m:
              stages:
                s: {pool: anything, bridge: b, inputs: [{from: input, mode: segment}]}
              outputs: {text: s, audio: s}
            """,
            ["line 11: pipelines.m.stages.s: runs once for each segment, and so gives one modality "
             "only"],
            id="segments-of-two-kinds",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words, inputs: [c]}
                b: {pool: words, inputs: [a]}
                c: {pool: words, inputs: [b]}
              outputs: {text: c}
            """,
            ["line 12: pipelines.m.stages.b: reads its own result: b -> c -> a -> b"],
            id="a-cycle",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words, inputs: [input, a]}
              outputs: {text: a}
            """,
            ["line 11: pipelines.m.stages.a: reads its own result: a -> a"],
            id="a-stage-that-reads-itself",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words}
                b: {pool: sound, inputs: [{from: a, modality: image}]}
              outputs: {audio: b}
            """,
            ["line 12: pipelines.m.stages.b.inputs[0]: a gives text, not image"],
            id="an-edge-of-an-impossible-modality",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words}
                b: {pool: sound, inputs: [a, {from: a, mode: stream}]}
              outputs: {audio: b}
            """,
            ["line 12: pipelines.m.stages.b.inputs[1]: reads the text of a twice"],
            id="two-edges-for-one-lane",
        ),
        pytest.param(
            """
            m:
              stages: {a: {pool: words}}
              outputs: {text: b, audio: a}
            """,
            ["line 11: pipelines.m.outputs.audio: a gives text, not audio",
             "line 11: pipelines.m.outputs.text: no stage is called b; there is a"],
            id="outputs-that-no-stage-gives",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words}
                b: {pool: sound, inputs: [a]}
              outputs: {text: a}
            """,
            ["line 12: pipelines.m.stages.b: no output needs this stage"],
            id="a-stage-that-no-output-needs",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words, choices: true}
                b: {pool: words, inputs: [a]}
                c: {pool: sound, inputs: [b], choices: true}
              outputs: {audio: c}
            """,
            ["line 13: pipelines.m.stages.c.choices: choices fan out at a already"],
            id="choices-twice-on-one-path",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: numbers, companions: [negative]}
                b: {pool: pictures, inputs: [{from: a, modality: tensor, mode: stream}]}
              outputs: {image: b}
            """,
            ["line 11: pipelines.m.stages.a.companions: no stage reads the tensor or the text of a "
             "whole, to join them",
             "line 12: pipelines.m.stages.b.inputs[0]: a has companions, which are joined whole; "
             "mode must be whole"],
            id="companions-that-are-streamed",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: sound, companions: [other]}
                b: {pool: pictures, inputs: [{from: a, modality: audio}]}
              outputs: {image: b}
            """,
            ["line 11: pipelines.m.stages.a.companions: no stage reads the tensor or the text of a "
             "whole, to join them"],
            id="companions-that-nobody-joins",
        ),
        pytest.param(
            """
            m:
              accepts: [text]
              stages:
                ear: {pool: words, when: input.audio}
                a: {pool: words, inputs: [input, ear]}
              outputs: {text: a}
            """,
            ["line 12: pipelines.m.stages.ear.when: clients may not send this: accepts has no "
             "audio"],
            id="when-of-what-nobody-may-send",
        ),
        pytest.param(
            """
            m:
              stages:
                ear: {pool: words, when: input.audio}
                a: {pool: words, inputs: [ear]}
              outputs: {text: a}
            """,
            ["line 12: pipelines.m.stages.a.inputs: every source may be left out (when); add input "
             "or the same when"],
            id="a-stage-that-may-be-left-without-input",
        ),
        pytest.param(
            """
            m:
              stages:
                ear: {pool: words, when: input.audio}
              outputs: {text: ear}
            """,
            ["line 12: pipelines.m.outputs.text: ear may be left out (when), so it cannot be an "
             "output"],
            id="an-output-that-may-be-left-out",
        ),
        pytest.param(
            """
            m:
              stages:
                a: {pool: words, params: {sampling: {tokens_min: 9, tokens_max: 8}}}
              outputs: {text: a}
            """,
            ["line 11: pipelines.m.stages.a.params.sampling.tokens_min: must be at most "
             "tokens_max (8), not 9"],
            id="bounds-that-cross",
        ),
        pytest.param(
            """
            m:
              stages: {a: {pool: anything}}
              outputs: {text: a}
            """,
            ["line 10: pipelines.m.stages.a: the key bridge is missing: theirs has no default"],
            id="a-foreign-engine-without-a-bridge",
        ),
        pytest.param(
            """
            m:
              aliases: [m, n, gpt]
              stages: {a: {pool: words}}
              outputs: {text: a}
            n:
              aliases: [gpt]
              stages: {a: {pool: words}}
              outputs: {text: a}
            """,
            ["line 10: pipelines.m.aliases[0]: m is the pipeline's own name",
             "line 10: pipelines.m.aliases[1]: n is the name of a pipeline already",
             "line 14: pipelines.n.aliases[0]: gpt is an alias of m already"],
            id="names-that-clash",
        ),
    ],
)  # fmt: skip
def test_a_rule_that_is_broken_is_told_with_its_line(pipelines: str, expected: list[str]) -> None:
    assert problems_of(mesh_text(pipelines)) == expected


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("{engine: vllm}", "the key model is missing: vllm has nothing to load"),
        (
            "{engine: synthetic, options: {gives: smell}}",
            "options.gives: must be some of text, audio, image, video, tensor, not smell",
        ),
        ("{engine: synthetic, options: {slots: 0}}", "options.slots: must be a whole number"),
        ("{engine: synthetic, options: {slots: true}}", "options.slots: must be a whole number"),
    ],
)
def test_a_pool_that_cannot_run_is_told(pool: str, expected: str) -> None:
    text = (
        f"pools:\n  p: {pool}\n"
        "pipelines: {a: {stages: {s: {pool: p}}, outputs: {text: s}}}\n"
    )
    (problem,) = problems_of(text)
    assert problem.startswith("line 2: pools.p")
    assert expected in problem


def test_a_foreign_engine_may_give_anything() -> None:
    text = mesh_text(
        """
        m:
          stages:
            a: {pool: anything, bridge: own}
            b: {pool: sound, inputs: [{from: a, modality: video}]}
          outputs: {audio: b, image: a}
        """
    )
    assert problems_of(text) == []


def test_a_stage_may_share_the_when_of_its_only_source() -> None:
    text = mesh_text(
        """
        m:
          stages:
            ear: {pool: words, when: input.audio}
            tidy: {pool: words, inputs: [ear], when: input.audio}
            a: {pool: words, inputs: [input, tidy]}
          outputs: {text: a}
        """
    )
    assert problems_of(text) == []


def test_choices_may_fan_out_on_separate_paths() -> None:
    text = mesh_text(
        """
        m:
          stages:
            a: {pool: words, choices: true}
            b: {pool: sound, choices: true}
          outputs: {text: a, audio: b}
        """
    )
    assert problems_of(text) == []
