"""`Submit`: what a worker is told of a stage of a request, made of a template and an order."""

import msgspec
from google.protobuf import struct_pb2

from services.orchestrator.core.effects import SubmitAttempts
from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.link.core import LaneJournal
from stagemesh.pipeline import Mesh, Stage
from stagemesh.wire import LaneMark, lane_mark_to_proto, options_to_proto, params_to_proto

__all__ = ["Submits"]


class _Template(msgspec.Struct, frozen=True):
    """What every submission of a stage has in common."""

    name: str
    reads_input: bool
    bridge: str
    bridge_options: struct_pb2.Struct


class Submits:
    """Makes the `Submit` of each order, from what the mesh file says of the stage."""

    def __init__(self, mesh: Mesh) -> None:
        self._templates: dict[str, tuple[_Template, ...]] = {}
        for pipeline in mesh.pipelines.values():
            templates = tuple(_template(stage) for stage in pipeline.stages)
            for model in pipeline.model_names:
                self._templates[model] = templates

    def to_proto(self, order: SubmitAttempts) -> link_pb2.Submit:
        """Make the message; `order.body` is the client's own `Request`, and stays as it is."""
        body: request_pb2.Request = order.body
        template = self._templates[order.model][order.stage]
        submit = link_pb2.Submit(
            request_id=order.request_id,
            epoch=order.epoch,
            attempt=order.attempt,
            stage=order.stage,
            stage_name=template.name,
            deadline_left_s=order.deadline_left_s,
            params=params_to_proto(order.params),
            bridge=template.bridge,
            bridge_options=template.bridge_options,
            request=body if template.reads_input else _without_messages(body),
            resume=map(_mark, order.resume),
        )
        for prompt in order.prompts:
            submit.interactions.add(
                interaction_id=prompt.interaction_id,
                text=prompt.text,
                applied_at=prompt.applied_at,
            )
        if order.contract is not None:
            submit.contract = link_pb2.ResumeContract.ValueType(order.contract)
        for role in order.roles:
            submit.roles.add(
                slot=role.slot,
                role=role.role,
                companion=role.companion,
                lanes=role.lanes,
                token_ids=role.token_ids,
            )
        for source in order.sources:
            submit.sources.add(
                lane=source.lane,
                stage=source.stage,
                companion=source.companion,
                mode=link_pb2.EdgeMode.ValueType(source.mode),
                choice=source.choice,
            )
        return submit


def _template(stage: Stage) -> _Template:
    return _Template(
        name=stage.name,
        reads_input=stage.reads_input,
        bridge=stage.bridge,
        bridge_options=options_to_proto(stage.bridge_options),
    )


def _mark(lane: LaneJournal) -> link_pb2.LaneJournal:
    return lane_mark_to_proto(
        LaneMark(
            lane=lane.lane,
            pos=lane.next,
            token_ids=tuple(lane.ids),
            digest=lane.digest,
            end=lane.end,
        )
    )


def _without_messages(body: request_pb2.Request) -> request_pb2.Request:
    return request_pb2.Request(
        model=body.model,
        modalities=body.modalities,
        params=body.params,
        choices=body.choices,
        seed=body.seed,
        seed_explicit=body.seed_explicit,
        label=body.label,
        tenant=body.tenant,
        priority=body.priority,
    )
