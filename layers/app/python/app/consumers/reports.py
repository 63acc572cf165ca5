"""Write reports to files."""

from __future__ import annotations

from app.csv_lines import BYTE_ORDER_MARK, csv_lines
from app.events import ReportRequested
from app.report_files import ReportFiles
from app.reports import NoSuchReport, Report, complete, fail, find_report, pages_of
from app.repos import Repo
from mailroom.consumer import consumer
from mailroom.failures import Failure
from mailroom.outbox.event import Event
from mailroom.telemetry import LogEvent, log
from mailroom.timings import HOUR
from mailroom.unit_of_work import UnitOfWork

HEADER = ("id", "name", "created_at", "version")


def mark_failed(event: Event, failure: Failure, work: UnitOfWork) -> bool:
    """Tell whoever asked; the message becomes a dead letter all the same, so that an operator sees to it."""
    assert isinstance(event, ReportRequested)  # noqa: S101 - narrows the type: the consumer waits for nothing else
    try:
        fail(find_report(event.report_id, work), failure, work)
    except NoSuchReport:
        return True  # it expired: there is nothing left that anybody could want
    return False


@consumer(
    on=ReportRequested,
    reads=[Repo],
    writes=[Report],
    uses=[ReportFiles],
    gives_up=mark_failed,
    timeout=900,
    memory=1_024,
    batch_size=1,
    max_concurrency=5,
    patience=2 * HOUR,  # somebody waits for it, and is told when it fails
)
def reports(event: ReportRequested, work: UnitOfWork) -> None:
    """Write the file of a report, page by page, and say that it is there."""
    try:
        report = find_report(event.report_id, work)
    except NoSuchReport:
        log(LogEvent.REPORT_SKIPPED, reason="the report expired before it was written", report_id=event.report_id)
        return
    rows = _write(report, work)
    complete(report, rows, work)
    work.once_written(lambda: log(LogEvent.REPORT_WRITTEN, report_id=report.id, rows=rows))


def _write(report: Report, work: UnitOfWork) -> int:
    rows = 0
    with work.use(ReportFiles).write(report.id) as file:
        file.write((BYTE_ORDER_MARK + csv_lines([HEADER])).encode())
        for page in pages_of(report.owner_id, work):
            file.write(csv_lines(_row(repo) for repo in page).encode())
            rows += len(page)
    return rows


def _row(repo: Repo) -> tuple[object, ...]:
    return repo.id, repo.name, repo.created_at, int(repo.version)
