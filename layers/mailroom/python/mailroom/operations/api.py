"""The routes of the operators' API. Payloads are shown of single events alone."""

from __future__ import annotations

from typing import Any

from mailroom import telemetry
from mailroom.clock import timestamp
from mailroom.cursor import BadCursor
from mailroom.dead_letters.demand import redrive_matching
from mailroom.dead_letters.desk import UnknownSource
from mailroom.dead_letters.letter import DeadLetter, Deed, Fate
from mailroom.deployment import Deployment
from mailroom.http import kinds
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.problem import Problem, ProblemKind
from mailroom.http.reply import Reply
from mailroom.needs import Access
from mailroom.operations.ports import RedriveDesk, StageStatus
from mailroom.operations.views import (
    USUAL_LIMIT,
    Document,
    EventView,
    ListLetters,
    ListOutbox,
    Page,
    RedriveLetters,
    Redriven,
    WholeEvent,
)
from mailroom.outbox.listing import NEEDS, NotByShard, find_event, list_events
from mailroom.paging import page_of
from mailroom.telemetry import LogEvent

NO_SUCH_EVENT = ProblemKind(404, "no-such-event", "The outbox has no such event")
NO_SUCH_SOURCE = ProblemKind(404, "no-such-source", "Nothing of this name has dead letters")

api = Api(
    access=Access(uses=(Deployment, RedriveDesk, StageStatus), needs=(NEEDS,)),
    problems={
        BadCursor: kinds.INVALID_QUERY,
        NotByShard: kinds.INVALID_QUERY,
        UnknownSource: NO_SUCH_SOURCE,
    },
    for_operators=True,
)


@api.get("/ops/v1/outbox", query=ListOutbox)
def get_outbox(query: ListOutbox, call: Call) -> Reply:  # noqa: ARG001 - every route takes the call
    """List events of one status, oldest first within a shard."""
    found, cursor = list_events(query.status, shard=query.shard, cursor=query.cursor, limit=query.limit)
    return Reply(200, Page(items=[EventView.of(each) for each in found], next_cursor=cursor))


@api.get("/ops/v1/outbox/{event_id}")
def get_event(call: Call, event_id: str) -> Reply:  # noqa: ARG001 - every route takes the call
    """Show one event, payload included."""
    found = find_event(event_id)
    if found is None:
        raise Problem(NO_SUCH_EVENT, "sent events are forgotten in time, others never were")
    return Reply(200, WholeEvent.of(found))


@api.get("/ops/v1/dead-letters", query=ListLetters)
def get_dead_letters(query: ListLetters, call: Call) -> Reply:
    """List what could not be published, and what consumers fail at."""
    desk = call.work.use(RedriveDesk)

    def read(source: str, cursor: str | None, limit: int) -> tuple[list[DeadLetter], str | None]:
        return desk.of(source).page(cursor, limit=limit)

    sources = desk.sources if query.source is None else [desk.of(query.source).name]
    letters, cursor = page_of(sources, read, cursor=query.cursor, limit=query.limit)
    return Reply(200, Page(items=[Document(each.to_dict()) for each in letters], next_cursor=cursor))


@api.post("/ops/v1/dead-letters/redrive", body=RedriveLetters)
def post_redrive(command: RedriveLetters, call: Call) -> Reply:
    """Send letters again; answers 200 with what came of each, whatever that is.

    Rows and messages are moved one by one, so that they cannot be part of the transaction that completes the
    idempotency key: the letters are moved first, and the reply is committed after. After a crash in between, the
    same key moves what is left: a letter that was moved already answers `not dead`, or `not in the dead-letter
    queue`, and no effect happens twice for it; without ids, it is not dead any more. With `force` it might: that is
    what force says.
    """
    desk = call.work.use(RedriveDesk)
    deed = Deed(by=call.caller.name, at=timestamp(call.work.now()), why=command.why)
    reply = _named(command, desk, deed, call) if command.ids else _matching(command, desk, deed, call)
    telemetry.log(
        LogEvent.LETTERS_REDRIVEN,
        source=command.source,
        done=reply.done,
        failed=reply.failed,
        more=reply.more,
        by=deed.by,
        why=deed.why,
    )
    return Reply(200, reply)


def _named(command: RedriveLetters, desk: RedriveDesk, deed: Deed, call: Call) -> Redriven:
    letters, ids = desk.of(command.source or ""), list(dict.fromkeys(command.ids or ()))
    results = {each.id: each for each in letters.redrive(ids, deed, force=command.force, stop=call.out_of_time)}
    return Redriven.of(
        [results[each] for each in ids], more=any(each.fate is Fate.NOT_TRIED for each in results.values())
    )


def _matching(command: RedriveLetters, desk: RedriveDesk, deed: Deed, call: Call) -> Redriven:
    source = None if command.source is None else desk.of(command.source).name
    demanded = redrive_matching(
        desk,
        command.filter,
        deed,
        source=source,
        limit=command.limit or USUAL_LIMIT,
        force=command.force,
        stop=call.out_of_time,
    )
    return Redriven.of(demanded.results, more=demanded.more)


@api.get("/ops/v1/status")
def get_status(call: Call) -> Reply:
    """Show how shards, consumers and jobs are doing."""
    status: dict[str, Any] = call.work.use(StageStatus).to_dict()
    return Reply(200, Document(status))
