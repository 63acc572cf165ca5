"""The rotation of the master keys: the next joins the current one, both sign for a while, then the older goes."""

from __future__ import annotations

from mailroom import telemetry
from mailroom.job import JobContext, job
from mailroom.master_keys import KEY_BYTES, Change, MasterKey, next_change
from mailroom.schedule import Every
from mailroom.signing_keys import SigningSecret
from mailroom.telemetry import LogEvent


@job(schedule=Every(days=1), uses=[SigningSecret])
def hmac_rotator(work: JobContext) -> None:
    """Do what is due, in one write: a run that dies before it did nothing, and one that dies after it did all."""
    secret = work.use(SigningSecret)
    stored = secret.read()
    new_key = MasterKey.of(stored.successor, work.runtime.random.randbytes(KEY_BYTES), work.now())
    change = next_change(stored.keys, now=work.now(), timings=work.runtime.timings, new_key=new_key)
    if change is None:
        return
    if secret.replace(stored, change.keys):
        _tell(change)
    else:
        telemetry.log(LogEvent.SIGNING_KEYS_OVERTAKEN, version=stored.version)


def _tell(change: Change) -> None:
    for event, key_id in (
        (LogEvent.SIGNING_KEY_ADDED, change.added),
        (LogEvent.SIGNING_KEY_PROMOTED, change.promoted),
        (LogEvent.SIGNING_KEY_RETIRED, change.retired),
    ):
        if key_id is not None:
            telemetry.log(event, key_id=key_id)
