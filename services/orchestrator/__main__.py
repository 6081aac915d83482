"""`python -m services.orchestrator`: one orchestrator, until SIGTERM."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from services.orchestrator.app import serve
from services.orchestrator.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.pipeline import Mesh, MeshFileError, parse_mesh
from stagemesh.settings import load
from stagemesh.telemetry import configure_logs

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an orchestrator; gives 0 after a drain, 2 for what was set wrong, and raises our bugs."""
    flags = vars(_parser().parse_args(arguments))
    try:
        settings = load(Settings, {}, os.environ, "STAGEMESH", flags)
        mesh = _read_mesh(settings)
    except (BadSettings, MeshFileError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR
    configure_logs("orchestrator", settings.id, level=settings.log_level)
    try:
        asyncio.run(serve(settings, mesh))
    except (BadSettings, OSError) as error:
        logging.getLogger(__name__).error("cannot_start", extra={"reason": str(error)})
        return USAGE_ERROR
    return 0


def _read_mesh(settings: Settings) -> Mesh:
    return parse_mesh(settings.mesh.read_text(encoding="utf-8"), str(settings.mesh))


def _parser() -> argparse.ArgumentParser:
    """Make the parser: one flag for each setting, and none has a default of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m services.orchestrator",
        description="Runs one orchestrator. Every flag is also read from STAGEMESH_<NAME>.",
    )
    parser.add_argument("--mesh", metavar="FILE", help="the mesh file")
    parser.add_argument("--id", help="the name of this orchestrator in the mesh")
    parser.add_argument("--discovery", metavar="SOURCE", help="file:PATH or static:GROUP=ID@ADDR,…")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="the port for gRPC clients")
    parser.add_argument("--link", metavar="HOST:PORT", help="the port for gateways")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="where workers reach --link")
    parser.add_argument("--admin", metavar="HOST:PORT", help="the port for operators")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="where /metrics is served")
    parser.add_argument(
        "--orchestrators", type=int, metavar="M", help="how many share the mesh's limits"
    )
    parser.add_argument("--drain-s", type=float, metavar="S", help="the time to finish on SIGTERM")
    parser.add_argument("--slow-s", type=float, metavar="S", help="the time of a slow client")
    parser.add_argument("--stall-s", type=float, metavar="S", help="the time of a silent engine")
    parser.add_argument("--lease-s", type=float, metavar="S", help="the workers' own --lease-s")
    parser.add_argument("--payload-bytes-max", type=int, metavar="N")
    parser.add_argument("--payload-directory", metavar="DIR")
    parser.add_argument("--dump-directory", metavar="DIR", help="where a failing core is dumped")
    parser.add_argument("--log-level", metavar="LEVEL")
    for name in ("insecure", "reflection"):
        parser.add_argument(f"--{name}", action="store_true", default=None)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
