import itertools
import random

from services.stage_worker.engines.support.stop_strings import StopFinder


def test_the_first_of_several_stop_strings_wins() -> None:
    finder = StopFinder(("lazy", "fox"))
    assert finder.push("the fox and the lazy dog") == "the "
    assert finder.match == "fox"
    assert finder.push("more") == ""


def test_however_text_is_cut_the_result_is_the_same() -> None:
    rng = random.Random(7)
    for _ in range(300):
        text = "".join(rng.choices("ab", k=30))
        stops = tuple("".join(rng.choices("ab", k=rng.randint(2, 5))) for _ in range(2))
        at = min((found for stop in stops if (found := text.find(stop)) >= 0), default=None)
        cuts = sorted(rng.choices(range(31), k=4))
        finder = StopFinder(stops)
        parts = [finder.push(text[a:b]) for a, b in itertools.pairwise([0, *cuts, 30])]
        got = "".join(parts) + ("" if finder.match else finder.flush())
        # A stop string that ends later may begin earlier, but is only known once it is whole.
        assert text.startswith(got)
        assert (at is None) == (finder.match == "")
        assert not any(stop in got for stop in stops)
        if at is None:
            assert got == text
