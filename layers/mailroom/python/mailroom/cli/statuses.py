"""`mailroom status` and `mailroom jobs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from mailroom.cli.durations import write_duration
from mailroom.cli.layout import age, columns, count, heading, or_more, paragraph
from mailroom.cli.operator import Operator
from mailroom.clock import moment
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.status import (
    COUNTED_TO,
    ConsumerStatus,
    JobStatus,
    ShardStatus,
    consumer_status,
    job_status,
    shard_status,
)


def show_status(operator: Operator) -> None:
    """Show how the stage is doing, on one screen."""
    runtime, deployment, now = operator.runtime, operator.deployment, operator.now
    shards, dead = shard_status(runtime), OutboxLetters(runtime).count(up_to=COUNTED_TO)
    consumers, jobs = consumer_status(runtime, deployment), job_status(runtime, deployment)
    document = {
        "outbox": {"dead": dead, "dead_or_more": dead >= COUNTED_TO, "shards": [each.to_dict() for each in shards]},
        "consumers": [each.to_dict() for each in consumers],
        "jobs": [each.to_dict() for each in jobs],
    }
    operator.answer(
        document, *_outbox(shards, dead, now), Text(), *_consumers(consumers, now), Text(), *_jobs(jobs, now)
    )


def show_jobs(operator: Operator) -> None:
    """Show each job's schedule and how its last run ended."""
    jobs = job_status(operator.runtime, operator.deployment)
    operator.answer({"jobs": [each.to_dict() for each in jobs]}, *_jobs(jobs, operator.now))


def _outbox(shards: Sequence[ShardStatus], dead: int, now: datetime) -> Iterator[RenderableType]:
    pending = sum(each.pending for each in shards)
    some_more = any(each.pending >= COUNTED_TO for each in shards)
    yield heading(f"Outbox: {pending:,}{'+' if some_more else ''} pending, {or_more(dead, COUNTED_TO)} dead")
    telling = [each for each in shards if each.pending or each.paused_until or each.holder or each.unreadable]
    if telling:
        head = ("shard", "pending", "oldest", "paused for", "held by")
        yield columns(head, (_shard_cells(each, now) for each in telling), numbers=("pending",))
    for each in telling:
        if each.unreadable:
            yield paragraph(f"The lease of shard {each.shard:02d} cannot be read: {each.unreadable}")
        if each.oldest_waits_until:
            left = write_duration(max(0, (moment(each.oldest_waits_until) - now).total_seconds()))
            yield paragraph(f"The oldest of shard {each.shard:02d} waits for {left}. {each.oldest_waits_for}")
    if quiet := len(shards) - len(telling):
        yield paragraph(f"{count(quiet, 'shard is', 'shards are')} empty and at rest.")


def _shard_cells(shard: ShardStatus, now: datetime) -> tuple[str, ...]:
    paused = write_duration((moment(shard.paused_until) - now).total_seconds()) if shard.paused_until else ""
    return (
        f"{shard.shard:02d}",
        or_more(shard.pending, COUNTED_TO),
        age(shard.oldest_pending_at, now),
        paused,
        (shard.holder or "")[:12],
    )


def _consumers(consumers: Sequence[ConsumerStatus], now: datetime) -> Iterator[RenderableType]:
    yield heading("Consumers")
    numbers = ("queued", "in flight", "failing", "dead", "undelivered")
    yield columns(
        ("name", *numbers, "enabled"),
        (
            (
                each.name,
                f"{each.queued:,}",
                f"{each.in_flight:,}",
                or_more(each.failing, COUNTED_TO),
                f"{each.dead:,}",
                f"{each.undelivered:,}",
                "yes" if each.enabled else "NO",
            )
            for each in consumers
        ),
        numbers=numbers,
    )
    for each in consumers:
        if each.waiting_since:
            left = write_duration(max(0, (moment(each.probe_at) - now).total_seconds())) if each.probe_at else ""
            probe = f" It is paused, and probed in {left}." if left else ""
            yield paragraph(
                f"{each.name}: what it depends on was found missing {age(each.waiting_since, now)}"
                f" ({each.waits_for}).{probe}"
            )
        if each.failing_since:
            yield paragraph(f"{each.name}: the first of what fails did so {age(each.failing_since, now)}.")


def _jobs(jobs: Sequence[JobStatus], now: datetime) -> Iterator[RenderableType]:
    yield heading("Jobs")
    yield columns(
        ("name", "schedule (UTC)", "enabled", "last run"),
        ((each.name, each.schedule or "none", "yes" if each.enabled else "NO", _last_run(each, now)) for each in jobs),
    )
    for each in jobs:
        if each.last_failure:
            yield paragraph(f"{each.name} failed: {each.last_failure}")


def _last_run(job: JobStatus, now: datetime) -> str:
    ended = f"ended {age(job.last_ended_at, now)}" if job.last_ended_at else "never ended yet"
    marks = (ended, "FAILED" if job.last_failure else "", "running now" if job.running else "")
    return ", ".join(filter(None, marks))
