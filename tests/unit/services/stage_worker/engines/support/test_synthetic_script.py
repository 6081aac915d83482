import pytest

from services.stage_worker.engines.support.synthetic_script import (
    Script,
    read_script,
    split_tokens,
    word,
)
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode, FinishReason


def test_a_text_without_the_mark_has_no_script() -> None:
    assert read_script("just talk", "thinker") == ("just talk", Script())


def test_a_flat_script_holds_for_every_stage() -> None:
    text = 'hi #synthetic {"tokens": 5} and so on'
    assert read_script(text, "thinker") == ("hi ", Script(tokens=5))
    assert read_script(text, "talker") == ("hi ", Script(tokens=5))


def test_a_keyed_script_holds_for_its_stage_over_the_flat_part() -> None:
    text = '#synthetic {"tokens": 5, "seed": 1, "talker": {"tokens": 7}, "other": {"batch": 2}}'
    assert read_script(text, "thinker")[1] == Script(tokens=5, seed=1)
    assert read_script(text, "talker")[1] == Script(tokens=7, seed=1)


@pytest.mark.parametrize(
    "script",
    [
        "",
        "{",
        "[1]",
        '{"tockens": 5}',
        '{"tokens": "five"}',
        '{"tokens": -1}',
        '{"batch": 0}',
        '{"fail_code": "oops"}',
        '{"finish": "oops"}',
        '{"reject": "oops"}',
        '{"image_px": 0}',
        '{"image_px": 1000000}',
    ],
)
def test_a_bad_script_is_the_clients_mistake(script: str) -> None:
    with pytest.raises(MeshError) as caught:
        read_script(f"#synthetic {script}", "thinker")
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT


def test_codes_and_reasons_are_read_in_any_case() -> None:
    script = Script(fail_code="guardrail", finish="length", reject="draining")
    assert script.failure is ErrorCode.GUARDRAIL
    assert script.finish_reason is FinishReason.LENGTH
    assert script.rejection is ErrorCode.DRAINING
    assert Script(reject=True).rejection is ErrorCode.OVERLOADED
    assert Script().rejection is None


def test_the_first_fault_counts() -> None:
    assert Script(fail_at=7, hang_at=3).next_fault() == 3
    assert Script().next_fault() is None


@pytest.mark.parametrize("text", ["", "  ", "a", " a b", "a  b \n", "\n a\tb"])
@pytest.mark.parametrize("count", [None, 1, 2, 5])
def test_tokens_joined_are_the_text(text: str, count: int | None) -> None:
    tokens = split_tokens(text, count)
    assert "".join(tokens) == text
    assert count is None or len(tokens) == count


def test_words_count_up() -> None:
    assert [word(0), word(12), word(100_000)] == [" w0", " w12", " w100000"]


def test_a_companion_has_keys_of_its_own_over_those_of_its_stage() -> None:
    text = '#synthetic {"seed": 1, "encoder": {"tokens": 2}, "encoder.negative": {"tokens": 3}}'
    assert read_script(text, "encoder")[1] == Script(tokens=2, seed=1)
    assert read_script(text, "encoder", "negative")[1] == Script(tokens=3, seed=1)
    assert read_script(text, "encoder", "other")[1] == Script(tokens=2, seed=1)
