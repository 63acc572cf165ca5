"""`mailroom saga …`: which sagas are not finished, all that is known of one, and how one is taken on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from mailroom.cli.layout import age, columns, facts, heading, paragraph
from mailroom.cli.operator import JsonOption, Operator, StageOption, WhyOption, operating
from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.desk import deed
from mailroom.failures import Failure
from mailroom.paging import page_of
from mailroom.reading import Unreadable, flaw_of, read_page, row_of
from mailroom.saga_consumer import SAGAS
from mailroom.saga_retry import find, retry
from mailroom.saga_row import UNFINISHED, Direction, SagaRow, Status, Trouble

app = typer.Typer(no_args_is_help=True, help="See which sagas are not finished and what became of one, or take one on.")

_TROUBLES = {
    Trouble.VERSION: "the deployed definition does not fit it: deploy one that does",
    Trouble.COMPENSATION: "a step could not be undone: mend the cause",
}


@app.command("list")
def list_command(
    stage: StageOption,
    status: Annotated[
        list[Status] | None, typer.Option("--status", help="stuck, running or compensating; all three if not given.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Sagas on a page.")] = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Where the last page ended.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the sagas that are not finished: the stuck ones first, and those that have not moved for longest."""
    statuses = status or list(UNFINISHED)
    if finished := [each for each in statuses if each not in UNFINISHED]:
        raise typer.BadParameter(
            f"{finished[0]} sagas are on no list; show tells of one by its id", param_hint="--status"
        )
    with operating(stage, as_json=as_json) as operator:
        rows, more = page_of([each.value for each in statuses], _read, cursor=cursor, limit=limit)
        document = {"sagas": [_summary(row) for row in rows], "cursor": more}
        operator.answer(document, *_listed(rows, operator.now), *_next(more))


@app.command("show")
def show_command(
    saga_id: Annotated[str, typer.Argument(metavar="ID")],
    stage: StageOption,
    data: Annotated[bool, typer.Option("--data", help="Show what its steps work on too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what happened to each step, why it compensates, and what to do if it is stuck."""
    with operating(stage, as_json=as_json) as operator:
        row = find(saga_id)
        if isinstance(row, Unreadable):
            operator.answer({**_summary(row), "row": _without_data(row.document(), data)}, *_unreadable(row, data))
            return
        ways = _ways_out(row, operator)
        operator.answer(_document(row, ways, data=data), *_shown(row, ways, operator.now), *_data(row, data))


@app.command("retry")
def retry_command(
    saga_id: Annotated[str, typer.Argument(metavar="ID")],
    why: WhyOption,
    stage: StageOption,
    as_json: JsonOption = False,
) -> None:
    """Ask for the step at which a saga stands, whatever became of the last request: stuck ones go on, too.

    Nothing is done twice, however often it is called.
    """
    with operating(stage, as_json=as_json) as operator:
        row = retry(saga_id, deed(operator.runtime, why), operator.runtime)
        document = {**_summary(row), "last_request": row.last_event_id}
        operator.answer(document, paragraph(f"{row.saga} {row.id} is {row.status}: {_place(row)} is asked for again."))


Found = SagaRow | Unreadable[SagaRow]


def _read(status: str, cursor: str | None, limit: int) -> tuple[list[Found], str | None]:
    start = read_cursor(cursor, id=None, unfinished=status, updated_at=None)
    rows = SagaRow.index.query(status, limit=limit, page_size=limit, last_evaluated_key=start)
    found, following = read_page(SagaRow, rows)
    return found, write_cursor(following)


def _summary(found: Found) -> dict[str, Any]:
    row, flaw = row_of(found), flaw_of(found)
    return {
        "id": row.id,
        "saga": row.saga,
        "status": row.status,
        "unreadable": flaw.message if flaw else None,
        "step": row.step_name if flaw is None and row.status in UNFINISHED else None,
        "direction": row.direction,
        "owner_id": row.owner_id,
        "failure": json.loads(row.failure) if row.failure else None,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _document(row: SagaRow, ways: _WaysOut | None, *, data: bool) -> dict[str, Any]:
    trouble = {
        "because": row.trouble,
        "failure": json.loads(row.trouble_failure) if row.trouble_failure else None,
        "request": row.trouble_request,
        "then": ways.then if ways else None,
        "or_else": ways.or_else if ways else None,
    }
    return {
        **_summary(row),
        "steps": [{"name": name, "state": state.value} for name, state in row.states().items()],
        "history": [each.to_dict() for each in row.transitions],
        "last_request": row.last_event_id,
        "trouble": trouble if row.trouble else None,
        **({"data": json.loads(row.data)} if data else {}),
    }


@dataclass(frozen=True, slots=True)
class _WaysOut:
    """The commands that take a stuck saga on: the second if what the first needs is gone after all."""

    then: str
    or_else: str | None = None


def _ways_out(row: SagaRow, operator: Operator) -> _WaysOut | None:
    if row.trouble_request is None:
        return None
    mended = f'--why "what was mended" --stage {operator.deployment.stage}'
    anew = f"mailroom saga retry {row.id} {mended}"
    if not operator.desk.may_have(row.trouble_request, SAGAS):
        return _WaysOut(anew)
    return _WaysOut(f"mailroom dead redrive {row.trouble_request} --source {SAGAS} {mended}", anew)


def _listed(rows: Sequence[Found], now: datetime) -> Iterator[RenderableType]:
    if not rows:
        yield paragraph("No such sagas: all are finished.")
        return
    yield columns(
        ("id", "saga", "status", "step", "last moved"),
        (_cells(each, now) for each in rows),
    )
    for each in rows:
        if isinstance(each, Unreadable):
            yield paragraph(f"{each.row.id} cannot be read: {each.failure.message}")


def _cells(found: Found, now: datetime) -> tuple[str, ...]:
    row = row_of(found)
    place = "?" if isinstance(found, Unreadable) else _place(found)
    return (row.id, row.saga or "?", row.status or "?", place, age(row.updated_at, now))


def _without_data(row: dict[str, Any], data: bool) -> dict[str, Any]:
    return {name: typed for name, typed in row.items() if data or name != "data"}


def _unreadable(found: Unreadable[SagaRow], data: bool) -> Iterator[RenderableType]:
    yield heading(f"{found.row.id} cannot be read")
    yield paragraph(found.failure.message, indent=2)
    shown = _without_data(found.document(), data)
    yield facts((name, json.dumps(typed, ensure_ascii=False)) for name, typed in sorted(shown.items()))


def _place(row: SagaRow) -> str:
    return row.step_name if row.direction == Direction.ACTION else f"undo {row.step_name}"


def _next(cursor: str | None) -> Iterator[RenderableType]:
    if cursor:
        yield Text(f"More: --cursor {cursor}", overflow="ignore", no_wrap=True)


def _shown(row: SagaRow, ways: _WaysOut | None, now: datetime) -> Iterator[RenderableType]:
    failure = row.why_it_compensates
    yield heading(f"{row.saga}  {row.id}  {row.status}")
    yield facts(
        [
            ("owner", row.owner_id),
            ("started", f"{row.created_at}, {age(row.created_at, now)}"),
            ("last moved", f"{row.updated_at}, {age(row.updated_at, now)}"),
            ("last request", row.last_event_id),
            ("turned back because", _words(failure) if failure else None),
        ]
    )
    yield heading("Steps")
    yield facts([(name, state.value) for name, state in row.states().items()])
    yield from _history(row)
    if ways and row.trouble and row.trouble_failure:
        yield heading(f"Stuck: {_TROUBLES[Trouble(row.trouble)]}")
        yield paragraph(_words(Failure.from_json(row.trouble_failure)), indent=2)
        yield from _led_out(ways)


def _led_out(ways: _WaysOut) -> Iterator[RenderableType]:
    yield paragraph("Then let it go on:" if ways.or_else else "Its letter is gone. Then let it go on:", indent=2)
    yield _command(ways.then)
    if ways.or_else:
        yield paragraph("If it is not in the dead-letter queue any more:", indent=2)
        yield _command(ways.or_else)


def _command(line: str) -> Text:
    return Text(f"  {line}", overflow="ignore", no_wrap=True)


def _history(row: SagaRow) -> Iterator[RenderableType]:
    if row.transitions:
        yield heading("What happened")
    for each in row.transitions:
        what = each.step if each.direction is Direction.ACTION else f"undo {each.step}"
        yield paragraph(f"{each.at}  {what}: {each.outcome.value}", indent=2)
        if each.failure:
            yield paragraph(_words(each.failure), indent=28)
        if each.deed:
            yield paragraph(f"{each.deed.by}: {each.deed.why}", indent=28)


def _words(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"


def _data(row: SagaRow, wanted: bool) -> Iterator[RenderableType]:
    if wanted:
        yield heading("Data")
        yield paragraph(json.dumps(json.loads(row.data), indent=2, ensure_ascii=False), indent=2)
