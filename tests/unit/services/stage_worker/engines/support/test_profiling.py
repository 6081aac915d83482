import pytest

from services.stage_worker.engines.support.profiling import Profiling
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode


def test_one_profile_is_written_at_a_time() -> None:
    profiling = Profiling()
    profiling.check(begin=True)
    profiling.running = True
    profiling.check(begin=False)
    for running in (True, False):
        profiling.running = running
        with pytest.raises(MeshError) as caught:
            profiling.check(begin=running)
        assert caught.value.info.code is ErrorCode.CONFLICT
