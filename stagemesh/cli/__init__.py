"""The command line: starts a mesh of local processes, and looks at one that runs."""

from stagemesh.cli.commands import main

__all__ = ["main"]
