"""`python -m services.stage_worker`: one stage worker, until SIGTERM."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from services.stage_worker.app import serve
from services.stage_worker.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.pipeline import MeshFileError, Pool, parse_mesh
from stagemesh.settings import load
from stagemesh.telemetry import configure_logs

USAGE_ERROR: Final = 2
BROKEN: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker; gives 0 after a drain, 1 for a broken engine, 2 for what was set wrong."""
    flags = vars(_parser().parse_args(arguments))
    try:
        settings = load(Settings, {}, os.environ, "STAGEMESH", flags)
        pool = _read_pool(settings)
    except (BadSettings, MeshFileError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR
    configure_logs("stage_worker", settings.replica_id, level=settings.log_level)
    try:
        return 0 if asyncio.run(serve(settings, pool)) else BROKEN
    except (BadSettings, OSError) as error:
        logging.getLogger(__name__).error("cannot_start", extra={"reason": str(error)})
        return USAGE_ERROR


def _read_pool(settings: Settings) -> Pool:
    mesh = parse_mesh(settings.mesh.read_text(encoding="utf-8"), str(settings.mesh))
    pool = mesh.pools.get(settings.pool)
    if pool is None:
        raise BadSettings(f"{settings.mesh} has no pool called {settings.pool!r}")
    return pool


def _parser() -> argparse.ArgumentParser:
    """Make the parser: one flag for each setting, and none has a default of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m services.stage_worker",
        description="Runs one stage worker. Every flag is also read from STAGEMESH_<NAME>.",
    )
    parser.add_argument("--mesh", metavar="FILE", help="the mesh file")
    parser.add_argument("--pool", metavar="NAME", help="the pool that this replica belongs to")
    parser.add_argument("--replica-id", metavar="ID", help="the name of this replica in the mesh")
    parser.add_argument("--listen", metavar="HOST:PORT", help="the port for orchestrators")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="where others reach --listen")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="where /metrics is served")
    parser.add_argument("--drain-s", type=float, metavar="S", help="the time to finish on SIGTERM")
    parser.add_argument("--stall-s", type=float, metavar="S")
    parser.add_argument("--lease-s", type=float, metavar="S")
    parser.add_argument("--payload-bytes-max", type=int, metavar="N")
    parser.add_argument("--payload-directory", metavar="DIR")
    parser.add_argument("--outbox-bytes-max", type=int, metavar="N")
    parser.add_argument("--log-level", metavar="LEVEL")
    for name in ("insecure", "reflection"):
        parser.add_argument(f"--{name}", action="store_true", default=None)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
