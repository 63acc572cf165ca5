"""`mailroom dead edit` and `mailroom dead discard`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from mailroom.cli.errors import UsageError
from mailroom.cli.layout import paragraph
from mailroom.cli.operator import Operator
from mailroom.cli.outcomes import Outcomes, collect, conclude
from mailroom.cli.planning import by_source
from mailroom.dead_letters.desk import deed
from mailroom.dead_letters.letter import Fate, Result
from mailroom.dead_letters.mending import Mended
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.dead_letters.queued import QueuedLetters
from mailroom.deployment import UNDELIVERED
from mailroom.http.strict_json import JsonRefused, parse
from mailroom.registry import Registry
from mailroom.trace import Tracer


def edit(
    operator: Operator,
    event_id: str,
    payload: str | None,
    mended: Mended,
    why: str,
    *,
    source: str | None,
    application: str,
) -> None:
    """Put a mended copy in a letter's place, where it died."""
    ((name, _),) = by_source(operator.desk, [event_id], source).items()
    letters, noted = operator.desk.of(name), deed(operator.runtime, why)
    if isinstance(letters, OutboxLetters):
        result = letters.edit(event_id, payload, noted, mended)
    elif isinstance(letters, QueuedLetters):
        if payload is None or mended != Mended():
            raise UsageError(f"{event_id} died at {name}: say its mended payload, and nothing else of it")
        read = Registry.of(application).consumer(name.removesuffix(UNDELIVERED)).read
        result = letters.edit(event_id, payload, noted, read=read)
    else:
        raise UsageError(f"{event_id} died at {name}, where nothing can be edited")
    if result.fate in {Fate.UNKNOWN, Fate.NOT_IN_QUEUE}:
        result = _second_press(operator, result)
    new_id = result.detail if result.ok else None
    shown = f"{event_id} is discarded; {new_id} takes its place." if new_id else f"{result.fate.value}: {result.detail}"
    operator.answer({**Outcomes(1, [result]).to_dict(), "new_id": new_id}, paragraph(shown))
    if not result.ok:
        operator.fail()


def _second_press(operator: Operator, result: Result) -> Result:
    """Return what came of it, or that it was done before."""
    copy = Tracer(operator.runtime, operator.deployment).event(result.id).became
    return Result(result.id, result.source, Fate.REPLACED, f"{copy} took its place already") if copy else result


def discard(operator: Operator, ids: Sequence[str], why: str, *, source: str | None) -> None:
    """Give letters up, each with an outcome."""
    meant = by_source(operator.desk, ids, source)
    noted = deed(operator.runtime, why)
    results = (result for name, some in meant.items() for result in operator.desk.of(name).discard(some, noted))
    conclude(operator, collect(operator, results, planned=sum(map(len, meant.values()))))


def read_payload(place: str) -> str:
    """Read a payload, strictly, from a file or with `-` from stdin.

    Raises
    ------
    UsageError
        If it cannot be read or is no JSON object.
    """
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
        payload = parse(text)
    except OSError as error:
        raise UsageError(f"the payload cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the payload in {place} is not UTF-8: {error}") from error
    except JsonRefused as error:
        where = f"at {error.field}: " if error.field else ""
        raise UsageError(f"the payload is refused: {where}{error.detail}") from error
    if not isinstance(payload, dict):
        raise UsageError("the payload is refused: it must be a JSON object")
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
