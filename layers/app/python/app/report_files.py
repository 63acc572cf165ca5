"""The files of reports: one port writes them, another hands out links to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from app.csv_lines import CONTENT_TYPE
from app.settings import AppSettings
from mailroom import clients
from mailroom.needs import Need
from mailroom.upload import PART, Upload

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

FOLDER = "reports"
"""What the keys of all files begin with."""


def key_of(report_id: str) -> str:
    """Answer where the file of a report lies: the same in every attempt, so that the last one replaces the others."""
    return f"{FOLDER}/{report_id}.csv"


class ReportFiles:
    """Writes files.

    Parameters
    ----------
    part
        Bytes that leave at once; only tests want fewer.
    """

    def __init__(self, bucket: str, *, part: int = PART) -> None:
        self._bucket = bucket
        self._part = part

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to put files there in parts, and to take back those parts."""
        return (Need(("s3:AbortMultipartUpload", "s3:PutObject"), _files(runtime), _WHY_MANY),)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Write to the stage's bucket."""
        return cls(runtime.of(AppSettings).reports_bucket)

    def write(self, report_id: str) -> Upload:
        """Begin the file of a report; it is there when the block ends well."""
        name = f"report-{report_id}.csv"
        key = key_of(report_id)
        return Upload(self._bucket, key, content_type=CONTENT_TYPE, file_name=name, part=self._part)


class ReportLinks:
    """Makes links by which anybody who has one can read one file, for a while.

    Parameters
    ----------
    life
        Seconds for which a link works.
    """

    def __init__(self, bucket: str, life: int) -> None:
        self._bucket = bucket
        self.life = life

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to read the files: a link can do what its maker may."""
        return (Need(("s3:GetObject",), _files(runtime), _WHY_MANY),)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Link into the stage's bucket."""
        return cls(runtime.of(AppSettings).reports_bucket, runtime.timings.link_life)

    def to(self, report_id: str) -> str:
        """Answer a link to the file of a report."""
        place = {"Bucket": self._bucket, "Key": key_of(report_id)}
        return clients.s3().generate_presigned_url("get_object", Params=place, ExpiresIn=self.life)


_WHY_MANY = "each report has a file of its own, in a folder that holds nothing else"


def _files(runtime: Runtime) -> str:
    return f"s3:{runtime.of(AppSettings).reports_bucket}/{FOLDER}/*"
