"""Meshes that are small enough to be broken by one test alone."""

from pathlib import Path
from typing import Final

__all__ = ["CONVERSING", "ECHO", "ECHO_AND_TALK", "ECHO_TALK_RELAY", "NARROW", "one_mesh"]

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
