"""A client's input, and lanes of several runs, as scenarios tell of them."""

from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason
from stagemesh.pipeline import Pipeline

__all__ = ["given", "lane_number", "number", "piece", "runs_of"]


def runs_of(row: Row, runs: int) -> list[Row]:
    """Cut what runs gave into one unit for each, and what was given since."""
    cut = [Row(0, row.lane, at, 1, row.text[at], segment_end=True) for at in range(runs)]
    rest = Row(0, row.lane, runs, row.units - runs, row.text[runs:], end=row.end)
    return [*cut, rest] if rest.units or rest.end else cut


def given(slot: int, fields: dict[str, str]) -> list[Row]:
    """Read `given="TEXT|TEXT/|."`: pieces of input; a slash ends a segment, a dot the input."""
    words = fields.get("given", "").split("|") if "given" in fields else []
    return [
        piece(slot, f"{at}+0", [], {"mark": "end"})
        if word == "."
        else piece(slot, f"{at}+1", [word.rstrip("/")], {"mark": "segment"} if "/" in word else {})
        for at, word in enumerate(words)
    ]


def piece(slot: int, where: str, words: list[str], fields: dict[str, str]) -> Row:
    pos, units = map(int, where.split("+"))
    row = Row(slot, REQUEST_SOURCE, pos, units, "".join(words))
    if "pcm" in fields:
        row.body = Body(inline=b"x" * int(fields["pcm"]))
    row.segment_end = fields.get("mark") == "segment"
    if fields.get("mark") == "end":
        row.end = End(finish_reason=FinishReason.STOP)
    return row


def number(text: str) -> float:
    return float(text) if "." in text else int(text)


def lane_number(pipeline: Pipeline, name: str) -> int:
    if name == "input":
        return REQUEST_SOURCE
    stage, role, modality = name.split(".")
    index = next(s.index for s in pipeline.stages if s.name == stage)
    return lane_of(index, int(role), Modality[modality.upper()])
