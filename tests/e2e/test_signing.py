"""The deployed rotation of the master keys: it reads and writes the stage's real secret, under the rights it has."""

from __future__ import annotations

from collections.abc import Callable

from .rotation import TIMINGS, Secret, rotate, secret  # noqa: F401 - fixtures


def test_a_key_is_joined_and_then_replaced_by_the_next__and_a_second_run_changes_nothing(
    secret: Secret, rotate: Callable[[], None]
) -> None:
    (first,) = secret.keys
    rotate()
    assert [each.id for each in secret.keys] == [first.id], "a young key stays alone"

    secret.age(TIMINGS.signing_rotation)
    rotate()
    version, both = secret.read()
    current, following = both.keys
    assert (current.id, current.key, following.id) == (first.id, first.key, version)
    rotate()
    assert secret.read() == (version, both)

    secret.age(TIMINGS.signing_overlap)
    rotate()
    version, left = secret.read()
    assert [(each.id, each.key) for each in left.keys] == [(following.id, following.key)]
    rotate()
    assert secret.read() == (version, left)
