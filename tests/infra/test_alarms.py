"""Whatever is not delivered lies in a queue with an alarm that tells what to do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.application import Application
from infra.jobs import silence_of
from infra.layout import ROOT
from infra.monitoring import RUNBOOKS, Runbook
from mailroom.schedule import Cron, Every, Schedule
from mailroom.telemetry import NAMESPACE, Metric
from mailroom.timings import DAY, HOUR, timings_of
from tests.infra.assembly import Assembly, id_in
from tests.infra.conftest import Synth

DESCRIPTION = re.compile(
    rf"(?P<means>[A-Z].+\.) First: (?P<first>(aws|mailroom) .+) Then: {RUNBOOKS}#(?P<anchor>[a-z-]+)"
)
COMMANDS = re.compile(r"mailroom (status|jobs|saga list --status stuck|dead list( --source [a-z_]+)?) --stage [a-z]+")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.fixture(params=["local", "prod"])
def assembly(request: pytest.FixtureRequest, synth: Synth) -> Assembly:
    return synth(request.param)


def undelivered(assembly: Assembly) -> list[str]:
    rules = assembly.of_type("Events::Rule").values()
    targets = [target for rule in rules for target in rule["Properties"]["Targets"]]
    return [id_in(target["DeadLetterConfig"]["Arn"]) for target in targets]


def given_up(assembly: Assembly) -> list[str]:
    queues = assembly.of_type("SQS::Queue").values()
    return [
        id_in(each["Properties"]["RedrivePolicy"]["deadLetterTargetArn"])
        for each in queues
        if "RedrivePolicy" in each["Properties"]
    ]


def failed_runs(assembly: Assembly) -> list[str]:
    configs = assembly.of_type("Lambda::EventInvokeConfig").values()
    return [id_in(each["Properties"]["DestinationConfig"]["OnFailure"]["Destination"]) for each in configs]


def test_every_rule_target_has_a_dead_letter_queue_of_its_own(assembly: Assembly) -> None:
    queues = undelivered(assembly)
    assert len(queues) == len(set(queues)) == len(assembly.of_type("Events::Rule"))


def test_every_queue_is_a_source_or_a_place_for_dead_letters(assembly: Assembly) -> None:
    dead = undelivered(assembly) + given_up(assembly) + failed_runs(assembly)
    sources = [name for name, each in assembly.of_type("SQS::Queue").items() if "RedrivePolicy" in each["Properties"]]
    assert sorted(dead + sources) == sorted(assembly.of_type("SQS::Queue"))


def test_every_dead_letter_queue_has_an_alarm(assembly: Assembly) -> None:
    for queue in undelivered(assembly) + given_up(assembly) + failed_runs(assembly):
        assert "ApproximateNumberOfMessagesVisible" in assembly.alarms_on(queue)


def test_every_function_has_alarms_on_errors_and_throttles(assembly: Assembly) -> None:
    for function in assembly.of_type("Lambda::Function"):
        assert {"Errors", "Throttles"} <= set(assembly.alarms_on(function))


def test_a_relay_that_is_woken_late_has_an_alarm(assembly: Assembly) -> None:
    assert "IteratorAge" in assembly.alarms_on(assembly.function("relay"))


def test_an_api_that_fails_its_callers_has_an_alarm(assembly: Assembly) -> None:
    for api in assembly.of_type("ApiGatewayV2::Api"):
        assert assembly.alarms_on(api) == ["5xx"]


def test_every_alarm_says_what_it_means_what_to_type_and_where_to_read_on(assembly: Assembly) -> None:
    for alarm in assembly.of_type("CloudWatch::Alarm").values():
        description = alarm["Properties"]["AlarmDescription"]
        found = DESCRIPTION.fullmatch(description)
        assert found, description
        assert found["anchor"] in set(Runbook)


def test_every_command_of_ours_names_the_stage(assembly: Assembly) -> None:
    for alarm in assembly.of_type("CloudWatch::Alarm").values():
        found = DESCRIPTION.fullmatch(alarm["Properties"]["AlarmDescription"])
        if found and found["first"].startswith("mailroom"):
            assert COMMANDS.fullmatch(found["first"])
            assert found["first"].endswith(f" --stage {assembly.stage}")


def test_every_runbook_is_a_heading_on_the_page_that_alarms_point_to() -> None:
    headings = HEADING.findall((ROOT / RUNBOOKS).read_text())
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    assert {each.value for each in Runbook} <= anchors


def test_every_runbook_belongs_to_an_alarm(prod: Assembly) -> None:
    found = {each["Properties"]["AlarmDescription"].rpartition("#")[2] for each in alarms(prod)}
    assert found == {each.value for each in Runbook}


def test_more_than_100_dead_letters_sound_an_alarm__and_so_does_silence(assembly: Assembly) -> None:
    alarm = assembly.alarm("dlq_events_total")
    assert (alarm["Namespace"], alarm["Statistic"], alarm["Period"]) == ("Mailroom", "Maximum", 60)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (100, "GreaterThanThreshold")
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (3, 5)
    assert alarm["TreatMissingData"] == "breaching"


def test_an_event_that_waits_for_five_minutes_sounds_an_alarm(assembly: Assembly) -> None:
    alarm = assembly.alarm("outbox_oldest_pending_seconds")
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (300, "GreaterThanThreshold")
    assert alarm["TreatMissingData"] == "notBreaching"


def test_a_single_stuck_saga_sounds_an_alarm(assembly: Assembly) -> None:
    alarm = assembly.alarm("saga_stuck")
    assert (alarm["Namespace"], alarm["Statistic"], alarm["Period"]) == ("Mailroom", "Maximum", 60)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (0, "GreaterThanThreshold")


def test_keys_that_cannot_be_read_sound_an_alarm_within_the_day__long_before_their_copies_end(
    assembly: Assembly,
) -> None:
    alarm = assembly.alarm("signing_keys_unread", "mailroom")
    assert (alarm["Namespace"], alarm["Statistic"], alarm["Period"]) == ("Mailroom", "Sum", HOUR)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (0, "GreaterThanThreshold")
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (3, 24)
    assert alarm["TreatMissingData"] == "notBreaching"
    assert alarm["EvaluationPeriods"] * alarm["Period"] < timings_of(assembly.stage).signing_overlap


def test_a_message_that_is_older_than_all_its_attempts_take_sounds_an_alarm(assembly: Assembly) -> None:
    timings = timings_of(assembly.stage)
    for consumer in Application.discover().consumers:
        alarm = assembly.alarm("ApproximateAgeOfOldestMessage", assembly.queue(consumer.name))
        attempts = timings.consumer_backoff.attempts * (consumer.timeout or timings.consumer_timeout)
        span = timings.consumer_backoff.longest_span() + attempts
        assert span < alarm["Threshold"] < timings.source_retention


def test_a_dead_letter_sounds_an_alarm_two_days_before_sqs_deletes_it__wherever_it_waited_before(
    assembly: Assembly,
) -> None:
    timings = timings_of(assembly.stage)
    waited = dict.fromkeys(given_up(assembly), timings.source_retention)
    for queue in undelivered(assembly) + given_up(assembly) + failed_runs(assembly):
        alarm = assembly.alarm("ApproximateAgeOfOldestMessage", queue)
        left = timings.dead_letter_retention - alarm["Threshold"] - waited.get(queue, 0)
        assert left == 2 * DAY


def test_a_job_that_does_not_run_sounds_an_alarm__since_lambda_reports_no_zeros(assembly: Assembly) -> None:
    for job in Application.discover().jobs:
        alarm = assembly.alarm("Invocations", assembly.function(job.name))
        assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
        assert alarm["TreatMissingData"] == "breaching"
        assert alarm["Period"] * alarm["EvaluationPeriods"] >= 2 * job.schedule.longest_gap


@pytest.mark.parametrize(
    ("schedule", "silence"),
    [
        (Every(seconds=5), (60, 5)),
        (Every(minutes=1), (60, 5)),
        (Every(minutes=90), (5_400, 2)),
        (Every(hours=1), (HOUR, 2)),
        (Every(days=1), (DAY, 2)),
        (Every(days=6), (DAY, 7)),
        (Every(days=7), None),
        (Cron(minute=0), (HOUR, 2)),
        (Cron(hour="9-17"), (16 * HOUR, 2)),
        (Cron(hour=4, day="MON-FRI"), (DAY, 4)),
        (Cron(hour=4, day="MON"), None),
    ],
    ids=str,
)
def test_silence_means_something_after_two_firings_are_missed__within_the_week_that_an_alarm_looks_back(
    schedule: Schedule, silence: tuple[int, int] | None
) -> None:
    assert silence_of(schedule) == silence


def test_the_dashboard_reads_left_to_right(prod: Assembly) -> None:
    (dashboard,) = prod.of_type("CloudWatch::Dashboard").values()
    widgets = json.loads(dashboard["Properties"]["DashboardBody"])["widgets"]
    columns = {each["x"]: each["properties"]["title"] for each in reversed(widgets)}
    assert [title.split(":")[0] for _, title in sorted(columns.items())] == [
        "Requests", "Outbox", "Destination", "Consumers", "Dead",
    ]  # fmt: skip
    assert max(each["x"] + each["width"] for each in widgets) == 24


def test_the_dashboard_shows_every_queue(prod: Assembly) -> None:
    (dashboard,) = prod.of_type("CloudWatch::Dashboard").values()
    assert all(
        reference in dashboard["Properties"]["DashboardBody"].replace(".QueueName", "")
        for reference in prod.deployment["queues"].values()
    )


def test_every_metric_of_ours_that_is_watched_is_one_that_code_reports(prod: Assembly) -> None:
    watched = {
        each["Properties"]["MetricName"] for each in alarms(prod) if each["Properties"]["Namespace"] == NAMESPACE
    }
    assert watched <= {each.value for each in Metric}


def alarms(assembly: Assembly) -> list[dict[str, Any]]:
    return list(assembly.of_type("CloudWatch::Alarm").values())


def test_every_alarm_reaches_the_topic__which_lets_cloudwatch_in(prod: Assembly) -> None:
    (topic,) = prod.of_type("SNS::Topic")
    for alarm in prod.of_type("CloudWatch::Alarm").values():
        assert alarm["Properties"]["AlarmActions"] == [f"${{{topic}}}"]
    (policy,) = prod.of_type("SNS::TopicPolicy").values()
    allowed = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert [each["Principal"] for each in allowed] == [{"Service": "cloudwatch.amazonaws.com"}]


def test_the_people_on_call_are_told(prod: Assembly) -> None:
    (subscription,) = prod.of_type("SNS::Subscription").values()
    assert subscription["Properties"]["Endpoint"] == "on-call@example.com"
