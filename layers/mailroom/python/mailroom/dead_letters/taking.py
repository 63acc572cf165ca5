"""Taking certain messages out of a dead-letter queue: each after something was done with it, each with an outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mailroom.dead_letters.letter import Fate, Result
from mailroom.dead_letters.queue import DeadLetterQueue, DeadMessage, Look, never
from mailroom.failures import failure_of

Act = Callable[[DeadMessage], str]
"""What is done with a message before it is deleted; returns what there is to say of it."""


class Taker:
    """Takes messages out of one queue.

    Whoever dies between the deed and the deletion leaves the message there: it comes again, and so does the deed.

    Parameters
    ----------
    source
        What the letters' source is called.
    """

    def __init__(self, source: str, queue: DeadLetterQueue) -> None:
        self._source = source
        self._queue = queue

    def take(self, ids: Iterable[str], act: Act, *, stop: Callable[[], bool] = never) -> Iterator[Result]:
        """Do something with messages and delete them; one look finds them all, or says how far it came."""
        wanted = dict.fromkeys(ids)
        if not wanted:
            return
        with self._queue.searching(stop=stop) as look:
            for message in look:
                if message.id in wanted:
                    del wanted[message.id]
                    yield self._take_one(look, message, act)
                if not wanted:
                    break
        for event_id in wanted:
            yield self._not_found(event_id, look)

    def _take_one(self, look: Look, message: DeadMessage, act: Act) -> Result:
        done = ""
        try:
            detail = act(message)
            done = "it is done, but its message is still there: "
            look.take(message)
        except Exception as error:  # one letter's trouble is not the next one's
            failure = failure_of(error)
            return Result(message.id, self._source, Fate.FAILED, f"{done}{failure.type}: {failure.message}")
        return Result(message.id, self._source, Fate.DONE, detail)

    def _not_found(self, event_id: str, look: Look) -> Result:
        depth = self._queue.depth()
        if look.was_stopped:
            fate, detail = Fate.NOT_TRIED, "the time was up before its message was found: try again"
        elif look.reached_end:
            others = depth - (look.seen - look.taken)
            elsewhere = f"; {others:,} more are in somebody's hands, try again in two minutes" if others > 0 else ""
            fate, detail = Fate.NOT_IN_QUEUE, f"its message is not in the dead-letter queue{elsewhere}"
        else:
            about = max(depth + look.taken, look.seen)
            fate, detail = Fate.NOT_FOUND, f"not found among the first {look.seen:,} of about {about:,} looked at"
        return Result(event_id, self._source, fate, detail)
