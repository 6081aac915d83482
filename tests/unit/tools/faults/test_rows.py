from pathlib import Path

import pytest

from tools.faults.rows import Row, read_rows

SHOWN = '[[row]]\nid = "E1"\nfault = "It broke."\nhere = "It holds."\ntests = ["t.py::test_it"]\n'


def test_rows_are_read_file_by_file_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(SHOWN.replace("E1", "E3"))
    second = '[[row]]\nid = "E2"\nfault = "It broke."\nabsent = "we have none."\n'
    (tmp_path / "a.toml").write_text(SHOWN + second)
    rows = read_rows(tmp_path)
    assert [row.id for row in rows] == ["E1", "E2", "E3"]
    assert rows[0] == Row(
        id="E1", fault="It broke.", here="It holds.", tests=("t.py::test_it",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHOWN + SHOWN, "E1: is there twice"),
        (SHOWN.replace('tests = ["t.py::test_it"]', ""), "needs one of tests, absent, later"),
        (SHOWN + 'later = "one day."\n', "needs one of tests, absent, later"),
        (SHOWN.replace('here = "It holds."', ""), "does not say what happens here"),
        (SHOWN.replace('"t.py::test_it"', '"a", "a"'), "names a test twice"),
        (SHOWN.replace("It holds.", "It holds"), "is no sentence: It holds"),
        (SHOWN + "owner = 1\n", "a.toml: Object contains unknown field `owner`"),
        ("[[row]\n", "a.toml: "),
    ],
)
def test_a_row_that_is_written_wrongly_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        read_rows(tmp_path)
