"""Outputs that are made again: what was delivered is compared and dropped, the rest goes on.

An engine that replays begins at position 0, in its own steps, which need not be those of the first
time. So the cursor may lie within a piece, which is then cut: samples and characters by counting,
other text where its digest says that the delivered part ends.
"""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import msgspec

from services.stage_worker.core.events import AttemptBroke
from services.stage_worker.core.submission import RoleSpec, Submission
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneDigest, LaneJournal
from stagemesh.media import AUDIO_PCM, Body, Modality, split_lane
from stagemesh.outcome import error_for

__all__ = ["CountedBytes", "LaneReplay", "Replays"]

CountedBytes = Callable[[Piece], bytes]
"""Gives what a piece's body counts for in its lane's digest; empty for a piece without one."""

_ENCODING: Final = ("utf-8", "surrogatepass")


class LaneReplay:
    """One lane that is made again, up to the cursor that its journal names."""

    def __init__(self, journal: LaneJournal, counted: CountedBytes) -> None:
        self._cursor = journal.next
        self._expected = journal.digest
        self._ended = journal.end is not None
        self._counted = counted
        self._digest = LaneDigest()
        self._made = 0

    @property
    def over(self) -> bool:
        """Whether everything that comes now is new."""
        return self._made >= self._cursor and not self._ended

    def cut(self, piece: Piece) -> Piece | None:
        """Give what is new of the next piece of the lane: all, its rest, its bare end or nothing.

        Raises:
            MeshError: With reason `replay_diverged`, if it is not what was delivered.
        """
        if self.over:
            return piece
        start, self._made = self._made, self._made + piece.units
        if self._made > self._cursor:
            if self._ended:
                _diverge(f"the lane had ended at {self._cursor}, and now goes on")
            return self._rest(piece, self._cursor - start)
        self._digest.add_bytes(piece.text.encode(*_ENCODING))
        self._digest.add_bytes(self._counted(piece))
        ends = piece.end is not None
        if ends and self._made < self._cursor:
            _diverge(f"the lane ends at {self._made}, and had come to {self._cursor}")
        # Text that was held back until the end has no units, so only the end completes such a lane.
        if ends or (self._made == self._cursor and not self._ended):
            self._check()
        if not ends:
            return None
        return Piece(attempt=piece.attempt, modality=piece.modality, kind=piece.kind, end=piece.end)

    def _check(self) -> None:
        if self._expected and self._digest.value != self._expected:
            _diverge(f"what lies before {self._cursor} differs")

    def _rest(self, piece: Piece, units: int) -> Piece:
        """Cut off the first units of a piece, which complete what was delivered."""
        body, text = piece.body, piece.text
        if body is not None:
            size = _bytes_of(body, piece.units, units)
            self._digest.add_bytes(body.inline[:size])
            body = msgspec.structs.replace(body, inline=body.inline[size:])
            self._check()
        else:
            text = text[self._chars_of(piece, units) :]
        return msgspec.structs.replace(
            piece,
            units=piece.units - units,
            text=text,
            ids=None if piece.ids is None else piece.ids[units:],
            body=body,
        )

    def _chars_of(self, piece: Piece, units: int) -> int:
        """Find how much of a piece's text its first units are."""
        text = piece.text
        if self._expected:
            for chars in range(len(text) + 1):
                if self._digest.value == self._expected:
                    return chars
                self._digest.add_bytes(text[chars : chars + 1].encode(*_ENCODING))
            _diverge(f"what lies before {self._cursor} differs")
        if piece.units != len(text):
            _diverge(f"a text of {piece.units} units cannot be cut without a digest")
        return units


class Replays:
    """The lanes of all attempts that are made again, until each is past its cursor."""

    def __init__(self, counted: CountedBytes) -> None:
        self._counted = counted
        self._lanes: dict[int, dict[Modality, LaneReplay]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def start(self, attempt: int, submission: Submission, role: RoleSpec) -> None:
        """Note where an attempt's lanes stand, if it is to make them again."""
        if submission.contract is not ResumeContract.REPLAY:
            return
        journals = [submission.resume[lane] for lane in role.lanes if lane in submission.resume]
        lanes = {
            split_lane(journal.lane).modality: LaneReplay(journal, self._counted)
            for journal in journals
            if journal.next or journal.end is not None
        }
        if lanes:
            self._lanes[attempt] = lanes

    def forget(self, attempt: int) -> None:
        """Drop an attempt that is over."""
        self._lanes.pop(attempt, None)

    def cut(self, pieces: Sequence[Piece]) -> tuple[list[Piece], list[AttemptBroke]]:
        """Give what is new of an engine step, and which attempts do not repeat themselves."""
        new: list[Piece] = []
        broken: list[AttemptBroke] = []
        for piece in pieces:
            lanes = self._lanes.get(piece.attempt)
            lane = None if lanes is None or piece.error else lanes.get(piece.modality)
            if lane is None:
                new.append(piece)
                continue
            try:
                rest = lane.cut(piece)
            except MeshError as error:
                broken.append(AttemptBroke(attempt=piece.attempt, error=error.info))
                self.forget(piece.attempt)
                rest = piece  # Nobody gets it any more, but it may be the engine's last word.
            if rest is not None:
                new.append(rest)
            if lanes is not None and all(lane.over for lane in lanes.values()):
                self.forget(piece.attempt)
        return new, broken


def _bytes_of(body: Body, units: int, first: int) -> int:
    """Tell how many bytes the first units of a body are."""
    size, rest = divmod(len(body.inline), units)
    if body.media_type != AUDIO_PCM or rest:
        _diverge(f"{units} units of {body.media_type or 'bytes'} cannot be cut")
    return first * size


def _diverge(message: str) -> NoReturn:
    raise MeshError(error_for("replay_diverged", message))
