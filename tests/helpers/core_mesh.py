"""The mesh that the tests of the orchestrator's core run on."""

from functools import cache
from typing import Final

from stagemesh.pipeline import Mesh, parse_mesh

__all__ = ["CORE_MESH_TEXT", "core_mesh"]

CORE_MESH_TEXT: Final = """\
pools:
  thinker: {engine: synthetic, options: {gives: text}}
  coder: {engine: synthetic, options: {gives: text}}
  talker: {engine: synthetic, options: {gives: audio}}
  encoder: {engine: synthetic, options: {gives: tensor}}
  painter: {engine: synthetic, options: {gives: image}}
  listener: {engine: synthetic, options: {gives: text}}
  mixer: {engine: synthetic, options: {gives: text}}

pipelines:
  echo:
    aliases: [parrot]
    deadline_s: 60
    limits: {running_max: 2, waiting_max: 1, input_bytes_max: 1000}
    stages:
      thinker: {pool: thinker, bridge: script, choices: true, params: {sampling: {tokens_max: 512}}}
    outputs: {text: thinker}

  talk:
    deadline_s: 60
    stages:
      thinker: {pool: thinker, bridge: script, choices: true}
      talker: {pool: talker, inputs: [{from: thinker, mode: stream}], bridge: script}
    outputs: {text: thinker, audio: talker}

  relay3:
    deadline_s: 60
    stages:
      thinker: {pool: thinker, bridge: script, choices: true}
      coder: {pool: coder, inputs: [{from: thinker, mode: stream}], bridge: script}
      talker: {pool: talker, inputs: [{from: coder}], bridge: script}
    outputs: {text: thinker, audio: talker}

  paint:
    deadline_s: 60
    stages:
      encoder: {pool: encoder, bridge: script, companions: [negative]}
      painter:
        pool: painter
        inputs: [input, {from: encoder, modality: tensor}]
        bridge: script
        choices: true
    outputs: {image: painter}

  hear:
    deadline_s: 60
    accepts: [text, audio]
    stages:
      listener: {pool: listener, when: input.audio, bridge: script}
      thinker: {pool: thinker, inputs: [input, listener], bridge: script, choices: true}
    outputs: {text: thinker}

  listen:
    deadline_s: 60
    accepts: [text, audio]
    limits: {running_max: 2, waiting_max: 4, input_bytes_max: 20000}
    stages:
      listener:
        pool: listener
        inputs: [{from: input, mode: stream}]
        bridge: script
        choices: true
    outputs: {text: listener}

  chatter:
    deadline_s: 60
    stages:
      mixer: {pool: mixer, inputs: [{from: input, mode: stream}], bridge: script}
    outputs: {text: mixer}

  turns:
    deadline_s: 60
    accepts: [text, audio]
    stages:
      listener: {pool: listener, inputs: [{from: input, mode: segment}], bridge: script}
      mixer: {pool: mixer, inputs: [{from: listener, mode: segment}], bridge: script}
    outputs: {text: mixer}

  twice:
    deadline_s: 60
    stages:
      thinker: {pool: thinker, bridge: script}
      coder: {pool: thinker, inputs: [thinker], bridge: script}
    outputs: {text: coder}

  rejoin:
    deadline_s: 60
    limits: {running_max: 1, waiting_max: 5, tenant_waiting_max: 3}
    stages:
      thinker: {pool: thinker, bridge: script}
      coder: {pool: coder, inputs: [{from: thinker, mode: stream}], bridge: script}
      mixer:
        pool: mixer
        inputs: [{from: thinker, mode: stream}, {from: coder, mode: stream}]
        bridge: script
    outputs: {text: mixer}

  pair:
    deadline_s: 60
    stages:
      prefill: {pool: encoder, bridge: script}
      decode:
        pool: thinker
        inputs: [input, {from: prefill, modality: tensor}]
        bridge: script
        prefill: prefill
        choices: true
    outputs: {text: decode}

tenants:
  heavy: {weight: 2}
"""


@cache
def core_mesh(*, apart: bool = False) -> Mesh:
    """Parse the mesh; `apart` lets companions of the encoder run on other replicas than itself."""
    text = CORE_MESH_TEXT
    if apart:
        encoder = "encoder: {engine: synthetic, "
        text = text.replace(encoder, f"{encoder}companions: apart, ")
    return parse_mesh(text, "core_mesh.yaml")
