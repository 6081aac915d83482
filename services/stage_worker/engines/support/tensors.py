"""Named tensors in one safetensors buffer, looked at without a tensor library."""

import json

from stagemesh.errors import invalid

__all__ = ["shape_in"]

_HEAD_BYTES = 8


def shape_in(buffer: bytes, name: str) -> tuple[int, ...]:
    """Read the shape of one tensor from a buffer's header.

    Raises:
        MeshError: If the buffer is not safetensors, or has no such tensor.
    """
    size = int.from_bytes(buffer[:_HEAD_BYTES], "little")
    try:
        header = json.loads(buffer[_HEAD_BYTES : _HEAD_BYTES + size])
        return tuple(int(side) for side in header[name]["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise invalid(f"a tensor {name!r} is needed, as safetensors") from error
