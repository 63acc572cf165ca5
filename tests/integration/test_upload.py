"""Uploads: an object is there as a whole or not at all, and nothing is left of one that failed."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from mailroom import clients, upload
from mailroom.clients import Call
from mailroom.failures import FailureKind, failure_of
from mailroom.telemetry import LogEvent
from mailroom.upload import MIN_PART, PART, FileTooLarge, Upload
from tests.faults import failing, refused, throttled
from tests.log_lines import Lines

from .conftest import CallCounter

BUCKET, KEY = "bucket", "folder/file.csv"


@pytest.fixture(autouse=True)
def bucket(aws: None) -> None:
    clients.s3().create_bucket(Bucket=BUCKET)


@pytest.fixture
def counted(bucket: None) -> Any:
    counter = CallCounter()
    with clients.observed(counter):
        yield counter


def begin(part: int = MIN_PART) -> Upload:
    return Upload(BUCKET, KEY, content_type="text/csv", file_name="file.csv", part=part)


def content() -> bytes:
    return clients.s3().get_object(Bucket=BUCKET, Key=KEY)["Body"].read()


def left_behind() -> list[Any]:
    return clients.s3().list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


def keys() -> list[str]:
    return [each["Key"] for each in clients.s3().list_objects_v2(Bucket=BUCKET).get("Contents", [])]


@pytest.mark.parametrize(
    ("size", "parts"),
    [(0, 0), (1, 0), (MIN_PART - 1, 0), (MIN_PART, 1), (MIN_PART + 1, 2), (2 * MIN_PART, 2), (2 * MIN_PART + 7, 3)],
)
def test_what_is_written_is_there__in_as_few_parts_as_it_takes(counted: CallCounter, size: int, parts: int) -> None:
    data = bytes(n % 251 for n in range(1009)) * (size // 1009 + 1)
    with begin() as file:
        for start in range(0, size, 700_001):
            file.write(data[start : min(start + 700_001, size)])
    assert content() == data[:size]
    assert (counted.counts["UploadPart"], counted.counts["PutObject"]) == (parts, 0 if parts else 1)
    assert left_behind() == []


def test_one_large_write_leaves_in_parts(counted: CallCounter) -> None:
    with begin() as file:
        file.write(b"x" * (3 * MIN_PART + 5))
    assert counted.counts["UploadPart"] == 4
    assert len(content()) == 3 * MIN_PART + 5


def test_no_part_is_smaller_than_s3_takes__but_the_last(counted: CallCounter) -> None:
    with begin() as file:
        for _ in range(23):
            file.write(b"x" * 1_000_000)
    sizes = [call.parameters["Body"].getbuffer().nbytes for call in counted.calls if call.operation == "UploadPart"]
    assert min(sizes[:-1]) >= MIN_PART
    assert PART >= MIN_PART


def test_a_browser_saves_it_as_a_file() -> None:
    with begin() as file:
        file.write(b"x")
    head = clients.s3().head_object(Bucket=BUCKET, Key=KEY)
    assert (head["ContentType"], head["ContentDisposition"]) == ("text/csv", 'attachment; filename="file.csv"')


def interrupt(written: int) -> None:
    """Begin a file, and fail inside the block."""

    def fail() -> None:
        with begin() as file:
            file.write(b"x" * written)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()


@pytest.mark.parametrize("written", [10, MIN_PART + 10])
def test_an_error_leaves_nothing_behind(written: int) -> None:
    interrupt(written)
    assert (keys(), left_behind()) == ([], [])


@pytest.mark.parametrize("operation", ["UploadPart", "CompleteMultipartUpload"])
def test_a_call_that_fails_leaves_nothing_behind(operation: str) -> None:
    with failing(operation, refused("AccessDenied")), pytest.raises(ClientError), begin() as file:
        file.write(b"x" * (MIN_PART + 10))
    assert (keys(), left_behind()) == ([], [])


def test_what_was_there_before_stays__until_the_new_one_is_whole() -> None:
    with begin() as file:
        file.write(b"first")
    with failing("CompleteMultipartUpload", refused("AccessDenied")), pytest.raises(ClientError), begin() as file:
        file.write(b"x" * MIN_PART)
    assert content() == b"first"
    with begin() as file:
        file.write(b"second")
    assert content() == b"second"


def test_an_abort_that_fails_hides_nothing__and_is_told(logs: Lines) -> None:
    with failing("AbortMultipartUpload", throttled, times=9):
        interrupt(MIN_PART)
    (line,) = [line for line in logs() if line["message"] == LogEvent.UPLOAD_NOT_ABORTED]
    assert line["key"] == KEY


def test_an_upload_that_was_completed_after_all_is_none_to_abort(logs: Lines) -> None:
    after = failing("CompleteMultipartUpload", refused("InternalError"), after=True)
    with after, pytest.raises(ClientError), begin() as file:
        file.write(b"x" * MIN_PART)
    assert keys() == [KEY]
    assert [line["message"] for line in logs()] == []


def test_more_parts_than_s3_takes_are_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_PARTS", 2)
    with pytest.raises(FileTooLarge, match="more than 2 parts") as caught, begin(part=10) as file:
        file.write(b"x" * 30)
    assert failure_of(caught.value).kind is FailureKind.PERMANENT
    assert left_behind() == []


def test_parts_are_told_again_with_their_checksums__else_s3_refuses_the_whole() -> None:
    class Answers:
        def before(self, call: Call) -> None: ...

        def after(self, call: Call, answer: dict[str, Any]) -> None:
            if call.operation == "UploadPart":
                answer["ChecksumCRC32"] = f"crc-{call.parameters['PartNumber']}"

    complete = failing("CompleteMultipartUpload", refused("InternalError"))
    with clients.observed(Answers()), complete as fault, pytest.raises(ClientError), begin() as file:
        file.write(b"x" * 2 * MIN_PART)
    parts = fault.struck[0].parameters["MultipartUpload"]["Parts"]
    assert [part["ChecksumCRC32"] for part in parts] == ["crc-1", "crc-2"]
