"""`python -m tools.docs` writes the generated pages; with `--check` it only compares them."""

import argparse
import sys
from collections.abc import Sequence

from tools.docs.pages import DOCS, PAGES

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what has changed, or say so with `--check`; gives 1 if a page is stale."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    stale = 0
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"docs/{name}: {'stale; run `make docs`' if check else 'written'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
