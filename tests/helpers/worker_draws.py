"""What the random tests of the worker's core draw from."""

from hypothesis import strategies as st

from stagemesh.media import Modality

__all__ = ["BEHAVIOURS", "LANES", "seldom"]

LANES = st.sets(st.sampled_from([Modality.TEXT, Modality.IMAGE]), min_size=1)
BEHAVIOURS = st.sampled_from([*["starts"] * 8, "waits", "breaks", "has nothing"])


def seldom(n: int) -> st.SearchStrategy[bool]:
    """True once in `n` times; shrinks to False."""
    return st.integers(0, n - 1).map(lambda drawn: drawn == n - 1)
