"""What writing a report costs beside a bare loop over the same pages: rows per second and peak memory.

AWS is a set of prepared bytes below botocore's HTTP layer: serialising, signing, checksums and parsing are real, the
network is not there. The bare loop takes the same pages from the same clients, writes them by Python's csv without any
escaping, and sends the same parts.
"""

from __future__ import annotations

import csv
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

from canned import (
    PAGE_NUMBER,
    CannedAws,
    Response,
    apart,
    asked_for_less,
    headed,
    log_to_nowhere,
    make_console,
    make_runtime,
    met,
    response,
)
from rich.console import Console
from rich.table import Table

from app.consumers.reports import HEADER, reports
from app.csv_lines import BYTE_ORDER_MARK
from app.events import ReportRequested
from app.report_files import ReportFiles
from app.reports import Report
from app.repos import Repo
from mailroom import clients
from mailroom.clock import epoch_seconds
from mailroom.unit_of_work import UnitOfWork
from mailroom.upload import PART

PAGE = 1_000
BUCKET, REPORT = "reports", "01JDW3NDEKTSV4RRFFQ69G5FAV"
MOST_GROWTH = 1.1
"""How much more memory ten times the rows may take."""
MOST_SECONDS = 900
"""What Lambda gives a run."""
_XML = {"Content-Type": "application/xml", "Server": "AmazonS3"}
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class Pages:
    """The index of an owner with so many repositories, a page at a time."""

    def __init__(self, rows: int) -> None:
        self.left = self.rows = rows
        items = [self._item(f"{PAGE_NUMBER}{number:018d}") for number in range(PAGE)]
        last = {"owner_id": {"S": "owner-1"}, "id": items[-1]["id"]}
        whole = {"Count": PAGE, "ScannedCount": PAGE, "Items": items}
        self._last = json.dumps(whole).encode()
        self._page = json.dumps({**whole, "LastEvaluatedKey": last}).encode()

    def next(self, _: bytes) -> Response:
        """Answer a Query."""
        self.left -= PAGE
        page = self._page if self.left else self._last
        return headed(page.replace(PAGE_NUMBER.encode(), b"%08d" % self.left))

    @staticmethod
    def _item(repo_id: str) -> dict[str, Any]:
        return {
            "id": {"S": repo_id},
            "name": {"S": f"a repository, called {repo_id[-6:]}"},
            "owner_id": {"S": "owner-1"},
            "created_at": {"S": "2030-01-01T00:00:00.000Z"},
            "version": {"N": "3"},
            "last_event_id": {"S": f"{REPORT}-03"},
        }


class Bench:
    """One owner, one report, and an AWS in which both are written again and again."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        for model in (Repo, Report):
            model.Meta.table_name = model.Meta.short_name  # type: ignore[attr-defined]
        self.aws = CannedAws({})
        self.aws.answers = {
            "GetItem": response({"Item": _pending()}),
            "TransactWriteItems": response({}),
            "CreateMultipartUpload": _xml(f"<InitiateMultipartUploadResult {_NAMESPACE}><UploadId>u</UploadId>"
                                          "</InitiateMultipartUploadResult>"),
            "UploadPart": (200, {"ETag": '"e"', "Content-Length": "0"}, b""),
            "CompleteMultipartUpload": _xml(f"<CompleteMultipartUploadResult {_NAMESPACE}/>"),
            "PutObject": (200, {"ETag": '"e"', "Content-Length": "0"}, b""),
        }  # fmt: skip
        self.runtime = make_runtime()
        self.runtime.provide(ReportFiles, ReportFiles(BUCKET))
        self.aws.connect("dynamodb", "s3")

    def consumer(self) -> None:
        """Write the report as it is deployed."""
        work = UnitOfWork(self.runtime, reports.access)
        reports(ReportRequested(report_id=REPORT, owner_id="owner-1"), work)
        work.commit()

    def bare(self) -> None:
        """Write the same rows without anything around them."""
        dynamodb, s3 = clients.dynamodb(), clients.s3()
        place: Any = {"Bucket": BUCKET, "Key": "file"}
        upload: Any = {**place, "UploadId": s3.create_multipart_upload(**place)["UploadId"]}
        buffer, parts, start = StringIO(newline=""), [], {}
        writer = csv.writer(buffer)
        buffer.write(BYTE_ORDER_MARK)
        writer.writerow(HEADER)
        while True:
            page: Any = dynamodb.query(
                TableName="repos",
                IndexName="of_owner",
                KeyConditionExpression="owner_id = :o",
                ExpressionAttributeValues={":o": {"S": "owner-1"}},
                Limit=PAGE,
                **start,
            )
            for item in page["Items"]:
                writer.writerow((item["id"]["S"], item["name"]["S"], item["created_at"]["S"], item["version"]["N"]))
            last = page.get("LastEvaluatedKey")
            if buffer.tell() >= PART or not last:
                answer = s3.upload_part(**upload, PartNumber=len(parts) + 1, Body=buffer.getvalue().encode())
                parts.append({"PartNumber": len(parts) + 1, "ETag": answer["ETag"]})
                buffer.seek(0)
                buffer.truncate()
            if not last:
                break
            start = {"ExclusiveStartKey": last}
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})

    def timed(self, act: Callable[[], None]) -> float:
        """Answer the seconds of CPU that writing all rows takes."""
        pages = Pages(self.rows)
        self.aws.answers["Query"] = pages.next
        start = time.process_time()
        act()
        assert pages.left == 0, "not every page was read"
        return time.process_time() - start


def _pending() -> dict[str, Any]:
    tomorrow = epoch_seconds(datetime.now(UTC) + timedelta(days=1))
    return {
        "id": {"S": REPORT},
        "owner_id": {"S": "owner-1"},
        "status": {"S": "pending"},
        "created_at": {"S": "2030-01-01T00:00:00.000Z"},
        "version": {"N": "1"},
        "expires_at": {"N": str(tomorrow)},
    }


def _xml(body: str) -> Response:
    return 200, _XML, f'<?xml version="1.0" encoding="UTF-8"?>{body}'.encode()


def peak() -> int:
    """Answer the most resident bytes of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(side: str, rows: int) -> tuple[float, int, int, Counter[str]]:
    """Answer seconds of CPU, peak memory after a page and after all, and the calls of one side."""
    with log_to_nowhere():
        first = Bench(PAGE)
        first.timed(getattr(first, side))
        before = peak()
        bench = Bench(rows)
        seconds = bench.timed(getattr(bench, side))
        return seconds, before, peak(), bench.aws.counts


def report(console: Console, small: int, large: int) -> None:
    console.print(
        f"[bold]Writing a report, pages of {PAGE:,} rows, parts of {PART >> 20} MiB, each in a process of its own"
    )
    table = Table()
    for heading in ("", "rows", "CPU s", "rows/s", "Queries", "parts", "after one page (MB)", "after all (MB)"):
        table.add_column(heading, justify="right" if heading else "left")
    taken: dict[tuple[str, int], tuple[float, int]] = {}
    for rows in (small, large):
        for side in ("consumer", "bare"):
            seconds, before, after, calls = apart(measure, side, rows)
            taken[side, rows] = seconds, after
            figures = (f"{rows:,}", f"{seconds:.1f}", f"{rows / seconds:,.0f}", str(calls["Query"]))
            memory = (f"{before / 1e6:.0f}", f"{after / 1e6:.0f}")
            table.add_row(side, *figures, str(calls["UploadPart"]), *memory)
    console.print(table)
    seconds, after = taken["consumer", large]
    growth = after / taken["consumer", small][1]
    ratio = seconds / taken["bare", large][0]
    console.print(
        f"The consumer takes {ratio:.1f} x the CPU of the bare loop, without models of rows and without escaping.\n"
        f"Target: flat, {large // small} times the rows in at most {MOST_GROWTH} x the memory: {growth:.3f} x: "
        f"{met(growth <= MOST_GROWTH)}; all rows within {MOST_SECONDS} s: {met(seconds <= MOST_SECONDS)}.\n"
    )


def main() -> None:
    small, large = 100_000, 200_000 if asked_for_less(__doc__, "a fifth of the rows") else 1_000_000
    report(make_console(), small, large)


if __name__ == "__main__":
    main()
