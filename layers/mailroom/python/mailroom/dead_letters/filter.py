"""Which dead letters are meant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mailroom.clock import timestamp
from mailroom.dead_letters.letter import DeadLetter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which letters are meant; what is None does not matter. Moments are written as rows write them.

    Parameters
    ----------
    died_from, died_until
        The first and the last moment at which it died, or was seen to fail.
    """

    type: str | None = None
    subject: str | None = None
    fingerprint: str | None = None
    died_from: str | None = None
    died_until: str | None = None

    @classmethod
    def of(
        cls,
        *,
        type_: str | None = None,
        subject: str | None = None,
        fingerprint: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
    ) -> Filter:
        """Make one of moments.

        Raises
        ------
        NaiveMoment
            If one has no time zone.
        """
        return cls(
            type=type_,
            subject=subject,
            fingerprint=fingerprint,
            died_from=timestamp(after) if after else None,
            died_until=timestamp(before) if before else None,
        )

    @property
    def keeps_all(self) -> bool:
        """Whether it keeps everything."""
        return self == Filter()

    def keeps(self, letter: DeadLetter) -> bool:
        """Return whether a letter is meant."""
        return (
            self.type in (None, letter.type)
            and self.subject in (None, letter.subject)
            and self.fingerprint in (None, letter.failure.fingerprint)
            and (self.died_from is None or letter.died_at >= self.died_from)
            and (self.died_until is None or letter.died_at <= self.died_until)
        )


def so_long_ago(now: datetime, age: timedelta) -> datetime:
    """Return a moment of the past, none of them earlier than there are letters."""
    try:
        return max(now - age, _EPOCH)
    except OverflowError:
        return _EPOCH
