"""Sending a wave: events of different subjects, in calls side by side, and again what a call did not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

from mailroom.failures import Unavailable
from mailroom.outbox.table import PendingEvent
from mailroom.publishers.publisher import NotTaken, Outcome, Publisher, Sent, batches, outcomes_of
from mailroom.retry import retry
from mailroom.runtime import Runtime

SIDE_BY_SIDE = 4
"""Calls to the destination at once."""

Judge = Callable[[PendingEvent, Outcome], None]


class _SomeLeft(Unavailable):
    """The calls went well, and did not take all events."""


class Sender:
    """Sends waves to the destination.

    Parameters
    ----------
    ensure
        Sees before each few calls that the shard is still ours. What it raises passes through.
    paused
        Whether nothing more is to be sent: a call failed as a whole.
    deadline
        The `clock.monotonic()` from which nothing is sent again.
    """

    def __init__(
        self,
        runtime: Runtime,
        publisher: Publisher,
        threads: Executor,
        *,
        ensure: Callable[[], None],
        paused: Callable[[], bool],
        deadline: float | None,
    ) -> None:
        self._runtime = runtime
        self._publisher = publisher
        self._threads = threads
        self._ensure = ensure
        self._paused = paused
        self._deadline = deadline

    def send(self, wave: Sequence[PendingEvent], judge: Judge) -> None:
        """Send a wave, and within moments those few again that calls that went well did not take.

        Parameters
        ----------
        judge
            Gets each event with what came of it in the end, once; none whose turn has not come.
        """
        left: dict[PendingEvent, Outcome | None] = dict.fromkeys(wave)

        def attempt() -> None:
            for event, outcome in self._calls(list(left)):
                if isinstance(outcome, NotTaken) and outcome.retry_after is None:
                    left[event] = outcome
                else:
                    del left[event]
                    judge(event, outcome)
            if any(left.values()):
                raise _SomeLeft(f"{len(left)} events were not taken")

        runtime = self._runtime
        try:
            retry(
                attempt,
                backoff=runtime.timings.resend_backoff,
                clock=runtime.clock,
                random=runtime.random,
                on=_SomeLeft,
                until=self._paused,
                deadline=self._deadline,
            )
        except _SomeLeft:
            for event, outcome in left.items():
                if outcome is not None:
                    judge(event, outcome)

    def _calls(self, events: Sequence[PendingEvent]) -> Iterator[tuple[PendingEvent, Outcome]]:
        """Send events, some calls side by side; what was sent comes first, so that no error can hide it."""
        waiting = iter(events)
        loads = list(batches([event.envelope() for event in events], self._publisher))
        for start in range(0, len(loads), SIDE_BY_SIDE):
            if self._paused():
                return
            self._ensure()
            group = loads[start : start + SIDE_BY_SIDE]
            send = partial(outcomes_of, self._publisher)
            answers = self._threads.map(send, group) if len(group) > 1 else map(send, group)
            outcomes = [outcome for answer in answers for outcome in answer]
            answered = [(next(waiting), outcome) for outcome in outcomes]
            yield from sorted(answered, key=lambda pair: not isinstance(pair[1], Sent))
