"""`python -m tools.replay DUMP --mesh FILE`: 0 if all came as it was recorded, else 1."""

import argparse
import sys
import traceback
from pathlib import Path

from services.orchestrator.driver import BadDump, read_dump
from stagemesh.pipeline import MeshFileError, parse_mesh
from tools.replay.replaying import replay

_SHOWN_MAX = 10


def main() -> int:
    """Read, play, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tools.replay", description=__doc__)
    parser.add_argument("dump", type=Path, help="a file that an orchestrator has written")
    parser.add_argument("--mesh", type=Path, required=True, help="the mesh file that it ran on")
    options = parser.parse_args()
    try:
        dump = read_dump(options.dump)
        mesh = parse_mesh(options.mesh.read_text(encoding="utf-8"), str(options.mesh))
        verdict = replay(dump, mesh)
    except (BadDump, MeshFileError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    out = sys.stdout.write
    out(f"{dump.orchestrator_id} ({dump.incarnation:016x}), written because: {dump.reason}\n")
    whole = "from the start of the core" if verdict.exact else f"{dump.skipped} inputs came before"
    out(f"{verdict.steps} inputs, {whole}; {verdict.left_out} things left out\n")
    for line in verdict.differences[:_SHOWN_MAX]:
        out(f"  {line}\n")
    if len(verdict.differences) > _SHOWN_MAX:
        out(f"  and {len(verdict.differences) - _SHOWN_MAX} more\n")
    if verdict.raised is not None:
        out("the core raised again:\n")
        out("".join(traceback.format_exception(verdict.raised)))
    return 1 if verdict.differences else 0


if __name__ == "__main__":
    sys.exit(main())
