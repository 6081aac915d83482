"""Discovery: where to connect, and nothing more."""

from stagemesh.discovery.endpoints import Endpoint, Source
from stagemesh.discovery.file import FileSource
from stagemesh.discovery.sources import open_source
from stagemesh.discovery.static import StaticSource

__all__ = ["Endpoint", "FileSource", "Source", "StaticSource", "open_source"]
