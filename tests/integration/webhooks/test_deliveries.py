"""Deliveries: each event reaches each webhook that wants it, signed, under one id, and no receiver delays another."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from standardwebhooks import WebhookVerificationError

from app.webhooks import Webhook
from mailroom.failures import Failure
from mailroom.idempotency import IdempotencyRow
from mailroom.runtime import Runtime
from mailroom.sources.source import TENANT
from mailroom.telemetry import LogEvent, Metric
from mailroom.testing import ManualClock
from tests.faults import Died, failing, throttled
from tests.log_lines import Lines
from tests.receiver import Receiver, Visit, listening
from tests.spoilt import spoil_row

from .conftest import EVENT, LONGER_THAN_ANY_WAIT, TYPES, Line, Subscriber, Verify


def test_an_event_arrives_as_standard_webhooks_has_it(
    line: Line, subscriber: Subscriber, receiver: Receiver, clock: ManualClock
) -> None:
    webhook_id = subscriber.to(receiver)
    clock.advance(60)
    line.happen()

    assert line.deliver() == 0

    (got,) = receiver.got
    assert got.body == (
        b'{"type":"repo.created","timestamp":"2030-01-01T00:00:00.000Z",'
        b'"data":{"repo_id":"1","name":"tool","owner_id":"owner-1","former_name":"old"}}'
    )
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == f"msg_{EVENT}_{webhook_id}"
    assert got.headers["webhook-timestamp"] == str(int(clock.now().timestamp()))


def test_a_delivery_verifies__and_a_byte_more_does_not(
    line: Line, subscriber: Subscriber, receiver: Receiver, verify: Verify
) -> None:
    webhook_id = subscriber.to(receiver)
    line.happen(name="caf\u00e9 \u2028 \U0001f4ee")
    line.deliver()

    (got,) = receiver.got
    secret = subscriber.secrets(webhook_id)["current"]
    assert verify(got, secret)["data"]["name"] == "caf\u00e9 \u2028 \U0001f4ee"
    for forged in (got.body + b" ", got.body.replace(b"owner-1", b"owner-2")):
        with pytest.raises(WebhookVerificationError):
            verify(type(got)(got.path, got.headers, forged), secret)


def test_a_delivery_verifies_with_the_old_and_the_new_secret__while_keys_change(
    line: Line, subscriber: Subscriber, receiver: Receiver, verify: Verify, rotate: Callable[..., None]
) -> None:
    webhook_id = subscriber.to(receiver)
    old = subscriber.secrets(webhook_id)
    assert old["next"] is None
    rotate(b"1", b"2")
    during = subscriber.secrets(webhook_id)
    line.happen()
    line.deliver()

    (got,) = receiver.got
    assert during["current"] == old["current"] != during["next"]
    assert verify(got, during["current"]) == verify(got, during["next"])
    rotate(b"2")
    assert subscriber.secrets(webhook_id) == {"current": during["next"], "next": None}


def test_each_webhook_gets_what_it_wants__signed_with_a_secret_of_its_own(
    line: Line, subscriber: Subscriber, verify: Verify
) -> None:
    with listening() as all_of_it, listening() as renames, listening() as other:
        everything, _ = subscriber.to(all_of_it), subscriber.to(renames, "repo.renamed")
        subscriber.to(other, owner_id="owner-2")
        line.happen("repo.created")
        line.happen("repo.renamed", event_id=EVENT.replace("5FAV", "5FAW"))
        line.deliver()

    assert len(all_of_it.got) == 2
    (got,) = renames.got
    assert b'"type":"repo.renamed"' in got.body
    assert other.got == []
    with pytest.raises(WebhookVerificationError):
        verify(got, subscriber.secrets(everything)["current"])


def test_a_transfer_is_told_to_both_owners(line: Line, subscriber: Subscriber) -> None:
    with listening() as new, listening() as former:
        subscriber.to(new)
        subscriber.to(former, owner_id="owner-2")
        line.happen("repo.transferred", former_owner_id="owner-2")
        line.deliver()

    assert new.got[0].body == former.got[0].body


def test_a_delivery_has_one_id_in_every_attempt__and_is_signed_anew(
    line: Line, subscriber: Subscriber, receiver: Receiver, verify: Verify
) -> None:
    webhook_id = subscriber.to(receiver)
    receiver.behave = lambda visit: visit.answer(500)
    line.happen()
    line.deliver()
    receiver.behave = lambda visit: visit.answer(200)
    line.wait_of_the_next()
    line.deliver()

    first, second = receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert first.headers["webhook-timestamp"] < second.headers["webhook-timestamp"]
    verify(second, subscriber.secrets(webhook_id)["current"])


def test_an_event_that_comes_twice_is_delivered_once(line: Line, subscriber: Subscriber, receiver: Receiver) -> None:
    subscriber.to(receiver)
    line.happen()
    line.happen()
    line.deliver_for_good()

    assert len(receiver.got) == 1


def test_a_broken_receiver_touches_no_other(line: Line, subscriber: Subscriber, receiver: Receiver) -> None:
    def reset(visit: Visit) -> None:
        visit.connection.close()

    with listening(reset) as broken:
        subscriber.to(broken)
        subscriber.to(receiver)
        for letter in "ABC":
            line.happen(event_id=EVENT.replace("5FAV", f"5FA{letter}"))

        assert line.deliver() == 3

    assert len(receiver.got) == 3


# What a receiver answers


@pytest.mark.parametrize("status", [301, 302, 400, 401, 404, 409, 500, 503])
def test_whatever_is_no_success_comes_again(
    line: Line, subscriber: Subscriber, receiver: Receiver, status: int
) -> None:
    receiver.behave = lambda visit: visit.answer(status, location="/elsewhere")
    subscriber.to(receiver)
    line.happen()

    assert line.deliver() == 1
    assert 240 <= line.wait_of_the_next() <= 361
    assert len(receiver.got) == 1


def test_what_a_subscription_calls_permanent_is_dead_at_once__and_nothing_else_is(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    subscriber.to(receiver, permanent_statuses=[404])
    receiver.behave = lambda visit: visit.answer(404 if len(receiver.got) == 2 else 400)
    line.happen()
    line.deliver_for_good()

    assert len(receiver.got) == 2
    assert len(line.deliveries.dead) == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_success_will_do(line: Line, subscriber: Subscriber, receiver: Receiver, status: int) -> None:
    receiver.behave = lambda visit: visit.answer(status, b"thanks")
    subscriber.to(receiver)
    line.happen()

    assert line.deliver() == 0


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (lambda now: "1800", 1_800),
        (lambda now: "0", 240),
        (lambda now: "86400", 3_600),
        (lambda now: "999999999", 3_600),
        (lambda now: format_datetime(now + timedelta(seconds=1_800), usegmt=True), 1_800),
        (lambda now: format_datetime(now - timedelta(seconds=1_800), usegmt=True), 240),
        (lambda now: (now + timedelta(seconds=1_800)).strftime("%A, %d-%b-%y %H:%M:%S GMT"), 1_800),
        (lambda now: "soon", 240),
        (lambda now: "-5", 240),
        (lambda now: "1800.5", 240),
        (lambda now: "\u0663", 240),
        (lambda now: "Thu, 99 Jan 9999 99:99:99 GMT", 240),
        (lambda now: "", 240),
    ],
)
def test_a_receiver_is_left_alone_for_as_long_as_it_asks__within_bounds(
    line: Line,
    subscriber: Subscriber,
    receiver: Receiver,
    clock: ManualClock,
    asked: Callable[[Any], str],
    waited: int,
) -> None:
    header = asked(clock.now())
    receiver.behave = lambda visit: visit.answer(429, retry_after=header.encode().decode("latin-1"))
    subscriber.to(receiver)
    line.happen()
    line.deliver()

    assert waited <= line.wait_of_the_next() <= max(waited, 360) + 1


def test_a_receiver_that_is_gone_for_good_is_disabled__and_says_why(
    line: Line, subscriber: Subscriber, receiver: Receiver, clock: ManualClock, logs: Lines
) -> None:
    receiver.behave = lambda visit: visit.answer(410, b"moved out")
    webhook_id = subscriber.to(receiver)
    line.happen()
    line.happen(event_id=EVENT.replace("5FAV", "5FAW"))

    assert line.deliver() == 0

    shown = subscriber.show(webhook_id)
    assert (shown["status"], shown["disabled_reason"]) == ("disabled", "the receiver answered 410 Gone")
    assert shown["disabled_at"] == "2030-01-01T00:00:00.000Z"
    assert len(receiver.got) == 1
    said = [each["message"] for each in logs() if each["message"].startswith("webhook ")]
    assert said == [LogEvent.WEBHOOK_DISABLED, LogEvent.WEBHOOK_SKIPPED]


def test_only_the_delivery_that_disabled_a_webhook_says_so__of_several_that_are_answered_410(
    line: Line, subscriber: Subscriber, receiver: Receiver, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(visit: Visit) -> None:
        if len(receiver.got) == 1:
            (other,) = Webhook.scan(consistent_read=True)
            other.version, other.disabled_at = other.version + 1, "2030-01-01T00:00:00.000Z"
            other.save()
        visit.answer(410)

    receiver.behave = gone
    subscriber.to(receiver)
    line.happen()
    line.deliver_for_good()

    told = [each["message"] for each in logs() if each["message"].startswith("webhook ")]
    assert told == [LogEvent.WEBHOOK_SKIPPED], "what another delivery wrote is not ours to tell"
    assert Metric.WEBHOOKS_DISABLED not in capsys.readouterr().out


def test_a_delivery_is_its_owners__so_that_one_owners_receivers_hold_up_their_own(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    receiver.behave = lambda visit: visit.answer(500)
    subscriber.to(receiver, path="/1")
    subscriber.to(receiver, path="/2")
    subscriber.to(receiver, path="/3", owner_id="owner-2")
    line.happen("repo.transferred", owner_id="owner-2", former_owner_id="owner-1")
    line.deliver()
    line.clock.advance(LONGER_THAN_ANY_WAIT)

    tenants = [each["attributes"][TENANT] for each in line.deliveries.receive(10, wait=0, hidden=30)]
    assert sorted(tenants) == ["owner-1", "owner-1", "owner-2"]


def test_nothing_is_made_for_a_disabled_webhook(
    line: Line, subscriber: Subscriber, receiver: Receiver, logs: Lines
) -> None:
    receiver.behave = lambda visit: visit.answer(410)
    subscriber.to(receiver)
    line.happen()
    line.deliver()
    line.happen(event_id=EVENT.replace("5FAV", "5FAW"))
    line.deliver()

    assert len(receiver.got) == 1
    assert LogEvent.WEBHOOK_SKIPPED not in [each["message"] for each in logs()]


def test_a_webhook_that_was_deleted_gets_nothing__not_even_what_was_on_its_way(
    line: Line, subscriber: Subscriber, receiver: Receiver, client: Any, logs: Lines
) -> None:
    receiver.behave = lambda visit: visit.answer(500)
    webhook_id = subscriber.to(receiver)
    line.happen()
    line.deliver()
    client.delete(f"/api/v1/webhooks/{webhook_id}")
    line.deliver_for_good()

    assert len(receiver.got) == 1
    assert (line.deliveries.dead, line.deliveries.hidden) == ([], [])
    (skipped,) = [each for each in logs() if each["message"] == LogEvent.WEBHOOK_SKIPPED]
    assert (skipped["reason"], skipped["webhook_id"]) == ("it was deleted", webhook_id)


def test_a_webhook_that_is_deleted_during_a_410_stays_deleted(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    def gone(visit: Visit) -> None:
        Webhook(webhook_id).delete()
        visit.answer(410)

    receiver.behave = gone
    webhook_id = subscriber.to(receiver)
    line.happen()
    line.deliver_for_good()

    assert list(Webhook.scan(consistent_read=True)) == []
    assert line.deliveries.dead == []


# What becomes of what cannot be delivered


def test_a_delivery_that_never_succeeds_is_a_dead_letter__that_says_where_and_what(
    line: Line, subscriber: Subscriber, receiver: Receiver, logs: Lines
) -> None:
    receiver.behave = lambda visit: visit.answer(500, b'{"error": "no\x1b[2J disk"}\n')
    webhook_id = subscriber.to(receiver, path="/secret-path")
    line.happen()
    line.deliver_for_good()

    assert len(receiver.got) == 5
    assert len(line.deliveries.dead) == 1
    (record,) = [row for row in IdempotencyRow.scan(consistent_read=True) if row.failing == "webhook_deliveries"]
    host = receiver.url.removeprefix("http://")
    failure = Failure.from_json(record.failure)
    assert failure.message == f"webhook {webhook_id} at {host} answered 500"
    assert failure.excerpt == "{'error': 'no[2J disk'}"
    assert "secret-path" not in record.failure
    failed = [each for each in logs() if each["message"] == LogEvent.WEBHOOK_FAILED]
    assert len(failed) == 5
    assert {(each["event_id"], each["webhook_id"], each["host"], each["status"]) for each in failed} == {
        (EVENT, webhook_id, host, 500)
    }
    assert all(isinstance(each["ms"], int) for each in failed)


def _says_what_it_got(visit: Visit) -> None:
    visit.answer(500, str(visit.headers).encode() + visit.receiver.got[-1].body)


def _speaks_no_http(visit: Visit) -> None:
    visit.send(visit.headers["webhook-signature"].encode() + b" " + visit.receiver.got[-1].body + b"\r\n\r\n")


@pytest.mark.parametrize("behave", [_says_what_it_got, _speaks_no_http])
def test_what_a_receiver_says_is_in_the_record__and_in_no_log_line(
    line: Line, subscriber: Subscriber, receiver: Receiver, logs: Lines, behave: Callable[[Visit], None]
) -> None:
    receiver.behave = behave
    subscriber.to(receiver)
    line.happen(name="c4nary")
    line.deliver_for_good()

    signatures = {each.headers["webhook-signature"].partition(",")[2] for each in receiver.got}
    told = json.dumps(logs())
    assert "excerpt_hash" in told
    assert not [each for each in {"c4nary", *signatures} if each in told]
    (record,) = [row for row in IdempotencyRow.scan(consistent_read=True) if row.failing == "webhook_deliveries"]
    assert any(each in Failure.from_json(record.failure).excerpt for each in signatures)


def test_a_receiver_that_is_not_there_is_told_by_its_host(line: Line, subscriber: Subscriber, logs: Lines) -> None:
    with listening() as receiver:
        webhook_id = subscriber.to(receiver)
    line.happen()
    assert line.deliver() == 1

    (failed,) = [each for each in logs() if each["message"] == LogEvent.WEBHOOK_FAILED]
    host = receiver.url.removeprefix("http://")
    assert (failed["webhook_id"], failed["host"], failed["ms"]) == (webhook_id, host, 0)
    assert "refused" in failed["failure"]
    assert "status" not in failed


@pytest.mark.parametrize(
    ("status", "metric"),
    [(200, Metric.WEBHOOKS_DELIVERED), (500, Metric.WEBHOOKS_FAILED), (410, Metric.WEBHOOKS_DISABLED)],
)
def test_every_outcome_is_counted(
    line: Line,
    subscriber: Subscriber,
    receiver: Receiver,
    capsys: pytest.CaptureFixture[str],
    status: int,
    metric: Metric,
) -> None:
    receiver.behave = lambda visit: visit.answer(status)
    subscriber.to(receiver)
    line.happen()
    line.deliver()

    counted = [json.loads(written) for written in capsys.readouterr().out.splitlines() if '"_aws"' in written]
    assert [each[metric] for each in counted if metric in each] == [[1.0]]
    assert not {each for each in Metric if each.startswith("webhooks_") and each != metric} & {*counted[-1]}


def test_an_address_that_may_not_be_reached_is_dead_at_once__and_names_the_rule(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    webhook_id = subscriber.to(receiver)
    webhook = Webhook.get(webhook_id, consistent_read=True)
    webhook.url = "https://169.254.169.254/latest/meta-data/"
    webhook.save()
    line.happen()
    line.deliver_for_good()

    (record,) = [row for row in IdempotencyRow.scan(consistent_read=True) if row.failing == "webhook_deliveries"]
    assert "no address that may be reached: link-local" in record.failure
    assert len(line.deliveries.dead) == 1


def test_no_secret_of_ours_is_in_a_log_line_or_a_row(
    line: Line, subscriber: Subscriber, receiver: Receiver, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    def echo(visit: Visit) -> None:
        visit.answer(500, repr(receiver.got[-1]).encode())

    receiver.behave = echo
    webhook_id = subscriber.to(receiver)
    secret = str(subscriber.secrets(webhook_id)["current"])
    line.happen()
    line.deliver_for_good()

    rows = (*IdempotencyRow.scan(consistent_read=True), *Webhook.scan(consistent_read=True))
    written = f"{logs()} {[row.attribute_values for row in rows]}"
    assert webhook_id in written
    assert secret.removeprefix("whsec_") not in written + capsys.readouterr().out


def test_a_message_that_is_too_old_for_its_secret_still_verifies__since_it_is_signed_when_it_is_sent(
    line: Line, subscriber: Subscriber, receiver: Receiver, verify: Verify, rotate: Callable[..., None]
) -> None:
    receiver.behave = lambda visit: visit.answer(500)
    webhook_id = subscriber.to(receiver)
    line.happen()
    line.deliver()
    rotate(b"2")
    receiver.behave = lambda visit: visit.answer(200)
    line.wait_of_the_next()
    line.deliver()

    verify(receiver.got[-1], subscriber.secrets(webhook_id)["current"])


def test_a_process_that_dies_after_the_post_sends_it_again_with_the_same_id(
    line: Line, subscriber: Subscriber, receiver: Receiver, clock: ManualClock, runtime: Runtime
) -> None:
    subscriber.to(receiver)
    line.happen()

    with failing(lambda call: call.operation == "TransactWriteItems" and len(receiver.got) == 1, lambda _: Died()):
        with pytest.raises(Died):
            line.deliver()
        clock.advance(runtime.timings.consumer_timeout * 6 + 1)
    line.deliver_for_good()

    assert len(receiver.got) == 2
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1


def test_nothing_is_sent_unsigned__when_the_keys_cannot_be_read(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    subscriber.to(receiver)
    line.happen()
    with failing("GetSecretValue", throttled, times=9):
        assert line.deliver() == 1
    assert receiver.got == []
    line.deliver_for_good()
    assert len(receiver.got) == 1


def test_every_event_of_a_repository_can_be_subscribed_to(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    subscriber.to(receiver)
    for number, each in enumerate(TYPES):
        line.happen(each, event_id=EVENT.replace("5FAV", f"5FA{number}"), former_owner_id="owner-1")
    line.deliver()

    assert sorted(each for each in TYPES for got in receiver.got if each.encode() in got.body) == sorted(TYPES)


def test_a_subscription_that_cannot_be_read_keeps_no_other_from_its_delivery__and_is_told(
    line: Line, subscriber: Subscriber, receiver: Receiver, logs: Lines
) -> None:
    bad = subscriber.to(receiver, path="/bad")
    subscriber.to(receiver, path="/good")
    spoil_row(Webhook, bad, events={"S": "repo.created"})
    line.happen()
    line.deliver()
    assert [got.path for got in receiver.got] == ["/good"]
    (told,) = (each for each in logs() if each["message"] == "row unreadable")
    assert (told["table"], told["row"]) == ("webhooks", f"webhooks {bad}")
    assert told["failure"] == "events is a text (S) and must be a set of texts (SS)"


def test_a_delivery_to_a_webhook_whose_url_cannot_be_read_fails_alone__and_says_why(
    line: Line, subscriber: Subscriber, receiver: Receiver
) -> None:
    bad = subscriber.to(receiver, path="/bad")
    subscriber.to(receiver, path="/good")
    spoil_row(Webhook, bad, url={"N": "1"})
    line.happen()
    line.deliver()
    assert [got.path for got in receiver.got] == ["/good"]
    (record,) = (row for row in IdempotencyRow.scan(consistent_read=True) if row.failing)
    assert f"webhooks {bad} cannot be read: url is a number (N) and must be a text (S)" in record.failure
