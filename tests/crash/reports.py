"""The scenario of reports."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from app.consumers.reports import reports
from app.report_files import ReportFiles, key_of
from app.reports import ReportStatus
from app.repos import Repo

from .aws import APP_SETTINGS
from .harness import Scenario
from .ledger import Finding, Flaw, nothing_waits, once, records_completed
from .world import World

_PART = 100
_NAMES = ["a" * 60, "b" * 60]
"""Each row makes a part of its own."""


class WriteReport(Scenario):
    """A consumer writes a report into one object, part by part."""

    def prepare(self, world: World) -> None:
        for number, name in enumerate(_NAMES):
            Repo(f"repo-{number}", name=name, owner_id="owner-1", created_at="2030", version=1).save()
        answer = world.process.api.post("/api/v1/reports", {"owner_id": "owner-1"}, key="key-1")
        self.report_id = answer.json["id"]
        world.process.wake_relay()

    def step(self, world: World) -> bool:
        world.process.runtime.provide(ReportFiles, ReportFiles(APP_SETTINGS.reports_bucket, part=_PART))
        world.process.deliver(reports)
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from records_completed(world)
        rows = world.aws.items("reports")
        yield from once("rows of the report", len(rows))
        for row in rows:
            if (row["status"], row.get("rows")) != (ReportStatus.READY, str(len(_NAMES))):
                yield Finding(Flaw.STUCK, f"the report is {row['status']} with {row.get('rows')} rows")
        written = world.aws.object(key_of(self.report_id)) or b""
        names = [each["name"] for each in csv.DictReader(StringIO(written.decode("utf-8-sig"), newline=""))]
        if names != _NAMES:
            yield Finding(Flaw.LOST, f"the file lists {len(names)} repositories of {len(_NAMES)}")
