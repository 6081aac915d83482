"""Effects, as frames. Rows and grants need no translation: links speak them."""

from services.orchestrator.core.effects import (
    AbortAttempt,
    AnswerUnknown,
    AskWorker,
    EndRequest,
    FenceRequest,
    HandBackRequest,
    PlaceNotice,
    PublishModels,
    ReleaseHandles,
    RenewHandles,
    ResetLanes,
    SayGoAway,
    SendPrompt,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.outcome import Terminal
from stagemesh.pipeline import Mesh
from stagemesh.wire import call_to_proto, published_to_proto, terminal_to_proto

__all__ = ["FrameEffect", "frame_of", "published_pipelines", "terminal_frame"]

_ForGateway = AnswerUnknown | EndRequest | HandBackRequest | PlaceNotice | ResetLanes | SayGoAway
_ForWorker = AbortAttempt | AskWorker | FenceRequest | ReleaseHandles | RenewHandles | SendPrompt

FrameEffect = _ForGateway | _ForWorker
"""Effects that are one frame on their link."""


def frame_of(effect: FrameEffect) -> link_pb2.Frame:
    """Make the frame that tells a peer of an effect."""
    return _for_worker(effect) if isinstance(effect, _ForWorker) else _for_gateway(effect)


def _for_gateway(effect: _ForGateway) -> link_pb2.Frame:
    match effect:
        case EndRequest():
            return terminal_frame(effect.slot, effect.terminal)
        case HandBackRequest():
            return link_pb2.Frame(hand_back=link_pb2.HandBack(slot=effect.slot))
        case PlaceNotice():
            return link_pb2.Frame(placed=_placed(effect))
        case ResetLanes():
            return link_pb2.Frame(reset=link_pb2.Reset(slot=effect.slot, stages=effect.stages))
        case AnswerUnknown():
            return link_pb2.Frame(unknown=link_pb2.Unknown(slot=effect.slot))
        case SayGoAway():
            return link_pb2.Frame(
                go_away=link_pb2.GoAway(reason=effect.reason, drain_s=effect.drain_s)
            )


def _for_worker(effect: _ForWorker) -> link_pb2.Frame:
    match effect:
        case AbortAttempt():
            return link_pb2.Frame(
                abort=link_pb2.Abort(slot=effect.slot, cause=effect.cause, partials=effect.partials)
            )
        case AskWorker():
            control = call_to_proto(effect.control_id, effect.call, effect.timeout_s)
            return link_pb2.Frame(control=control)
        case FenceRequest():
            return link_pb2.Frame(
                fence=link_pb2.Fence(
                    request_id=effect.request_id,
                    epoch=effect.epoch,
                    handle_ids=effect.handle_ids,
                )
            )
        case ReleaseHandles():
            return link_pb2.Frame(
                release=link_pb2.Release(
                    request_id=effect.request_id,
                    epoch=effect.epoch,
                    handle_ids=effect.handle_ids,
                )
            )
        case SendPrompt():
            return link_pb2.Frame(
                interact=link_pb2.Interact(
                    slot=effect.slot, interaction_id=effect.interaction_id, text=effect.text
                )
            )
        case RenewHandles():
            return link_pb2.Frame(
                renew=link_pb2.Renew(request_id=effect.request_id, epoch=effect.epoch)
            )


def _placed(effect: PlaceNotice) -> link_pb2.Placed:
    placed = effect.placed
    return link_pb2.Placed(
        slot=effect.slot,
        stage=placed.stage,
        role=placed.role,
        attempt=placed.attempt,
        replica_id=placed.replica_id,
        incarnation=placed.incarnation,
    )


def terminal_frame(slot: int, terminal: Terminal) -> link_pb2.Frame:
    """Make the frame that ends the request of a slot."""
    return link_pb2.Frame(terminal=terminal_to_proto(slot, terminal))


def published_pipelines(mesh: Mesh, effect: PublishModels) -> list[link_pb2.PublishedPipeline]:
    """Make the list of models, with what each takes and gives."""
    pipelines = {
        name: pipeline for pipeline in mesh.pipelines.values() for name in pipeline.model_names
    }
    return [
        published_to_proto(
            model,
            inputs=pipelines[model.model].inputs,
            outputs=frozenset(pipelines[model.model].outputs),
            deadline_s=pipelines[model.model].deadline_s,
        )
        for model in effect.models
    ]
