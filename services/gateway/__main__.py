"""`python -m services.gateway`: one gateway, until SIGTERM."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from services.gateway.app import serve
from services.gateway.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.settings import load
from stagemesh.telemetry import configure_logs

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a gateway; gives 0 after a drain, 2 for what was set wrong, and raises our bugs."""
    flags = vars(_parser().parse_args(arguments))
    try:
        settings = load(Settings, {}, os.environ, "STAGEMESH", flags)
    except BadSettings as error:
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR
    configure_logs("gateway", settings.id, level=settings.log_level)
    try:
        asyncio.run(serve(settings))
    except (BadSettings, OSError) as error:
        logging.getLogger(__name__).error("cannot_start", extra={"reason": str(error)})
        return USAGE_ERROR
    return 0


def _parser() -> argparse.ArgumentParser:
    """Make the parser; no flag has a default of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m services.gateway",
        description="Runs one gateway. Every flag is also read from STAGEMESH_<NAME>.",
    )
    parser.add_argument("--id", help="the name of this gateway in the mesh")
    parser.add_argument("--discovery", metavar="SOURCE", help="file:PATH or static:GROUP=ID@ADDR,…")
    parser.add_argument("--http", metavar="HOST:PORT", help="the port for clients")
    parser.add_argument("--payload", metavar="HOST:PORT", help="where large inputs are fetched")
    parser.add_argument("--allowed-hosts", metavar="NAMES", help="further Host names, by comma")
    parser.add_argument("--allowed-origins", metavar="ORIGINS", help="web origins, by comma")
    parser.add_argument("--drain-s", type=float, metavar="S", help="the time to finish on SIGTERM")
    parser.add_argument("--log-level", metavar="LEVEL")
    parser.add_argument("--insecure", action="store_true", default=None)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
