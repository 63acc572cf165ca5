"""Count the effects of each event, and wait where a test says so."""

import os
from itertools import count

from mailroom.consumer import consumer
from mailroom.telemetry import logger
from mailroom.unit_of_work import UnitOfWork
from worker_app.effects import Effect, ThingPlaced
from worker_app.settings import WorkerAppSettings

_NUMBERS = count(1)


@consumer(on=ThingPlaced, writes=[Effect], timeout=6)
def placing(event: ThingPlaced, work: UnitOfWork) -> None:
    """Add one to the event's effects."""
    settings, number = work.runtime.of(WorkerAppSettings), next(_NUMBERS)
    if str(number) in settings.hold.split(",") and os.path.exists(settings.gate):
        logger.info("waiting at the gate")
        os.close(os.open(settings.gate, os.O_RDONLY))
    work.update(Effect(event.name), [Effect.times.add(1)])
