"""Reports over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import BaseModel

from app.events import ReportRequested
from app.report_files import ReportLinks
from app.reports import (
    NoSuchReport,
    Report,
    ReportStatus,
    RequestReport,
    find_report,
    request_report,
)
from mailroom.clock import timestamp
from mailroom.http.call import Call
from mailroom.http.problem import ProblemKind
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.http.routes import Routes
from mailroom.needs import Access

routes = Routes(
    access=Access(writes=(Report,), publishes=(ReportRequested,), uses=(ReportLinks,)),
    problems={NoSuchReport: ProblemKind(404, "no-such-report", "There is no such report")},
)


class ReportAccepted(BaseModel):
    """A report that was asked for."""

    id: str
    status: ReportStatus


class ReportView(BaseModel):
    """A report as callers see it.

    `rows`, `url` and `url_expires_at` are there once it is `ready`, `why` when it has `failed`. The link is a new one
    in each answer and reads the file without further credentials.
    """

    id: str
    owner_id: str
    status: ReportStatus
    created_at: str
    expires_at: str
    rows: int | None = None
    why: str | None = None
    url: str | None = None
    url_expires_at: str | None = None

    @classmethod
    def of(cls, report: Report) -> Self:
        """Show a report, without a link."""
        return cls(
            id=report.id,
            owner_id=report.owner_id,
            status=ReportStatus(report.status),
            created_at=report.created_at,
            expires_at=timestamp(report.expires_at),
            rows=None if report.rows is None else int(report.rows),
            why=report.why,
        )


@routes.post("/api/v1/reports", body=RequestReport, success=Success(202, ReportAccepted, headers=("Location",)))
def post_report(command: RequestReport, call: Call) -> Reply:
    """Ask for a report on an owner's repositories; it is made in the background."""
    report = request_report(command, call.work)
    accepted = ReportAccepted(id=report.id, status=ReportStatus(report.status))
    return Reply(202, accepted, location=f"/api/v1/reports/{report.id}")


@routes.get(
    "/api/v1/reports/{report_id}",
    success=Success(200, ReportView, headers=("Cache-Control",)),
    raises=[NoSuchReport],
)
def get_report(call: Call, report_id: str) -> Reply:
    """Show a report, and how to fetch it once it is ready.

    The file lists the repositories there were while it was written: one made or removed meanwhile may be in it or not.
    """
    report = find_report(report_id, call.work)
    if not call.caller.may_act_for(report.owner_id):
        raise NoSuchReport(report_id)  # not 403: it would tell that there is one
    return Reply(200, _shown(report, call), headers={"Cache-Control": "no-store"})


def _shown(report: Report, call: Call) -> ReportView:
    view = ReportView.of(report)
    if view.status is not ReportStatus.READY:
        return view
    links = call.work.use(ReportLinks)
    until = call.work.now() + timedelta(seconds=links.life)
    return view.model_copy(update={"url": links.to(report.id), "url_expires_at": timestamp(until)})
