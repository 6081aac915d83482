from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from openai import AsyncOpenAI

from tests.helpers.e2e_mesh import ROOT, E2eMesh, running_mesh

STOP_S = 15.0
"""What `up` promises."""


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """The shipped mesh of scripted stages; all tests share it, so none may harm it."""
    folder = tmp_path_factory.mktemp("synthetic")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = ROOT / "pipelines" / "synthetic.yaml"
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh
        code, took_s = mesh.stop()
        assert code == 0, mesh.said
        assert took_s < STOP_S


@pytest.fixture
async def client(synthetic: E2eMesh) -> AsyncIterator[AsyncOpenAI]:
    async with synthetic.openai() as client:
        yield client


@pytest.fixture
async def http(synthetic: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=synthetic.url, timeout=60, limits=limits) as client:
        yield client
