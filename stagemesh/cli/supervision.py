"""When a process that died comes back, and in which order processes are told to go.

Pure: time is an argument, and nothing here starts, signals or waits for anything.
"""

import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = [
    "Child",
    "ChildState",
    "Role",
    "StopOrders",
    "SupervisionPolicy",
    "is_clean_exit",
    "is_up",
    "stop_orders",
]


class Role(StrEnum):
    """What a process of the mesh is."""

    GATEWAY = "gateway"
    ORCHESTRATOR = "orchestrator"
    STAGE_WORKER = "stage_worker"


class ChildState(StrEnum):
    """What the launcher knows of a process."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    CRASH_LOOP = "crash-loop"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionPolicy:
    """How patient the launcher is.

    A death is fast if it comes before the process has been ready for `settled_s`.
    """

    backoff_min_s: float = 1.0
    backoff_max_s: float = 30.0
    settled_s: float = 10.0
    fast_deaths_max: int = 5


class Child:
    """The lives of one process, one after the other."""

    def __init__(self, policy: SupervisionPolicy) -> None:
        self._policy = policy
        self._ready_since_s: float | None = None
        self._fast_deaths = 0
        self.state = ChildState.STARTING
        self.pid = 0

    @property
    def was_ready(self) -> bool:
        """Whether it has been ready in its present or last life."""
        return self._ready_since_s is not None

    def started(self, pid: int) -> None:
        """Note a new life; one that follows too many fast deaths has to prove itself first."""
        self.pid = pid
        self._ready_since_s = None
        if self.state is not ChildState.CRASH_LOOP:
            self.state = ChildState.STARTING

    def probed(self, ready: bool, now_s: float) -> None:
        """Note what the process says of itself."""
        if self.state is ChildState.STOPPING:
            return
        if ready:
            self.state = ChildState.READY
            if self._ready_since_s is None:
                self._ready_since_s = now_s
        elif self.state is ChildState.READY:
            self.state = ChildState.STARTING

    def died(self, now_s: float) -> float:
        """Note a death; give the seconds until the next life should begin."""
        policy, since_s = self._policy, self._ready_since_s
        self.pid = 0
        if since_s is not None and now_s - since_s >= policy.settled_s:
            self._fast_deaths = 0
            self.state = ChildState.RESTARTING
            return policy.backoff_min_s
        self._fast_deaths += 1
        looping = self._fast_deaths >= policy.fast_deaths_max
        self.state = ChildState.CRASH_LOOP if looping else ChildState.RESTARTING
        # The exponent is bounded, or the number of deaths would in time be too large for a float.
        doublings = min(self._fast_deaths - 1, 16)
        return min(policy.backoff_min_s * 2.0**doublings, policy.backoff_max_s)

    def stopping(self) -> None:
        """Note that it was told to go."""
        self.state = ChildState.STOPPING

    def stopped(self) -> None:
        """Note that it has gone for good."""
        self.pid = 0
        self.state = ChildState.STOPPED


def is_up(processes: Iterable[tuple[Role, str, ChildState]]) -> bool:
    """Tell whether a mesh can serve: everything is ready, of each pool at least one replica."""
    waiting: set[tuple[Role, str]] = set()
    served: set[tuple[Role, str]] = set()
    for role, pool, state in processes:
        if state is ChildState.READY:
            served.add((role, pool))
        else:
            waiting.add((role, pool))
    workers = {key for key in waiting if key[0] is Role.STAGE_WORKER}
    return waiting - workers == set() and workers <= served


def is_clean_exit(code: int, *, was_ready: bool) -> bool:
    """Tell whether a process of a mesh that stops ended as it should.

    One that was still loading may not have got as far as to mind the signal.
    """
    return code == 0 or (code == -signal.SIGTERM and not was_ready)


DRAIN_S: Final[Mapping[Role, float]] = {
    Role.GATEWAY: 8.0,
    Role.ORCHESTRATOR: 4.0,
    Role.STAGE_WORKER: 1.0,
}
"""How long requests may go on in each kind of process, once it was told to stop."""

# When each kind is told to go at the latest, and when whatever is left is killed. The time to drain
# ends for orchestrators as it does for gateways; an engine then has some seconds to come down.
_TOLD_S: Final = {Role.GATEWAY: 0.0, Role.ORCHESTRATOR: 4.0, Role.STAGE_WORKER: 9.0}
_KILLED_S: Final = 14.0


class StopOrders(NamedTuple):
    """Which kinds are to be told to go now, whether to kill, and when to look again."""

    tell: tuple[Role, ...]
    kill: bool
    next_s: float


def stop_orders(elapsed_s: float, alive: Collection[Role], told: Collection[Role]) -> StopOrders:
    """Decide what is due, `elapsed_s` after the mesh was told to stop.

    Gateways go first, so that clients are turned away while what they began is still served; then
    orchestrators, which must leave before the workers that they drive. A kind is told when nothing
    is left of those before it, or when it is time.
    """
    tell: list[Role] = []
    before_alive = False
    for role, due_s in _TOLD_S.items():
        if role not in told:
            if before_alive and elapsed_s < due_s:
                return StopOrders(tuple(tell), False, due_s)
            tell.append(role)
        before_alive = before_alive or role in alive
    return StopOrders(tuple(tell), elapsed_s >= _KILLED_S, _KILLED_S)
