"""Meshes that are small enough to be broken by one test alone."""

from pathlib import Path
from typing import Final

__all__ = [
    "ALL_KINDS",
    "CONVERSING",
    "ECHO",
    "ECHO_AND_TALK",
    "ECHO_TALK_RELAY",
    "NARROW",
    "PAIR_AND_PAINT",
    "one_mesh",
]

ECHO: Final = """\
pools:
  thinker: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
pipelines:
  echo:
    deadline_s: 60
    limits: {{running_max: 256, waiting_max: 256}}
    stages: {{thinker: {{pool: thinker, bridge: script, choices: true}}}}
    outputs: {{text: thinker}}
"""
"""One stage."""

ECHO_AND_TALK: Final = """\
pools:
  thinker: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
  talker: {{engine: synthetic, replicas: {replicas}, options: {{gives: audio, slots: 128}}}}
pipelines:
  echo:
    deadline_s: 60
    limits: {{running_max: 256, waiting_max: 256}}
    stages: {{thinker: {{pool: thinker, bridge: script, choices: true}}}}
    outputs: {{text: thinker}}
  talk:
    deadline_s: 60
    limits: {{running_max: 256, waiting_max: 256}}
    stages:
      thinker: {{pool: thinker, bridge: script, choices: true}}
      talker: {{pool: talker, inputs: [input, {{from: thinker, mode: stream}}], bridge: script}}
    outputs: {{text: thinker, audio: talker}}
"""
"""Two stages on a `stream` edge, and the first of them alone."""

ECHO_TALK_RELAY: Final = """\
pools:
  thinker: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
  coder: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
  talker: {{engine: synthetic, replicas: {replicas}, options: {{gives: audio, slots: 128}}}}
pipelines:
  echo:
    deadline_s: 120
    limits: {{running_max: 256, waiting_max: 256}}
    stages: {{thinker: {{pool: thinker, bridge: script, choices: true}}}}
    outputs: {{text: thinker}}
  talk:
    deadline_s: 120
    limits: {{running_max: 256, waiting_max: 256}}
    stages:
      thinker: {{pool: thinker, bridge: script, choices: true}}
      talker: {{pool: talker, inputs: [input, {{from: thinker, mode: stream}}], bridge: script}}
    outputs: {{text: thinker, audio: talker}}
  relay3:
    deadline_s: 120
    limits: {{running_max: 256, waiting_max: 256}}
    stages:
      thinker: {{pool: thinker, bridge: script, choices: true}}
      coder: {{pool: coder, inputs: [input, {{from: thinker, mode: stream}}], bridge: script}}
      codec: {{pool: talker, inputs: [input, {{from: coder, mode: stream}}], bridge: script}}
    outputs: {{text: thinker, audio: codec}}
"""
"""One, two and three stages; the middle one of three gives text that nobody is shown."""

ALL_KINDS: Final = """\
pools:
  thinker: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
  coder: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
  talker: {{engine: synthetic, replicas: {replicas}, options: {{gives: audio, slots: 128}}}}
  encoder: {{engine: synthetic, replicas: {replicas}, options: {{gives: tensor, slots: 128}}}}
  painter: {{engine: synthetic, replicas: {replicas}, options: {{gives: image, slots: 128}}}}
pipelines:
  echo:
    deadline_s: 45
    stages: {{thinker: {{pool: thinker, bridge: script, choices: true}}}}
    outputs: {{text: thinker}}
  talk:
    deadline_s: 45
    stages:
      thinker: {{pool: thinker, bridge: script, choices: true}}
      talker: {{pool: talker, inputs: [input, {{from: thinker, mode: stream}}], bridge: script}}
    outputs: {{text: thinker, audio: talker}}
  relay3:
    deadline_s: 45
    stages:
      thinker: {{pool: thinker, bridge: script, choices: true}}
      coder: {{pool: coder, inputs: [input, {{from: thinker, mode: stream}}], bridge: script}}
      codec: {{pool: talker, inputs: [input, {{from: coder, mode: stream}}], bridge: script}}
    outputs: {{text: thinker, audio: codec}}
  paint:
    deadline_s: 45
    stages:
      encoder: {{pool: encoder, bridge: script, companions: [negative]}}
      painter:
        pool: painter
        inputs: [input, {{from: encoder, modality: tensor}}]
        bridge: script
        choices: true
    outputs: {{image: painter}}
"""
"""Text, audio and images; one, two and three stages, companions, and payloads by handle."""

NARROW: Final = """\
pools:
  thinker: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 4}}}}
pipelines:
  narrow:
    deadline_s: 60
    limits: {{running_max: 2, waiting_max: 1}}
    stages: {{thinker: {{pool: thinker, bridge: script, choices: true}}}}
    outputs: {{text: thinker}}
  wide:
    deadline_s: 2
    limits: {{running_max: 500, waiting_max: 500}}
    stages: {{thinker: {{pool: thinker, bridge: script, choices: true}}}}
    outputs: {{text: thinker}}
"""
"""One stage with four engine slots, behind a door for three and a door for everybody."""


PAIR_AND_PAINT: Final = """\
pools:
  prefiller: {{engine: synthetic, replicas: {replicas}, options: {{gives: tensor}}}}
  thinker: {{engine: synthetic, replicas: {replicas}, options: {{gives: text}}}}
  painter: {{engine: synthetic, replicas: {replicas}, options: {{gives: image}}}}
  talker:
    engine: synthetic
    replicas: {replicas}
    replica_choice: round_robin
    options: {{gives: text}}
pipelines:
  pair:
    deadline_s: 60
    stages:
      prefill: {{pool: prefiller, bridge: script}}
      decode:
        pool: thinker
        inputs: [input, {{from: prefill, modality: tensor}}]
        bridge: script
        bridge_options: {{handover: prefill}}
        prefill: prefill
        choices: true
    outputs: {{text: decode}}
  paint:
    deadline_s: 60
    stages:
      encoder: {{pool: prefiller, bridge: script, companions: [negative], join_s: 2}}
      painter:
        pool: painter
        inputs: [input, {{from: encoder, modality: tensor}}]
        bridge: script
    outputs: {{image: painter}}
  strict:
    deadline_s: 60
    stages:
      talker:
        pool: talker
        bridge: script
        params: {{sampling: {{tokens_max: 8}}}}
        constraints: {{sampling: {{tokens_max: {{max: 10}}, stop: [w7]}}}}
    outputs: {{text: talker}}
"""
"""A pair, a stage with a companion that has two seconds, and a stage with constraints."""

CONVERSING: Final = """\
pools:
  listener: {{engine: synthetic, replicas: {replicas}, options: {{gives: text, slots: 128}}}}
  talker: {{engine: synthetic, replicas: {replicas}, options: {{gives: audio, slots: 128}}}}
  painter: {{engine: synthetic, replicas: {replicas}, options: {{gives: image, slots: 128}}}}
  projector: {{engine: synthetic, replicas: {replicas}, options: {{gives: video, slots: 128}}}}
pipelines:
  film:
    deadline_s: 60
    stages:
      painter: {{pool: painter, bridge: script}}
      projector:
        pool: projector
        inputs: [input, {{from: painter, modality: image}}]
        bridge: script
    outputs: {{video: projector}}
  listen:
    deadline_s: 60
    accepts: [text, audio]
    limits: {{running_max: 256, waiting_max: 256}}
    stages:
      listener: {{pool: listener, inputs: [{{from: input, mode: stream}}], bridge: script}}
    outputs: {{text: listener}}
  repeat:
    deadline_s: 60
    accepts: [text, audio]
    limits: {{running_max: 256, waiting_max: 256}}
    stages:
      listener: {{pool: listener, inputs: [{{from: input, mode: stream}}], bridge: script}}
      talker: {{pool: talker, inputs: [{{from: listener, mode: stream}}], bridge: script}}
    outputs: {{text: listener, audio: talker}}
  turns:
    deadline_s: 60
    accepts: [text, audio]
    limits: {{running_max: 256, waiting_max: 256}}
    stages:
      listener: {{pool: listener, inputs: [{{from: input, mode: segment}}], bridge: script}}
      thinker: {{pool: listener, inputs: [{{from: listener, mode: segment}}], bridge: script}}
      talker: {{pool: talker, inputs: [{{from: thinker, mode: stream}}], bridge: script}}
    outputs: {{text: thinker, audio: talker}}
"""
"""A stage that hears its client piece by piece, alone and with one that reads it aloud."""


def one_mesh(folder: Path, text: str, *, replicas: int) -> Path:
    """Write a mesh file with so many replicas in each pool."""
    file = folder / "mesh.yaml"
    file.write_text(text.format(replicas=replicas))
    return file
