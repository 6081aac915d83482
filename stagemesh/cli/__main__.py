"""`python -m stagemesh.cli` is `stagemesh`."""

from stagemesh.cli import main

main(prog_name="stagemesh")
