"""What clients do, right and wrong, that give their input piece by piece."""

# ruff: noqa: D102 -- a rule's name says what it does.

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from services.orchestrator.core import events as ev
from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.media import Body, Message, Request, TextPart
from tests.helpers.core_manners import BROKEN, END, BadManners
from tests.helpers.core_parties import WorldRequest

__all__ = ["Conversations"]

LINES = [(), (Message(role="user", parts=(TextPart("hi"),)),)]


class Conversations(BadManners):
    """Rules for conversations."""

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data(), model=st.sampled_from(["listen", "turns", "turns", "echo"]))
    def open_conversation(self, data: st.DataObject, model: str) -> None:
        """Open one, of a model that may take no streamed input."""
        link = self.pick(data, sorted(self.world.clients))
        choices = data.draw(st.integers(1, 2))
        request = Request(model=model, messages=self.pick(data, LINES), choices=choices)
        self.world.open_request(link, request, 0.0, streamed=True)

    @precondition(lambda self: self.speaking())
    @rule(
        data=st.data(),
        text=st.sampled_from(["", "a", "some more"]),
        spoken=st.booleans(),
        segment_end=st.booleans(),
    )
    def append(self, data: st.DataObject, text: str, spoken: bool, segment_end: bool) -> None:
        request = self.pick(data, self.speaking())
        if request.input_window.open:
            row = self.next_piece(request, 1)
            row.text, row.segment_end = text, segment_end
            row.body = Body(inline=b"pcm") if spoken and not text else None
            self.world.append(request, row)

    @precondition(lambda self: self.speaking())
    @rule(data=st.data())
    def close_input(self, data: st.DataObject) -> None:
        request = self.pick(data, self.speaking())
        row = self.next_piece(request, 0)
        row.end = END
        self.world.append(request, row)

    @precondition(lambda self: self.speaking())
    @rule(data=st.data(), shift=st.integers(1, 3))
    def skip_a_piece(self, data: st.DataObject, shift: int) -> None:
        request = self.pick(data, self.speaking())
        row = self.next_piece(request, 1)
        row.pos += shift
        self.world.step(ev.InputsAppended(link=request.link, rows=[row]))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data())
    def append_without_credit(self, data: st.DataObject) -> None:
        """Give a piece to a request that wants none, or none yet."""
        request = self.pick(data, self.world.open)
        if request.said is None or not request.input_window.open:
            at = 0 if request.said is None else len(request.said)
            row = Row(request.slot, REQUEST_SOURCE, at, 1, "?")
            self.world.step(ev.InputsAppended(link=request.link, rows=[row]))

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data(), slot=st.integers(0, 12))
    def append_to_the_unknown(self, data: st.DataObject, slot: int) -> None:
        link = self.pick(data, sorted(self.world.clients))
        request = self.world.requests.get((link, slot))
        if request is None or request.terminal is not None:
            row = Row(slot, REQUEST_SOURCE, 0, 1, "?")
            self.world.step(ev.InputsAppended(link=link, rows=[row]))

    @precondition(lambda self: self.world.open)
    @rule(
        data=st.data(), name=st.sampled_from(["", "p", "q", "r"]), text=st.sampled_from(["", "x"])
    )
    def interact(self, data: st.DataObject, name: str, text: str) -> None:
        """Give another prompt, of which any may be a mistake."""
        request = self.pick(data, self.world.open)
        request.asked.append(name)
        self.world.step(
            ev.InteractAsked(link=request.link, slot=request.slot, interaction_id=name, text=text)
        )

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data(), slot=st.integers(0, 12))
    def interact_with_the_unknown(self, data: st.DataObject, slot: int) -> None:
        link = self.pick(data, sorted(self.world.clients))
        request = self.world.requests.get((link, slot))
        if request is None or request.terminal is not None:
            self.world.step(ev.InteractAsked(link=link, slot=slot, interaction_id="p", text="x"))

    @precondition(lambda self: any(attempt.prompts for attempt in self.world.attempts))
    @rule(data=st.data(), refused=st.booleans(), again=st.booleans())
    def answer_a_prompt(self, data: st.DataObject, refused: bool, again: bool) -> None:
        attempt = self.pick(data, [one for one in self.world.attempts if one.prompts])
        name = attempt.prompts[0] if again else attempt.prompts.pop(0)
        answer = ev.Interacted(
            link=attempt.link,
            slot=attempt.slot,
            interaction_id=name,
            applied_at=max(attempt.next.values()),
            error=BROKEN.error if refused else None,
        )
        self.world.step(answer)

    def speaking(self) -> list[WorldRequest]:
        """Open conversations whose input is not complete."""
        return [request for request in self.world.open if not request.said_all]

    def next_piece(self, request: WorldRequest, units: int) -> Row:
        """Make the next piece, with nothing in it."""
        at = 0 if request.said is None else sum(row.units for row in request.said)
        return Row(request.slot, REQUEST_SOURCE, at, units)
