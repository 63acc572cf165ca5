"""Reports on the deployed stage: asked for, polled for, fetched by the link."""

from __future__ import annotations

import csv
from collections.abc import Callable
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
import urllib3

from local.api import Api
from mailroom.upload import MIN_PART, Upload

Eventually = Callable[..., Any]
NAMES = ["first", "with, a comma", "=1+1", "Ünïcødé"]


@pytest.fixture
def owner() -> str:
    """An owner of this test's own."""
    return f"owner-{uuid4().hex[:12]}"


def ask(api: Api, owner: str) -> str:
    """Ask for a report; answer where it is."""
    answer = api.post("/api/v1/reports", {"owner_id": owner}, key=uuid4().hex)
    assert (answer.status, answer.json()["status"]) == (202, "pending")
    return answer.headers["location"]


def ready(api: Api, place: str, eventually: Eventually) -> dict[str, Any]:
    """Poll until a report is ready."""

    def seen() -> Any:
        report = api.get(place).json()
        return report if report["status"] != "pending" else None

    report: dict[str, Any] = eventually(seen, within=90, what="the report is written")
    assert report["status"] == "ready", report
    return report


def fetched(url: str) -> urllib3.BaseHTTPResponse:
    return urllib3.request("GET", url, timeout=10, retries=False)


def test_a_report_is_fetched_by_its_link(api: Api, owner: str, eventually: Eventually) -> None:
    made = [api.post("/api/v1/repos", {"name": name, "owner_id": owner}, key=uuid4().hex).json() for name in NAMES]
    eventually(lambda: len(api.get(f"/api/v1/repos?owner_id={owner}").json()["items"]) == len(NAMES), within=10)
    report = ready(api, ask(api, owner), eventually)
    answer = fetched(report["url"])
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="report-{report["id"]}.csv"'
    rows = list(csv.DictReader(StringIO(answer.data.decode("utf-8-sig"), newline="")))
    assert report["rows"] == len(rows) == len(NAMES)
    assert [row["id"] for row in rows] == [repo["id"] for repo in made]
    assert [row["name"] for row in rows] == ["first", "with, a comma", "'=1+1", "Ünïcødé"]
    assert [row["created_at"] for row in rows] == [repo["created_at"] for repo in made]


def test_each_answer_has_a_link_of_its_own__that_no_cache_keeps(api: Api, owner: str, eventually: Eventually) -> None:
    place = ask(api, owner)
    assert ready(api, place, eventually)["rows"] == 0
    answer = api.get(place)
    assert answer.headers["cache-control"] == "no-store"
    assert fetched(answer.json()["url"]).data.decode("utf-8-sig") == "id,name,created_at,version\r\n"


def test_nothing_is_read_without_a_link(api: Api, owner: str, eventually: Eventually) -> None:
    url = ready(api, ask(api, owner), eventually)["url"]
    assert fetched(url.partition("?")[0]).status == 403
    signature = url.rpartition("X-Amz-Signature=")[2]
    assert fetched(url.replace(signature, "0" * len(signature))).status == 403


def test_a_report_that_never_was_is_not_there(api: Api) -> None:
    answer = api.get("/api/v1/reports/nothing")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.usefixtures("runtime")
def test_a_large_file_leaves_in_parts__with_checksums(client: Callable[[str], Any]) -> None:
    bucket, data = f"files-{uuid4().hex[:8]}", bytes(range(251)) * 42_000
    client("s3").create_bucket(Bucket=bucket)
    with Upload(bucket, "file", content_type="text/csv", file_name="file.csv", part=MIN_PART) as file:
        for start in range(0, len(data), 1_000_000):
            file.write(data[start : start + 1_000_000])
    assert client("s3").get_object(Bucket=bucket, Key="file")["Body"].read() == data
    assert client("s3").head_object(Bucket=bucket, Key="file")["ETag"].endswith('-3"'), "of so many parts"
    assert not client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads")
