"""Whatever is put, read, kept and released in whatever order, every view shows what was put."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from stagemesh.errors import MeshError
from stagemesh.media import Handle
from stagemesh.payload.files import data_path, open_named
from tests.helpers.payloads import store_in

pytestmark = pytest.mark.invariant("PAYLOAD-INV-100")

KIB = 1024
BYTES_MAX = 3 * 1024 * KIB
SIZES = st.integers(200 * KIB, 1000 * KIB)


class Views(RuleBasedStateMachine):
    """One store, and readers of it that keep what they got for as long as they like."""

    handles = Bundle("handles")

    @initialize()
    def start(self) -> None:
        """Open a store whose released files soon fill it."""
        self._folder = TemporaryDirectory()
        self._store = store_in(Path(self._folder.name), bytes_max=BYTES_MAX, clock=lambda: 0.0)
        self._puts = 0
        self._bytes: dict[str, bytes] = {}
        self._views: list[tuple[memoryview, str]] = []

    @rule(target=handles, size_bytes=SIZES)
    def put(self, size_bytes: int) -> object:
        """Put bytes that no other put has."""
        self._puts += 1
        data = self._puts.to_bytes(4, "big") * (size_bytes // 4)
        try:
            handle = self._store.put(data, f"req_{self._puts}")
        except MeshError:
            return multiple()
        self._bytes[handle.handle_id] = data
        return handle

    @rule(handle=handles)
    def read(self, handle: Handle) -> None:
        """Map a handle as the holder does."""
        view = self._store.read(handle.handle_id, handle.request_id)
        self._views.append((view, handle.handle_id))

    @rule(handle=consumes(handles))
    def release(self, handle: Handle) -> None:
        """Drop a handle: from now on its name leads nowhere."""
        self._store.release(handle.request_id)
        path = data_path(handle.probe, handle.handle_id)
        assert path is not None
        with pytest.raises(FileNotFoundError):
            open_named(path)

    @rule(which=st.integers(0, 100))
    def let_go(self, which: int) -> None:
        """Let one view go."""
        if self._views:
            view, _ = self._views.pop(which % len(self._views))
            view.release()

    @rule()
    def sweep(self) -> None:
        """Let the time of all released files end."""
        self._store.sweep(59.0)
        assert self._store.warm_bytes <= BYTES_MAX

    @invariant()
    def every_view_shows_what_was_put(self) -> None:
        """Compare all of them, from the first byte to the last."""
        assert all(bytes(view) == self._bytes[handle_id] for view, handle_id in self._views)

    @invariant()
    def the_bound_holds(self) -> None:
        """Released files count too."""
        assert self._store.bytes_used + self._store.warm_bytes <= BYTES_MAX

    def teardown(self) -> None:
        """Leave nothing behind."""
        for view, _ in self._views:
            view.release()
        self._store.close()
        assert list(Path(self._folder.name).iterdir()) == []
        self._folder.cleanup()


TestViews = Views.TestCase
TestViews.settings = settings(stateful_step_count=30)
