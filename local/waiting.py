"""Waits for what happens by itself, asking instead of assuming."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NeverHappened(AssertionError):
    """A condition was not met in time."""


def eventually(
    condition: Callable[[], T | None], *, within: float = 30.0, every: float = 0.02, what: str | None = None
) -> T:
    """Call `condition` until it answers something true, and return that.

    Parameters
    ----------
    within
        Seconds until NeverHappened is raised, with the last answer or error.
    every
        Seconds between two calls.
    what
        What is awaited, for the message; by default the condition's own name.

    An AssertionError of the condition counts as "not yet"; any other error is raised at once.
    """
    deadline = time.monotonic() + within
    while True:
        problem: AssertionError | None = None
        answer: T | None = None
        try:
            if answer := condition():
                return answer
        except AssertionError as error:
            problem = error
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", repr(condition))
            raise NeverHappened(f"{name}: not within {within:g} s; last: {problem or repr(answer)}") from problem
        time.sleep(every)
