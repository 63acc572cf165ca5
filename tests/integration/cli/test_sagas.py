"""`mailroom saga list` and `saga show`: what is not finished, what happened, and the way out of being stuck."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from mailroom import clients
from mailroom.dead_letters.desk import Desk
from mailroom.deployment import DEAD
from mailroom.failures import Permanent
from mailroom.saga_consumer import SAGAS
from mailroom.saga_row import SagaRow
from tests.faults import failing, throttled
from tests.spoilt import spoil_row

from ..dead_letters.conftest import DEED
from ..sagas.conftest import BEHAVE, Line, Prepared, line, prepared, raising  # noqa: F401 - fixtures
from .conftest import Command, Stage

WHY = ("--why", "the airline is back")
Sagas = dict[str, str]


@pytest.fixture
def sagas(prepared: Prepared, mailroom: Command) -> Sagas:
    """A saga in each state, by it."""
    return prepared.by(get_into_each_state)


def get_into_each_state(line: Line) -> Sagas:
    made = {"completed": line.start()}
    line.run()
    BEHAVE["hotel"] = raising(Permanent("no room"))
    made["compensated"] = line.start()
    line.run()
    BEHAVE["no_flight"] = raising(Permanent("the airline is gone"))
    made["stuck"] = line.start()
    line.run()
    made["compensating"] = line.start()
    for _ in range(2):
        line.carry()
        line.deliver()
    line.clock.advance(1)
    made["running"] = line.start()
    return made


def test_a_list_has_what_is_not_finished__what_is_stuck_first(sagas: Sagas, mailroom: Command) -> None:
    listed = mailroom("saga", "list", "--json").json["sagas"]
    assert [each["status"] for each in listed] == ["stuck", "running", "compensating"]
    assert [each["id"] for each in listed] == [sagas[each["status"]] for each in listed]


@pytest.mark.parametrize("status", ["stuck", "running", "compensating"])
def test_a_list_can_be_of_one_status(sagas: Sagas, mailroom: Command, status: str) -> None:
    listed = mailroom("saga", "list", "--status", status, "--json").json["sagas"]
    assert [each["id"] for each in listed] == [sagas[status]]


def test_what_is_finished_is_on_no_list__and_that_is_said(mailroom: Command) -> None:
    answer = mailroom("saga", "list", "--status", "completed")
    assert answer.code == 2
    assert "show tells of one by its id" in " ".join(answer.err.replace("│", " ").split())


def test_a_list_comes_in_pages(sagas: Sagas, mailroom: Command) -> None:
    seen, cursor = [], []
    for _ in range(9):
        page = mailroom("saga", "list", "--limit", "1", *cursor, "--json").json
        seen += [each["status"] for each in page["sagas"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert seen == ["stuck", "running", "compensating"]


def test_a_cursor_that_is_none_is_refused(mailroom: Command) -> None:
    assert mailroom("saga", "list", "--cursor", "nonsense").code == 2


def test_a_list_says_where_each_stands(sagas: Sagas, mailroom: Command) -> None:
    words = mailroom("saga", "list").words
    assert f"{sagas['stuck']} trip stuck undo flight" in words
    assert f"{sagas['running']} trip running flight" in words


def test_a_list_of_nothing_says_so(line: Line, mailroom: Command) -> None:
    assert mailroom("saga", "list").words == "No such sagas: all are finished."


def test_show_tells_each_step_and_why_it_turned_back(sagas: Sagas, mailroom: Command) -> None:
    answer = mailroom("saga", "show", sagas["compensated"])
    assert answer.code == 0
    assert "flight undone hotel failed car not begun" in answer.words
    assert "turned back because Permanent: no room" in answer.words
    assert "undo flight: done" in answer.words
    assert "redrive" not in answer.words


def test_show_tells_the_way_out_of_being_stuck__as_a_command_that_works(
    sagas: Sagas, mailroom: Command, line: Line, stage: Stage
) -> None:
    line.bury(stage.queues)
    shown = mailroom("saga", "show", sagas["stuck"], "--json").json
    assert shown["trouble"]["because"] == "compensation"
    assert shown["trouble"]["failure"]["message"] == "the airline is gone"
    command = shlex.split(shown["trouble"]["then"])
    assert command[:3] == ["mailroom", "dead", "redrive"]
    assert command[3] == SagaRow.get(sagas["stuck"], consistent_read=True).trouble_request
    assert command[3] in line.queue.dead[0]
    assert command[command.index("--source") + 1] == SAGAS
    assert shown["trouble"]["then"] in mailroom("saga", "show", sagas["stuck"]).out


def test_the_way_out_is_a_redrive_while_there_is_a_letter__and_both_ways_can_be_gone(
    sagas: Sagas, mailroom: Command, line: Line, stage: Stage
) -> None:
    line.bury(stage.queues)
    ways = mailroom("saga", "show", sagas["stuck"], "--json").json["trouble"]
    assert [shlex.split(ways[way])[1:3] for way in ("then", "or_else")] == [["dead", "redrive"], ["saga", "retry"]]
    for way in ("then", "or_else"):
        assert mailroom(*walked(ways[way])).code == 0


def purge(stage: Stage) -> None:
    clients.sqs().purge_queue(QueueUrl=stage.queues[f"{SAGAS}{DEAD}"])


def discard(stage: Stage) -> None:
    desk = Desk(stage.runtime, stage.deployment)
    (letter,) = desk.letters(source=SAGAS)
    (result,) = desk.of(SAGAS).discard([letter.id], DEED)
    assert result.ok


def expire(stage: Stage) -> None:
    stage.clock.advance(stage.runtime.timings.dead_letter_retention)


def test_the_way_out_is_a_redrive_already__while_the_letter_is_on_its_way(
    sagas: Sagas, mailroom: Command, line: Line, stage: Stage
) -> None:
    """SQS moves a message some deliveries after the last attempt; until then it is in the consumer's own queue."""
    line.bury(stage.queues)
    purge(stage)
    clients.sqs().send_message(QueueUrl=stage.queues[SAGAS], MessageBody="the request")
    ways = mailroom("saga", "show", sagas["stuck"], "--json").json["trouble"]
    assert shlex.split(ways["then"])[1:3] == ["dead", "redrive"]


@pytest.mark.parametrize("lose", [purge, discard, expire])
def test_the_way_out_is_a_retry__when_the_letter_is_gone(
    sagas: Sagas, mailroom: Command, line: Line, stage: Stage, lose: Callable[[Stage], None]
) -> None:
    line.bury(stage.queues)
    lose(stage)
    shown = mailroom("saga", "show", sagas["stuck"], "--json").json
    command = shown["trouble"]["then"]
    assert (shlex.split(command)[1:4], shown["trouble"]["or_else"]) == (["saga", "retry", sagas["stuck"]], None)
    words = mailroom("saga", "show", sagas["stuck"])
    assert command in words.out
    assert "Its letter is gone." in words.words

    BEHAVE.clear()
    answer = mailroom(*walked(command))
    assert (answer.code, "compensating: undo flight is asked for again" in answer.words) == (0, True)
    line.run()
    assert line.row(sagas["stuck"]).status == "compensated"


def walked(command: str) -> list[str]:
    """Take a command that was shown as an operator does who sits at a pipe."""
    words = shlex.split(command)[1:]
    words = words[: words.index("--stage")]
    return [*words, "--yes"] if words[:2] == ["dead", "redrive"] else words


def test_a_retry_is_remembered__with_who_and_why(sagas: Sagas, mailroom: Command) -> None:
    retried = mailroom("saga", "retry", sagas["stuck"], *WHY, "--json").json
    shown = mailroom("saga", "show", sagas["stuck"], "--json").json
    assert (retried["status"], retried["last_request"]) == ("compensating", shown["last_request"])
    deed = shown["history"][-1]["deed"]
    assert (deed["why"], deed["by"].startswith("arn:aws:")) == (WHY[1], True)
    assert f"undo flight: retried {deed['by']}: {WHY[1]}" in mailroom("saga", "show", sagas["stuck"]).words


def test_a_retry_says_why(sagas: Sagas, mailroom: Command) -> None:
    for why in ([], ["--why", " "], ["--why", "x" * 201]):
        assert mailroom("saga", "retry", sagas["stuck"], *why).code == 2
    assert mailroom("saga", "show", sagas["stuck"], "--json").json["status"] == "stuck"


@pytest.mark.parametrize("status", ["completed", "compensated"])
def test_a_finished_saga_is_not_retried__and_that_is_said(sagas: Sagas, mailroom: Command, status: str) -> None:
    answer = mailroom("saga", "retry", sagas[status], *WHY)
    assert (answer.code, f"is {status}: there is nothing left to do" in answer.err) == (1, True)


def test_a_retry_that_aws_does_not_take_says_so(sagas: Sagas, mailroom: Command) -> None:
    with failing("TransactWriteItems", throttled, times=99):
        answer = mailroom("saga", "retry", sagas["stuck"], *WHY)
    assert (answer.code, "ThrottlingException" in answer.err) == (1, True)


def test_show_tells_what_the_steps_work_on__if_it_is_asked_to(sagas: Sagas, mailroom: Command) -> None:
    assert "data" not in mailroom("saga", "show", sagas["running"], "--json").json
    assert mailroom("saga", "show", sagas["running"], "--data", "--json").json["data"] == {"told": ""}
    assert '"told": ""' in mailroom("saga", "show", sagas["running"], "--data").out


def test_the_requests_of_a_saga_can_be_traced_by_its_subject(sagas: Sagas, mailroom: Command) -> None:
    traced = mailroom("trace", f"sagas/{sagas['completed']}", "--json").json
    assert [event["type"] for event in traced["events"]] == ["saga.step_requested"] * 3


def test_every_saga_can_be_shown(sagas: Sagas, mailroom: Command) -> None:
    for status, saga_id in sagas.items():
        assert mailroom("saga", "show", saga_id, "--json").json["status"] == status
        assert mailroom("saga", "show", saga_id).code == 0


def test_a_saga_that_is_not_there_is_said_to_be_unknown(mailroom: Command, line: Callable[..., object]) -> None:
    answer = mailroom("saga", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (answer.code, "there is no saga 01ARZ3NDEKTSV4RRFFQ69G5FAV" in answer.err) == (1, True)


# A row that cannot be read


def test_one_that_cannot_be_read_is_listed_as_such__among_the_others(sagas: Sagas, mailroom: Command) -> None:
    spoil_row(SagaRow, sagas["running"], position={"S": "0"}, saga=None)
    listed = {each["status"]: each for each in mailroom("saga", "list", "--json").json["sagas"]}
    assert list(listed) == ["stuck", "running", "compensating"]
    assert listed["running"]["unreadable"] == "position is a text (S) and must be a number (N); saga is missing"
    assert (listed["running"]["step"], listed["stuck"]["unreadable"]) == (None, None)
    assert f"{sagas['running']} cannot be read: position is a text (S)" in mailroom("saga", "list").words


def test_one_that_cannot_be_read_is_shown_as_it_is__without_its_data(sagas: Sagas, mailroom: Command) -> None:
    spoil_row(SagaRow, sagas["stuck"], data={"S": '{"secret":'})
    answer = mailroom("saga", "show", sagas["stuck"])
    assert answer.code == 0
    assert "data is no JSON" in answer.words
    assert "secret" not in answer.out + mailroom("saga", "show", sagas["stuck"], "--json").out
    assert mailroom("saga", "show", sagas["stuck"], "--data", "--json").json["row"]["data"] == {"S": '{"secret":'}


def test_one_that_cannot_be_read_is_not_taken_on(sagas: Sagas, mailroom: Command) -> None:
    spoil_row(SagaRow, sagas["stuck"], steps={"S": "{}"})
    answer = mailroom("saga", "retry", sagas["stuck"], *WHY)
    assert answer.code == 1
    assert "cannot be read: steps is no list of names: mend its row first" in answer.err
