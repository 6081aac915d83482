import msgspec

from services.stage_worker.core import Source
from tests.helpers.worker_core import submission


def test_roles_belong_to_choices_modulo_their_number() -> None:
    given = submission(slots=(1, 2, 3, 4), choices=2)
    assert [[role.role for role in group] for group in given.groups()] == [[0, 2], [1, 3]]


def test_a_role_reads_the_sources_of_its_choice() -> None:
    sources = tuple(
        Source(lane=lane, stage="s", companion="", choice=choice)
        for lane, choice in ((16, 0), (16, 1), (32, 1))
    )
    given = msgspec.structs.replace(submission(slots=(1, 2, 3), choices=2), sources=sources)
    assert [[source.lane for source in given.sources_of(role)] for role in given.roles] == [
        [16],
        [16, 32],
        [16],
    ]
