"""Reports: lists of an owner's repositories as files, made in the background."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum

from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from app.events import ReportRequested
from app.owners import OwnerId
from app.repos import Repo, list_repos
from mailroom.attributes import TTLAttribute
from mailroom.clock import timestamp
from mailroom.failures import Failure, Permanent
from mailroom.http.command import Command
from mailroom.row import SubjectRow
from mailroom.unit_of_work import UnitOfWork

MAX_ROWS = 1_000_000
"""Repositories in one report: what a run writes in its time, with room to spare."""
_PAGE = 1_000


class ReportStatus(StrEnum):
    """How far a report has come."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


class WhyFailed(StrEnum):
    """Why there is no file, in words for whoever asked for it."""

    TOO_MANY_ROWS = f"the owner has more than {MAX_ROWS:,} repositories, which is what a report holds"
    GAVE_UP = "the report could not be written in several attempts; whoever runs this service was told"


class TooManyRows(Permanent):
    """An owner has more repositories than a report holds."""


class OutOfTime(Exception):
    """The time was up before the last row was written; there is no file."""


class NoSuchReport(Exception):
    """There is no report with this id, or not any more."""

    def __init__(self, report_id: str) -> None:
        super().__init__(f"there is no report {report_id}")


class Report(SubjectRow):
    """A report; events about it have the subject `reports/<id>`."""

    class Meta:
        short_name = "reports"

    deletable = False

    id = UnicodeAttribute(hash_key=True)
    owner_id = UnicodeAttribute()
    status = UnicodeAttribute(default=ReportStatus.PENDING)
    created_at = UnicodeAttribute()
    rows = NumberAttribute(null=True)
    why = UnicodeAttribute(null=True)
    expires_at = TTLAttribute()


class RequestReport(Command):
    """Whose repositories a report is to list."""

    owner_id: OwnerId


def request_report(command: RequestReport, work: UnitOfWork) -> Report:
    """Ask for a report."""
    report = Report(
        work.new_id(),
        owner_id=command.owner_id,
        created_at=timestamp(work.now()),
        # As long as its event can come back out of a dead-letter queue there has to be something that it can complete.
        expires_at=work.now() + timedelta(seconds=work.runtime.timings.consumer_record_life),
    )
    work.save(report)
    work.publish(ReportRequested(report_id=report.id, owner_id=report.owner_id), about=report)
    return report


def find_report(report_id: str, work: UnitOfWork) -> Report:
    """Answer a report.

    Raises
    ------
    NoSuchReport
        If there is none, or its time is over: DynamoDB takes its time to delete what has expired.
    """
    report = work.get(Report, report_id)
    if report is None or report.expires_at <= work.now():
        raise NoSuchReport(report_id)
    return report


def pages_of(owner_id: str, work: UnitOfWork) -> Iterator[list[Repo]]:
    """Answer an owner's repositories, oldest first, a page at a time; a page may be empty.

    Raises
    ------
    TooManyRows
        If there are more than a report holds.
    OutOfTime
        If the time is up before the last page.
    """
    after, rows = None, 0
    while True:
        page, after = list_repos(owner_id, work, after=after, limit=_PAGE)
        rows += len(page)
        if rows > MAX_ROWS:
            raise TooManyRows(f"owner {owner_id!r} has more than {MAX_ROWS} repositories")
        yield page
        if after is None:
            return
        if work.out_of_time():
            raise OutOfTime(f"the time was up after {rows} rows")


def complete(report: Report, rows: int, work: UnitOfWork) -> None:
    """Note that the file of a report is there."""
    report.status, report.rows, report.why = ReportStatus.READY, rows, None
    report.expires_at = work.now() + timedelta(seconds=work.runtime.timings.file_life)
    work.save(report)


def fail(report: Report, failure: Failure, work: UnitOfWork) -> None:
    """Note that there will be no file, unless an operator has it tried again."""
    if report.status != ReportStatus.PENDING:
        return
    report.status = ReportStatus.FAILED
    report.why = WhyFailed.TOO_MANY_ROWS if failure.type == TooManyRows.__name__ else WhyFailed.GAVE_UP
    work.save(report)
