"""Reports: asked for, written in the background, fetched by a link that works for a while."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app import reports as domain
from app.api import api
from app.consumers.reports import HEADER, mark_failed, reports
from app.csv_lines import BYTE_ORDER_MARK
from app.events import ReportRequested
from app.report_files import ReportFiles, key_of
from app.reports import Report, WhyFailed
from app.repos import Repo
from app.settings import AppSettings
from mailroom import clients
from mailroom.failures import Failure
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.idempotency import IdempotencyRow
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent
from mailroom.testing import ManualClock, transient
from mailroom.unit_of_work import UnitOfWork
from mailroom.upload import MIN_PART
from tests.faults import Died, died, failing, refused
from tests.inbox import Inbox
from tests.log_lines import Lines

from .conftest import CallCounter

REPORTS = "/api/v1/reports"
LONG_NAME = "n" * 100


@pytest.fixture
def bucket(runtime: Runtime) -> str:
    name = runtime.of(AppSettings).reports_bucket
    clients.s3().create_bucket(Bucket=name)
    runtime.provide(ReportFiles, ReportFiles(name, part=MIN_PART))
    return name


@pytest.fixture
def client(runtime: Runtime, bucket: str) -> ApiClient:
    return ApiClient(api, runtime)


@pytest.fixture
def inbox(runtime: Runtime, clock: ManualClock, bucket: str) -> Inbox:
    return Inbox(reports, runtime, clock)


def own(*names: str, owner_id: str = "owner-1") -> list[Repo]:
    """Give an owner repositories, oldest first."""
    ids = (f"{owner_id}-{n:07d}" for n in range(len(names)))
    repos = [
        Repo(i, name=name, owner_id=owner_id, created_at="2030", version=3) for i, name in zip(ids, names, strict=True)
    ]
    with Repo.batch_write() as batch:
        for repo in repos:
            batch.save(repo)
    return repos


def ask(client: ApiClient, owner_id: str = "owner-1", key: str = "key-1") -> ApiAnswer:
    return client.post(REPORTS, {"owner_id": owner_id}, key=key)


def asked(client: ApiClient, inbox: Inbox, owner_id: str = "owner-1") -> str:
    """Ask for a report and put its event into the consumer's queue; answer the report's id."""
    report_id: str = ask(client, owner_id).json["id"]
    inbox.send(ReportRequested(report_id=report_id, owner_id=owner_id))
    return report_id


def shown(client: ApiClient, report_id: str) -> dict[str, Any]:
    answer = client.get(f"{REPORTS}/{report_id}")
    assert answer.status == 200, answer.text
    return dict(answer.json)


def content(bucket: str, report_id: str) -> bytes:
    return clients.s3().get_object(Bucket=bucket, Key=key_of(report_id))["Body"].read()


def cells(bucket: str, report_id: str) -> list[list[str]]:
    text = content(bucket, report_id).decode("utf-8-sig")
    return list(csv.reader(StringIO(text, newline="")))


def objects(bucket: str) -> list[str]:
    return [each["Key"] for each in clients.s3().list_objects_v2(Bucket=bucket).get("Contents", [])]


def uploads(bucket: str) -> list[Any]:
    return clients.s3().list_multipart_uploads(Bucket=bucket).get("Uploads", [])


@contextmanager
def pages_are(pages: Sequence[list[Repo] | Exception]) -> Iterator[None]:
    """Let the index answer these pages, or fail, whatever is in the table."""

    def page(owner_id: str, work: UnitOfWork, *, after: Any, limit: int) -> tuple[list[Repo], Any]:
        number = 0 if after is None else after["page"]
        found = pages[number]
        if isinstance(found, Exception):
            raise found
        return found, {"page": number + 1} if number + 1 < len(pages) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain, "list_repos", page)
        yield


# Asked for


def test_a_request_is_accepted__and_says_where_to_look(client: ApiClient) -> None:
    answer = ask(client)
    report_id = answer.json["id"]
    assert (answer.status, answer.json) == (202, {"id": report_id, "status": "pending"})
    assert answer.headers["Location"] == f"{REPORTS}/{report_id}"


def test_a_request_has_its_event__in_the_same_transaction(client: ApiClient) -> None:
    report_id = ask(client).json["id"]
    (row,) = OutboxRow.scan()
    assert (row.type, row.subject) == ("report.requested", f"reports/{report_id}")
    with failing("TransactWriteItems", refused("AccessDenied"), times=9):
        assert ask(client, key="key-2").status == 503
    assert (len(list(Report.scan())), len(list(OutboxRow.scan()))) == (1, 1)


def test_a_repeated_request_is_one_report(client: ApiClient) -> None:
    assert ask(client).text == ask(client).text
    assert len(list(Report.scan())) == 1


def test_a_pending_report_has_no_link(client: ApiClient) -> None:
    seen = shown(client, ask(client).json["id"])
    assert (seen["status"], seen["rows"], seen["url"], seen["url_expires_at"], seen["why"]) == ("pending", *[None] * 4)


@pytest.mark.parametrize("body", [{}, {"owner_id": ""}, {"owner_id": "a b"}, {"owner_id": "a", "rows": 1}])
def test_a_bad_request_is_refused(client: ApiClient, body: dict[str, Any]) -> None:
    assert client.post(REPORTS, body, key="key-1").status == 400


# Whose


def claims(runtime: Runtime, owner_id: str) -> ApiClient:
    settings = runtime.settings.model_copy(update={"auth": "jwt"})
    other = Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)
    return ApiClient(api, other, claims={"iss": "https://issuer.example", "sub": owner_id})


def test_nobody_asks_for_anothers_report(runtime: Runtime, client: ApiClient) -> None:
    assert ask(claims(runtime, "owner-1")).status == 202
    assert ask(claims(runtime, "owner-2"), owner_id="owner-1", key="key-2").status == 403


def test_anothers_report_is_not_there__in_the_words_of_one_that_never_was(runtime: Runtime, client: ApiClient) -> None:
    report_id = ask(client).json["id"]
    mine, others = claims(runtime, "owner-1"), claims(runtime, "owner-2")
    assert mine.get(f"{REPORTS}/{report_id}").status == 200
    hidden, never = (others.get(f"{REPORTS}/{each}").json for each in (report_id, "nothing"))
    assert (hidden["status"], hidden["type"], hidden["title"]) == (404, never["type"], never["title"])
    assert hidden["detail"].replace(report_id, "nothing") == never["detail"]


# Written


def test_a_report_lists_the_owners_repositories__oldest_first(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    repos = own("first", "second, with a comma", 'third "quoted"', "Ünïcødé 本")
    own("another's", owner_id="owner-2")
    report_id = asked(client, inbox)
    assert inbox.deliver()
    assert cells(bucket, report_id) == [list(HEADER), *([repo.id, repo.name, "2030", "3"] for repo in repos)]
    seen = shown(client, report_id)
    assert (seen["status"], seen["rows"], seen["why"]) == ("ready", 4, None)


def test_a_report_on_nothing_is_a_header(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    report_id = asked(client, inbox)
    assert inbox.deliver()
    assert content(bucket, report_id).decode() == BYTE_ORDER_MARK + "id,name,created_at,version\r\n"
    assert (shown(client, report_id)["status"], shown(client, report_id)["rows"]) == ("ready", 0)


def test_a_name_is_no_formula(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    own('=HYPERLINK("https://example.com")', "plain")
    report_id = asked(client, inbox)
    assert inbox.deliver()
    assert [row[1] for row in cells(bucket, report_id)[1:]] == ['\'=HYPERLINK("https://example.com")', "plain"]


def test_many_rows_leave_in_parts(client: ApiClient, inbox: Inbox, bucket: str, calls: CallCounter) -> None:
    repos = own(*[f"{n}{LONG_NAME}" for n in range(2_500)])
    report_id = asked(client, inbox)
    pages = [repos[:1_000], repos[1_000:2_000], repos[2_000:]] * 20
    with pages_are(pages):
        assert inbox.deliver()
    assert calls.counts["UploadPart"] == 2
    assert [row[0] for row in cells(bucket, report_id)[1:]] == [repo.id for page in pages for repo in page]
    assert uploads(bucket) == []


def test_every_page_is_read__an_empty_one_is_not_the_last(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    repos = own("a", "b", "c")
    report_id = asked(client, inbox)
    with pages_are([repos[:1], [], repos[1:], []]):
        assert inbox.deliver()
    assert [row[1] for row in cells(bucket, report_id)[1:]] == ["a", "b", "c"]
    assert shown(client, report_id)["rows"] == 3


def test_pages_follow_each_other_in_the_index(
    client: ApiClient, inbox: Inbox, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain, "_PAGE", 2)
    own(*"abcdefg")
    report_id = asked(client, inbox)
    assert inbox.deliver()
    assert [row[1] for row in cells(bucket, report_id)[1:]] == [*"abcdefg"]


def test_an_event_delivered_twice_is_one_report(
    client: ApiClient, inbox: Inbox, bucket: str, calls: CallCounter
) -> None:
    report_id = asked(client, inbox)
    inbox.send(ReportRequested(report_id=report_id, owner_id="owner-1"))
    assert inbox.deliver()
    assert calls.counts["PutObject"] == 1


# Not written


def test_a_file_without_its_row_is_written_again__in_its_place(
    client: ApiClient, inbox: Inbox, bucket: str, clock: ManualClock
) -> None:
    own("a")
    report_id = asked(client, inbox)
    with failing("TransactWriteItems", died), pytest.raises(Died):
        inbox.deliver()
    assert (shown(client, report_id)["status"], objects(bucket)) == ("pending", [key_of(report_id)])
    own("a", "b")
    clock.advance(6 * 900)
    assert inbox.deliver()
    assert (shown(client, report_id)["rows"], objects(bucket)) == (2, [key_of(report_id)])
    assert len(cells(bucket, report_id)) == 3


def test_a_failure_midway_leaves_no_upload_and_no_file(
    client: ApiClient, inbox: Inbox, bucket: str, clock: ManualClock, calls: CallCounter
) -> None:
    repos = own(*[LONG_NAME] * 1_000)
    report_id = asked(client, inbox)
    with pages_are([*[repos] * 44, ValueError("no")]):
        assert not inbox.deliver()
    assert calls.counts["UploadPart"] == 1
    assert (objects(bucket), uploads(bucket)) == ([], [])
    assert shown(client, report_id)["status"] == "pending"
    clock.advance(3_600)
    assert inbox.deliver()
    assert shown(client, report_id)["rows"] == 1_000


def test_after_five_attempts_the_report_has_failed__and_the_letter_is_dead(
    client: ApiClient, inbox: Inbox, bucket: str
) -> None:
    report_id = asked(client, inbox)
    with failing("PutObject", refused("NeverSeen"), times=999) as fault:
        inbox.deliver_until_dead()
    assert (len(fault.struck), len(inbox.source.dead)) == (5, 1)
    seen = shown(client, report_id)
    assert (seen["status"], seen["why"], seen["url"]) == ("failed", WhyFailed.GAVE_UP, None)
    (record,) = [row for row in IdempotencyRow.scan() if row.failing]
    assert Failure.from_json(record.failure).type == "NeverSeen"


def test_a_report_has_failed__after_two_hours_in_which_its_bucket_takes_nothing(
    client: ApiClient, inbox: Inbox, bucket: str, clock: ManualClock
) -> None:
    report_id = asked(client, inbox)
    with failing("PutObject", refused("AccessDenied"), times=999):
        for _ in range(7):
            inbox.deliver()
            clock.advance(1_000)
        assert shown(client, report_id)["status"] == "pending"
        inbox.deliver_until_dead()
    assert len(inbox.source.dead) == 1
    assert shown(client, report_id)["why"] == WhyFailed.GAVE_UP


def test_a_report_fails_once__however_often_its_dying_message_comes(
    client: ApiClient, inbox: Inbox, bucket: str
) -> None:
    report_id = asked(client, inbox)
    with failing("PutObject", refused("InvalidArgument"), times=999):
        inbox.deliver_until_dead()
    assert Report.get(report_id).version == 2, "asked for, and failed"


def test_a_report_that_is_ready_does_not_fail_any_more(client: ApiClient, inbox: Inbox, runtime: Runtime) -> None:
    report_id = asked(client, inbox)
    assert inbox.deliver()
    work = UnitOfWork(runtime, reports.access)
    mark_failed(ReportRequested(report_id=report_id, owner_id="owner-1"), transient(), work)
    assert not work.has_changes


def test_a_redrive_makes_a_failed_report_ready(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    own("a")
    report_id = asked(client, inbox)
    with failing("PutObject", refused("AccessDenied"), times=999):
        inbox.deliver_until_dead()
    inbox.source.send(*inbox.source.dead)
    assert inbox.deliver()
    seen = shown(client, report_id)
    assert (seen["status"], seen["rows"], seen["why"]) == ("ready", 1, None)


def test_more_rows_than_a_report_holds_fail_at_once__and_say_so(
    client: ApiClient, inbox: Inbox, bucket: str, monkeypatch: pytest.MonkeyPatch, calls: CallCounter
) -> None:
    monkeypatch.setattr(domain, "MAX_ROWS", 2)
    own("a", "b", "c")
    report_id = asked(client, inbox)
    inbox.deliver_until_dead()
    seen = shown(client, report_id)
    assert (seen["status"], seen["why"]) == ("failed", WhyFailed.TOO_MANY_ROWS)
    assert (calls.counts["PutObject"], calls.counts["Query"], objects(bucket)) == (0, 1, [])


def test_work_stops_before_lambda_stops_it(
    client: ApiClient, inbox: Inbox, bucket: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    repos = own("a", "b")
    report_id = asked(client, inbox)
    read = []

    def slow(*args: Any, **more: Any) -> Any:
        read.append(1)
        clock.advance(300)
        return repos, {"id": "more"}

    monkeypatch.setattr(domain, "list_repos", slow)
    assert not inbox.deliver()
    assert len(read) == 3, "600 of 900 s leave time for another page, 900 do not"
    (record,) = [row for row in IdempotencyRow.scan() if row.failing]
    failure = Failure.from_json(record.failure)
    assert (failure.type, failure.message) == ("OutOfTime", "the time was up after 6 rows")
    assert (objects(bucket), shown(client, report_id)["status"]) == ([], "pending")


def test_a_report_that_expired_is_not_written(
    client: ApiClient, inbox: Inbox, bucket: str, clock: ManualClock, logs: Lines, runtime: Runtime
) -> None:
    report_id = asked(client, inbox)
    clock.advance(runtime.timings.consumer_record_life)
    assert inbox.deliver()
    assert objects(bucket) == []
    assert [line["report_id"] for line in logs() if line["message"] == LogEvent.REPORT_SKIPPED] == [report_id]


def test_a_report_that_expired_while_it_failed_is_settled(runtime: Runtime) -> None:
    event, failure = ReportRequested(report_id="gone", owner_id="owner-1"), transient()
    assert mark_failed(event, failure, UnitOfWork(runtime, reports.access))


# Fetched


def test_a_link_reads_the_file__for_a_while(client: ApiClient, inbox: Inbox, bucket: str, runtime: Runtime) -> None:
    report_id = asked(client, inbox)
    assert inbox.deliver()
    seen = shown(client, report_id)
    url = urlsplit(seen["url"])
    assert url.path.endswith(f"/{key_of(report_id)}")
    assert parse_qs(url.query)["X-Amz-Expires"] == [str(runtime.timings.link_life)]
    assert parse_qs(url.query)["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert seen["url_expires_at"] == "2030-01-01T00:05:00.000Z"


def test_a_link_is_stored_nowhere(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    report_id = asked(client, inbox)
    assert inbox.deliver()
    shown(client, report_id)
    stored = [row.serialize() for model in (Report, IdempotencyRow, OutboxRow) for row in model.scan()]
    assert "X-Amz" not in str(stored)


def test_no_cache_keeps_a_link(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    report_id = asked(client, inbox)
    assert inbox.deliver()
    assert client.get(f"{REPORTS}/{report_id}").headers["Cache-Control"] == "no-store"


def test_a_browser_saves_the_file_under_a_harmless_name(client: ApiClient, inbox: Inbox, bucket: str) -> None:
    report_id = asked(client, inbox)
    assert inbox.deliver()
    head = clients.s3().head_object(Bucket=bucket, Key=key_of(report_id))
    assert head["ContentDisposition"] == f'attachment; filename="report-{report_id}.csv"'
    assert head["ContentType"] == "text/csv; charset=utf-8"


def test_a_report_lives_from_when_it_is_ready__and_is_gone_then(
    client: ApiClient, inbox: Inbox, bucket: str, clock: ManualClock, runtime: Runtime
) -> None:
    report_id = asked(client, inbox)
    clock.advance(3 * 86_400)
    assert inbox.deliver()
    clock.advance(runtime.timings.file_life - 1)
    assert client.get(f"{REPORTS}/{report_id}").status == 200
    clock.advance(1)
    assert client.get(f"{REPORTS}/{report_id}").status == 404


def test_a_pending_report_lives_as_long_as_its_event_can_come_back(client: ApiClient, runtime: Runtime) -> None:
    ask(client)
    (report,) = Report.scan()
    timings = runtime.timings
    assert (report.expires_at - runtime.clock.now()).total_seconds() >= (
        timings.source_retention + timings.dead_letter_retention
    )
