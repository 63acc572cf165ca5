"""A saga whose row cannot be read: it stands still by itself, and is told of."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from mailroom.dead_letters.letter import Deed
from mailroom.jobs import saga_orchestrator
from mailroom.saga_retry import NotRetried, retry
from mailroom.saga_row import SagaRow, Status
from tests.lagging_reads import INDEX_LAG
from tests.log_lines import Lines
from tests.spoilt import Typed, spoil_row

from .conftest import Line
from .test_orchestrator import lose

DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="it is mended")


@pytest.fixture
def lost(line: Line) -> tuple[str, str]:
    """Two sagas whose first requests were lost long ago."""
    ids = line.start(), line.start()
    lose(line)
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    return ids


SPOILT: list[dict[str, Typed | None]] = [
    {"position": {"S": "0"}},
    {"position": {"N": "7"}},
    {"steps": None},
    {"steps": {"S": "{}"}},
    {"history": {"S": "[1]"}},
    {"status": {"S": "resting"}},
]


@pytest.mark.parametrize("changes", SPOILT)
@pytest.mark.parametrize("which", [0, 1])
def test_one_that_cannot_be_read_does_not_keep_the_orchestrator_from_the_other__and_is_told(
    line: Line, lost: tuple[str, str], changes: dict[str, Typed | None], which: int, logs: Lines
) -> None:
    spoil_row(SagaRow, lost[which], **changes)
    line.clock.advance(INDEX_LAG)
    with suppress(ExceptionGroup):
        line.orchestrate()
    told = [each for each in logs() if each["message"] in {"row unreadable", "saga not resumed"}]
    assert any(lost[which] in json.dumps(each) for each in told)
    line.run()
    assert line.row(lost[1 - which]).status == Status.COMPLETED


@pytest.mark.parametrize("which", [0, 1])  # they stand still since the same moment: either may come first
def test_those_that_cannot_be_read_take_no_others_place_in_a_run(
    line: Line, lost: tuple[str, str], monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    monkeypatch.setattr(saga_orchestrator, "RESUMED_AT_MOST", 1)
    spoil_row(SagaRow, lost[which], steps={"S": "{}"})
    line.clock.advance(INDEX_LAG)
    line.orchestrate()
    line.run()
    assert line.row(lost[1 - which]).status == Status.COMPLETED


def test_it_is_not_retried__and_what_to_do_is_said(line: Line) -> None:
    saga_id = line.start()
    spoil_row(SagaRow, saga_id, position={"S": "0"})
    with pytest.raises(NotRetried, match=r"position is a text .* mend its row first"):
        retry(saga_id, DEED, line.runtime)
