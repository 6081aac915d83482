"""A program that is as a worker is to its engine: it loads one, says so, and waits to be killed."""

import asyncio
import sys
import tempfile

import msgspec

from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import EngineConfig


async def main() -> None:
    """Load the engine that the arguments name, from a temporary folder of its own."""
    name, config, folder = sys.argv[1:]
    tempfile.tempdir = folder
    engine = find_engine(name)(msgspec.json.decode(config, type=EngineConfig))
    await engine.load(lambda line: None)
    sys.stdout.write("loaded\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
