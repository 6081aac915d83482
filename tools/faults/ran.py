"""What ran, read from the reports that pytest writes with `--junitxml`."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Ran", "Verdict", "read_reports"]


class Verdict(IntEnum):
    """How a test came out; of two verdicts on one test the higher counts."""

    PASSED = 0
    SKIPPED = 1
    FAILED = 2


class Ran:
    """Every test case that ran, by the name under which a report lists it."""

    def __init__(self, verdicts: Mapping[str, Verdict]) -> None:
        self._verdicts = verdicts
        self._cases: dict[str, list[str]] = {}
        for name in verdicts:
            for owner in _owners(name):
                self._cases.setdefault(owner, []).append(name)

    def of(self, node_id: str) -> list[Verdict]:
        """Give the verdicts on what a node id names.

        Without brackets that is every case of a test; without a test, everything in a module.
        """
        name = _listed(node_id)
        if name in self._verdicts:
            return [self._verdicts[name]]
        return [self._verdicts[case] for case in self._cases.get(name, ())]


def read_reports(paths: Iterable[Path]) -> Ran:
    """Read some reports as one.

    Raises:
        ValueError: If one is missing or is no report.
    """
    verdicts: dict[str, Verdict] = {}
    for path in paths:
        try:
            tree = ElementTree.parse(path)
        except (OSError, ElementTree.ParseError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        for case in tree.iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            verdicts[name] = max(_verdict(case), verdicts.get(name, Verdict.PASSED))
    return Ran(verdicts)


def _verdict(case: ElementTree.Element) -> Verdict:
    if case.find("failure") is not None or case.find("error") is not None:
        return Verdict.FAILED
    return Verdict.PASSED if case.find("skipped") is None else Verdict.SKIPPED


def _listed(node_id: str) -> str:
    """Give the name under which a report lists what a node id names, as pytest makes it."""
    name, bracket, parameters = node_id.partition("[")
    path, *inside = name.split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *inside]) + bracket + parameters


def _owners(name: str) -> Iterator[str]:
    """Name what a case belongs to: its test, if it has parameters, and all that is around it."""
    test, bracket, _ = name.partition("[")
    if bracket:
        yield test
    words = test.split(".")
    yield from (".".join(words[:count]) for count in range(1, len(words)))
