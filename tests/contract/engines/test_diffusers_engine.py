"""What the diffusers engine, alone and behind an encoder, promises beyond the suite."""

import io
import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import EngineConfig, EngineInput, TensorsInput, TextInput
from services.stage_worker.engines.support.weights import locate
from stagemesh.errors import BadSettings, MeshError
from stagemesh.media import ImageParams, Modality, Params
from stagemesh.outcome import ErrorCode
from tests.contract.engines.case_diffusers import CASE
from tests.contract.engines.case_transformers import CASE as ENCODER_CASE
from tests.helpers.engines import MODEL_MARKS, Collector, collecting
from tools.shapes.drawing import Judge, draw_caption

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(CASE.missing()), reason=CASE.missing() or "all is there"),
    *MODEL_MARKS,
]

STAR = TextInput(text="a red star on a white background")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def painter() -> AsyncIterator[Collector]:
    async with collecting(find_engine("diffusers")(CASE.config)) as collector:
        yield collector


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder() -> AsyncIterator[Collector]:
    async with collecting(find_engine("transformers")(ENCODER_CASE.config)) as collector:
        yield collector


async def encoded(encoder: Collector, *texts: str) -> list[bytes]:
    """Encode some texts together."""
    numbers = [encoder.start(TextInput(text=text), wanted=Modality.TENSOR) for text in texts]
    await encoder.until_over(*numbers)
    return [encoder.data(number) for number in numbers]


def image(painter: Collector, number: int) -> Image.Image:
    painter.end(number)
    return Image.open(io.BytesIO(painter.data(number)))


async def test_nine_of_ten_random_captions_come_out_right(
    encoder: Collector, painter: Collector
) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201
    rng = random.Random(seed)
    wanted = [draw_caption(rng) for _ in range(40)]
    negative, *buffers = await encoded(encoder, "", *(caption for *_, caption in wanted))
    numbers = [
        painter.start(  # More than its slots, which is harmless: they wait.
            TensorsInput(buffers={"": buffer, "negative": negative}),
            wanted=Modality.IMAGE,
            seed=rng.getrandbits(32),
        )
        for buffer in buffers
    ]
    await painter.until_over(*numbers)
    judge = Judge()
    right = [
        (*judge.colours(drawn), judge.shape(drawn)) == (colour, background, shape)
        for number, (colour, shape, background, _) in zip(numbers, wanted, strict=True)
        for drawn in [image(painter, number)]
    ]
    assert right.count(True) >= 36, f"seed {seed}: {list(zip(wanted, right, strict=True))}"


async def test_an_image_drawn_in_a_batch_is_the_one_drawn_alone(painter: Collector) -> None:
    alone = await painter.run(STAR, wanted=Modality.IMAGE, seed=5)
    others = [painter.start(STAR, wanted=Modality.IMAGE, seed=seed) for seed in (3, 4, 5, 6)]
    await painter.until_over(*others)
    assert painter.data(others[2]) == painter.data(alone)
    assert len({painter.data(number) for number in others}) == 4


async def test_attempts_of_different_shapes_do_not_run_together(
    encoder: Collector, painter: Collector
) -> None:
    star, negative = await encoded(encoder, STAR.text, "")
    few = Params(image=ImageParams(steps=3))
    inputs: list[tuple[EngineInput, Params]] = [
        (STAR, Params()),
        (STAR, few),
        (TensorsInput(buffers={"": star}), Params()),
        (TensorsInput(buffers={"": star, "negative": negative}), Params()),
    ]
    numbers = [painter.start(one, wanted=Modality.IMAGE, params=params) for one, params in inputs]
    await painter.until_over(*numbers)
    for number in numbers:
        assert image(painter, number).size == (32, 32)


async def test_an_abort_stops_between_two_steps(painter: Collector) -> None:
    many = Params(image=ImageParams(steps=150))
    number = painter.start(STAR, wanted=Modality.IMAGE, params=many)
    before = painter.engine.load_report().steps
    short = Params(image=ImageParams(steps=1))
    second = painter.start(STAR, wanted=Modality.IMAGE, params=short)
    painter.engine.abort(number)
    await painter.until_over(number, second)
    assert painter.error(number).code is ErrorCode.ABORTED
    assert painter.engine.load_report().steps - before < 50


async def test_one_aborted_of_a_batch_ends_before_the_others(painter: Collector) -> None:
    blocker = painter.start(STAR, wanted=Modality.IMAGE)
    many = Params(image=ImageParams(steps=60))
    pair = [painter.start(STAR, wanted=Modality.IMAGE, params=many) for _ in range(2)]
    await painter.until_over(blocker)
    painter.engine.abort(pair[0])
    await painter.until_over(pair[0])
    assert painter.last(pair[1]) is None
    await painter.until_over(pair[1])
    assert image(painter, pair[1]).size == (32, 32)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        (ImageParams(width=64, height=64), ErrorCode.UNSUPPORTED),
        (ImageParams(steps=10_000), ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_what_it_cannot_draw_is_refused_at_once(
    painter: Collector, params: ImageParams, code: ErrorCode
) -> None:
    with pytest.raises(MeshError) as caught:
        painter.start(STAR, wanted=Modality.IMAGE, params=Params(image=params))
    assert caught.value.info.code is code
    assert painter.engine.load_report().running == 0


async def test_a_stock_pipeline_needs_no_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.helpers.stock_pipeline import save_stock_pipeline  # noqa: PLC0415

    monkeypatch.setenv("STAGEMESH_MODEL_ROOTS", str(tmp_path))
    folder = tmp_path / "stock"
    save_stock_pipeline(folder, locate("shapes", "diffusers").path / "tokenizer")
    config = EngineConfig(pool="pool", replica_id="replica-0", model=str(folder))
    async with collecting(find_engine("diffusers")(config)) as stock:
        params = Params(image=ImageParams(width=32, height=16, steps=4))
        number = await stock.run(STAR, wanted=Modality.IMAGE, params=params)
        assert image(stock, number).size == (32, 16)
        odd = Params(image=ImageParams(width=33, height=16, steps=4))
        refused = await stock.run(STAR, wanted=Modality.IMAGE, params=odd)
        assert stock.error(refused).code is ErrorCode.INVALID_ARGUMENT
        assert stock.error(refused).param == "size"


async def test_a_loader_that_is_not_there_is_a_bad_setting() -> None:
    options = {"loader": "services.stage_worker.models.shapes.loader:no_such"}
    config = EngineConfig(pool="painter", replica_id="r", model="shapes", options=options)
    engine = find_engine("diffusers")(config)
    with pytest.raises(BadSettings, match="pool painter: options: loader"):
        await engine.load(lambda line: None)
    await engine.close()
