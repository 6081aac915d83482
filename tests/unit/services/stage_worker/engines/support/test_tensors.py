import json

import numpy as np
import pytest
from safetensors.numpy import save

from services.stage_worker.engines.support.tensors import shape_in
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode

BUFFER = save({"hidden": np.zeros((1, 3, 5), np.float32), "pooled": np.zeros((1, 5), np.float32)})


def test_a_shape_is_read_from_the_header() -> None:
    assert shape_in(BUFFER, "hidden") == (1, 3, 5)
    assert shape_in(BUFFER, "pooled") == (1, 5)


def head(value: object) -> bytes:
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "buffer",
    [b"", b"short", b"\xff" * 64, BUFFER[:20], head([]), head({"hidden": {}}), head({"hidden": 1})],
)
def test_what_is_no_such_buffer_is_refused(buffer: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        shape_in(buffer, "hidden")
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
