"""Uploads: an object of S3 that is written bit by bit, and is there as a whole or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict

from botocore.exceptions import ClientError

from mailroom import clients, telemetry
from mailroom.failures import Permanent, failure_of
from mailroom.telemetry import LogEvent

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import CompletedPartTypeDef

MIN_PART, MAX_PARTS = 5 * 1024 * 1024, 10_000
"""S3 takes no smaller part but the last, and no more of them.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""
PART = 8 * 1024 * 1024
"""Bytes of a part, and of the buffer that it grows in: 80 GB fit into an object."""


class _Place(TypedDict):
    Bucket: str
    Key: str


class _About(TypedDict):
    ContentType: str
    ContentDisposition: str


class FileTooLarge(Permanent):
    """What is written does not fit into one object; it is not there."""


class Upload:
    """Bytes on their way into one object: a context manager, with which the object comes to be or nothing does.

    What fits into one part is put there by one call. An error inside the block aborts the upload, so that its parts are
    not kept, and paid for; of a process that dies the bucket's lifecycle rule has to sweep up.

    Parameters
    ----------
    key
        The object's; one that is there already is replaced at the end.
    content_type
        The media type of what is written.
    file_name
        What a browser saves it as: ASCII letters, digits, `.`, `_` and `-`.
    part
        Bytes of a part; only tests want smaller ones.
    """

    def __init__(self, bucket: str, key: str, *, content_type: str, file_name: str, part: int = PART) -> None:
        self._place: _Place = {"Bucket": bucket, "Key": key}
        self._about: _About = {
            "ContentType": content_type,
            "ContentDisposition": f'attachment; filename="{file_name}"',
        }
        self._part = part
        self._buffer = bytearray()
        self._id: str | None = None
        self._parts: list[CompletedPartTypeDef] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._abort()
            return
        try:
            self._complete()
        except BaseException:
            self._abort()
            raise

    def write(self, data: bytes) -> None:
        """Add bytes; whenever a part is full it leaves.

        Raises
        ------
        FileTooLarge
            If it does not fit into one object any more.
        """
        self._buffer += data
        while len(self._buffer) >= self._part:
            part = bytes(memoryview(self._buffer)[: self._part])
            del self._buffer[: self._part]
            self._send(part)

    def _send(self, part: bytes) -> None:
        if self._id is None:
            self._id = clients.s3().create_multipart_upload(**self._place, **self._about)["UploadId"]
        number = len(self._parts) + 1
        if number > MAX_PARTS:
            raise FileTooLarge(f"the file takes more than {MAX_PARTS} parts of {self._part} bytes")
        answer = clients.s3().upload_part(**self._place, UploadId=self._id, PartNumber=number, Body=part)
        # Of an upload whose parts have checksums S3 wants to be told each again.
        checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"], **checksums})  # type: ignore[typeddict-item]

    def _complete(self) -> None:
        if self._id is None:
            clients.s3().put_object(**self._place, **self._about, Body=bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        clients.s3().complete_multipart_upload(**self._place, UploadId=self._id, MultipartUpload={"Parts": self._parts})

    def _abort(self) -> None:
        if self._id is None:
            return
        try:
            clients.s3().abort_multipart_upload(**self._place, UploadId=self._id)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "NoSuchUpload":  # it was completed after all
                telemetry.log(LogEvent.UPLOAD_NOT_ABORTED, failure=failure_of(error), key=self._place["Key"])
        except Exception as error:
            telemetry.log(LogEvent.UPLOAD_NOT_ABORTED, failure=failure_of(error), key=self._place["Key"])
