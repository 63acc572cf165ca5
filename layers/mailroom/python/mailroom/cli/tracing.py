"""`mailroom trace` and `mailroom dead show`: what happened to an event, step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from mailroom.cli.layout import count, facts, heading, paragraph
from mailroom.cli.operator import Operator
from mailroom.clock import timestamp
from mailroom.dead_letters.letter import OUTBOX, DeadLetter, Search
from mailroom.trace import NothingKnown, TracedEvent, Tracer


def trace(operator: Operator, key: str, *, limit: int) -> None:
    """Show the events that led to one, or to a subject's latest, as a timeline."""
    found = Tracer(operator.runtime, operator.deployment).trace(key, limit=limit)
    more = [paragraph(f"Earlier events were not followed: trace {found.more}, or --limit.")] if found.more else []
    shown = [part for event in found.events for part in (*_event(event), Text())]
    operator.answer(found.to_dict(), *shown, *more)


def show(operator: Operator, event_id: str, *, payload: bool) -> None:
    """Show all that is known of one event in every source."""
    letters = operator.desk.find(event_id)
    event = Tracer(operator.runtime, operator.deployment).event(event_id)
    if not letters or (payload and event.payload is None):
        looked = operator.desk.search([event_id])
        letters = letters or list(looked.letters)
        if not letters and not event.is_known:
            raise NothingKnown(
                f"nothing tells of {event_id}: neither the outbox nor a consumer's record, {_nor(looked)}"
            )
        event = _with_what_lies_there(event, looked)
    document: dict[str, Any] = {
        "letters": [letter.to_dict() for letter in letters],
        "event": event.to_dict(payload=payload),
    }
    told = [part for letter in letters for part in _letter(letter)] or [paragraph("It is no dead letter.", indent=2)]
    row = _row(document["event"]["row"]) if event.row else ()
    operator.answer(document, *_event(event), *told, *row, *(_payload(event) if payload else ()))


def _with_what_lies_there(event: TracedEvent, looked: Search) -> TracedEvent:
    """Return what is known of an event with what its message tells."""
    for letter in looked.letters:
        event = replace(
            event,
            type=event.type or letter.type,
            subject=event.subject or letter.subject,
            payload=event.payload or letter.payload,
        )
    return event


def _nor(looked: Search) -> str:
    if looked.looked_at < looked.of:
        return f"nor the first {looked.looked_at:,} of about {looked.of:,} messages in dead-letter queues"
    return "nor a message in a dead-letter queue"


def _event(event: TracedEvent) -> Iterator[RenderableType]:
    yield heading("  ".join(filter(None, (event.id, event.type, event.subject))))
    yield facts(
        [
            ("cannot be read", event.unreadable.message if event.unreadable else None),
            ("after", event.after),
            ("mended copy of", event.parent),
            ("became", event.became),
            (OUTBOX, event.place or "not there: sent and forgotten, or never written"),
            *((record.consumer, record.state.value) for record in event.records),
        ]
    )
    yield from _steps(event)


def _steps(event: TracedEvent) -> Iterator[RenderableType]:
    for step in event.steps:
        yield paragraph(f"{step.at}  {step.where}: {step.kind.value}", indent=2)
        if step.detail:
            yield paragraph(step.detail, indent=28)


def _letter(letter: DeadLetter) -> Iterator[RenderableType]:
    failure = letter.failure
    yield heading(f"At {letter.source}: {letter.state}")
    yield facts(
        [
            ("failure", f"{failure.type}: {failure.message}"),
            ("the other side said", failure.excerpt or None),
            ("kind", failure.kind.value),
            ("fingerprint", failure.fingerprint),
            ("attempts", str(letter.attempts)),
            ("since", letter.died_at),
            ("redriven", count(letter.redriven, "time") if letter.redriven else None),
            ("leaves its queue", timestamp(letter.expires_at) if letter.expires_at else None),
        ]
    )


def _row(row: dict[str, Any]) -> Iterator[RenderableType]:
    yield heading("The row as it is")
    yield facts((name, json.dumps(typed, ensure_ascii=False)) for name, typed in sorted(row.items()))


def _payload(event: TracedEvent) -> Iterator[RenderableType]:
    yield heading("Payload")
    if event.payload is None:
        gone = (
            "neither the outbox nor a dead-letter queue has it"
            if event.row is None
            else "it cannot be read: see the row"
        )
        yield paragraph(gone, indent=2)
        return
    try:
        text = json.dumps(json.loads(event.payload), indent=2, ensure_ascii=False)
    except ValueError:
        text = event.payload
    yield paragraph(text, indent=2)
