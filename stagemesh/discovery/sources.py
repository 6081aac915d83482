"""Discovery sources by name."""

from pathlib import Path

from stagemesh.discovery.endpoints import Source, parse_static
from stagemesh.discovery.file import FileSource
from stagemesh.discovery.static import StaticSource
from stagemesh.errors import BadSettings

__all__ = ["open_source"]


def open_source(spec: str) -> Source:
    """Open `file:PATH` or `static:GROUP=ID@HOST:PORT,…;…`.

    Raises:
        BadSettings: If it is neither, or cannot be.
    """
    kind, _, rest = spec.partition(":")
    match kind:
        case "file" if rest:
            return FileSource(Path(rest))
        case "static" if rest:
            return StaticSource(parse_static(rest))
        case _:
            raise BadSettings(f"discovery: {spec!r} is neither file:PATH nor static:GROUPS")
