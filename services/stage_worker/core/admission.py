"""Which roles of a submission become attempts, and what they replace."""

from collections.abc import Callable

from services.stage_worker.core.attempt import Attempt
from services.stage_worker.core.effects import StartAttempt
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.fences import Recent
from services.stage_worker.core.limits import Limits
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.submission import RoleSpec, Submission
from services.stage_worker.core.table import AttemptTable
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["Admission"]


class Admission:
    """Takes the roles of a submission or refuses them, a group at a time."""

    def __init__(
        self, attempts: AttemptTable, endings: Endings, orders: Orders, limits: Limits
    ) -> None:
        self._attempts = attempts
        self._endings = endings
        self._orders = orders
        self._limits = limits
        self._aborted_early: Recent[tuple[int, int]] = Recent(limits.tombstones_max)

    def aborted(self, link: int, slot: int) -> None:
        """Note an abort that came before its submission."""
        self._aborted_early.add((link, slot))

    def take(
        self,
        link: int,
        submission: Submission,
        *,
        window: tuple[int, int],
        closed: Callable[[int], ErrorInfo | None],
        now_s: float,
    ) -> None:
        """Take what there is room for; `closed` says what is against so many attempts more."""
        replaced = self._replaced(submission)
        for group in submission.groups():
            error = closed(len(group))
            for role in group:
                cause = replaced.get(role.role) or self._against(link, role) or error
                if cause is not None:
                    self._endings.refuse(link, submission, role, cause)
                else:
                    self._accept(link, submission, role, window, now_s)

    def has_room(self, attempts: int, slots_free: int) -> bool:
        """Tell whether there is room for so many attempts more."""
        return (
            attempts <= slots_free
            and len(self._attempts) + attempts <= self._limits.attempts_max
            and self._attempts.held_bytes <= self._limits.held_bytes_max
        )

    def _replaced(self, submission: Submission) -> dict[int, ErrorInfo]:
        """End lower keys of the same stage and roles; give the roles of which a higher one is here.

        Of two with one key the later wins.
        """
        higher: dict[int, ErrorInfo] = {}
        roles = {role.role for role in submission.roles}
        for attempt in self._attempts.of_request(submission.request_id):
            role = attempt.role.role
            if attempt.submission.stage != submission.stage or role not in roles:
                continue
            error = error_for("aborted", "A later attempt replaced it.")
            if attempt.submission.key > submission.key:
                higher[role] = error
            else:
                self._endings.fail(attempt, error)
        return higher

    def _against(self, link: int, role: RoleSpec) -> ErrorInfo | None:
        """Say what speaks against this role, apart from room."""
        if self._aborted_early.discard((link, role.slot)):
            return error_for("aborted")
        holder = self._attempts.at(link, role.slot)
        if holder is None:
            return None
        error = error_for("protocol_error", f"slot {role.slot} is in use")
        self._endings.fail(holder, error)
        return error

    def _accept(
        self,
        link: int,
        submission: Submission,
        role: RoleSpec,
        window: tuple[int, int],
        now_s: float,
    ) -> None:
        attempt = Attempt(
            number=self._attempts.next_number(),
            link=link,
            submission=submission,
            role=role,
            output_window=window,
            input_window=(self._limits.input_window_units, self._limits.input_window_bytes),
            now_s=now_s,
        )
        self._attempts.add(attempt)
        self._orders.add(StartAttempt(attempt=attempt.number, submission=submission, role=role))
