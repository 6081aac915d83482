"""Effects, as frames. Rows and grants need no translation: links speak them."""

from services.stage_worker.core.effects import (
    SayGoAway,
    SendControlled,
    SendFenced,
    SendHandBack,
    SendHandleLost,
    SendInteracted,
    SendTerminal,
    SendUnknown,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.wire import answer_to_proto, error_to_proto, terminal_to_proto

__all__ = ["FrameEffect", "frame_of"]

_OfAKey = (
    SayGoAway
    | SendFenced
    | SendHandBack
    | SendHandleLost
    | SendInteracted
    | SendTerminal
    | SendUnknown
)

FrameEffect = SendControlled | _OfAKey
"""Effects that are one frame on their link."""


def frame_of(effect: FrameEffect) -> link_pb2.Frame:
    """Make the frame that tells an orchestrator of an effect."""
    if isinstance(effect, SendControlled):
        return link_pb2.Frame(controlled=answer_to_proto(effect.control_id, effect.answer))
    return _of_a_key(effect)


def _of_a_key(effect: _OfAKey) -> link_pb2.Frame:
    match effect:
        case SendTerminal():
            return link_pb2.Frame(terminal=terminal_to_proto(effect.slot, effect.terminal))
        case SendUnknown():
            return link_pb2.Frame(unknown=link_pb2.Unknown(slot=effect.slot))
        case SendHandBack():
            return link_pb2.Frame(hand_back=link_pb2.HandBack(slot=effect.slot))
        case SendFenced() | SendHandleLost() | SendInteracted():
            return _answer_of(effect)
        case SayGoAway():
            return link_pb2.Frame(
                go_away=link_pb2.GoAway(reason=effect.reason, drain_s=effect.drain_s)
            )


def _answer_of(effect: SendFenced | SendHandleLost | SendInteracted) -> link_pb2.Frame:
    """Make the frame that tells what came of something an orchestrator wanted."""
    match effect:
        case SendFenced():
            return link_pb2.Frame(
                fenced=link_pb2.Fenced(
                    request_id=effect.request_id, epoch=effect.epoch, held=effect.held
                )
            )
        case SendHandleLost():
            return link_pb2.Frame(
                handle_lost=link_pb2.HandleLost(slot=effect.slot, handle_id=effect.handle_id)
            )
        case SendInteracted():
            return link_pb2.Frame(
                interacted=link_pb2.Interacted(
                    slot=effect.slot,
                    interaction_id=effect.interaction_id,
                    applied_at=effect.applied_at,
                    error=None if effect.error is None else error_to_proto(effect.error),
                )
            )
