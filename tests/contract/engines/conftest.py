"""What the tests of real engines have in common."""

import gc
import os
from collections.abc import Iterator
from typing import Final

import pytest

_VLLM_ON_A_SMALL_CPU: Final = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@pytest.fixture(scope="session", autouse=True)
def vllm_on_a_small_cpu() -> Iterator[None]:
    """Let vLLM be content with one thread and little memory, unless somebody decided otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _VLLM_ON_A_SMALL_CPU.items():
            if name not in os.environ:
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="module", autouse=True)
def memory_given_back() -> Iterator[None]:
    """Free each module's engines before the next module loads its own."""
    yield
    gc.collect()
