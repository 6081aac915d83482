"""Capabilities, models, journals and options on the wire."""

from services.stage_worker.engines.base import Capabilities, ResumeContract
from stagemesh.api.types.v1 import link_pb2
from stagemesh.media import Modality
from stagemesh.wire import (
    LaneMark,
    capabilities_from_proto,
    capabilities_to_proto,
    lane_mark_from_proto,
    lane_mark_to_proto,
    options_from_proto,
    options_to_proto,
)


def test_an_engine_s_own_capabilities_can_be_told() -> None:
    told = capabilities_from_proto(
        capabilities_to_proto(
            Capabilities(
                input_modalities=frozenset({Modality.TEXT}),
                output_modalities=frozenset({Modality.AUDIO, Modality.TEXT}),
                stream_input=True,
                stream_output=True,
                resume_contract=ResumeContract.PER_INPUT,
                deterministic=False,
                slots=4,
            )
        )
    )
    assert told.output_modalities == {Modality.TEXT, Modality.AUDIO}
    assert told.resume_contract == link_pb2.RESUME_CONTRACT_PER_INPUT
    assert (told.slots, told.stream_input, told.deterministic) == (4, True, False)


def test_a_lane_that_goes_on_has_no_end() -> None:
    message = lane_mark_to_proto(LaneMark(lane=17, pos=2**40, token_ids=(1, 2)))
    assert not message.HasField("end")
    assert lane_mark_from_proto(message).end is None


def test_options_keep_integers_fractions_lists_and_nothing_apart() -> None:
    options = {"len": 2048, "scale": 0.5, "names": ["a", 1, None], "deep": {"on": True}}
    back = options_from_proto(options_to_proto(options))
    assert back == options
    assert isinstance(back["len"], int)
