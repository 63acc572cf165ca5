"""Whatever is not delivered lies in a queue with an alarm that tells what to do."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
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
from tests.infra.conftest import ENVIRONMENT, Synth

DESCRIPTION = re.compile(
    rf"(?P<means>[A-Z].+\.) First: (?P<first>(aws|mailroom) .+) Then: {RUNBOOKS}#(?P<anchor>[a-z-]+)"
)
COMMANDS = re.compile(
    r"mailroom (status|jobs|saga list --status stuck|dead list( --source [a-z_]+(-undelivered)?)?) --stage [a-z]+"
)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COUNTS = {
    "5xx",
    "ApproximateNumberOfMessagesVisible",
    "Errors",
    "Invocations",
    "Throttles",
    Metric.DLQ_EVENTS_TOTAL,
    Metric.OUTBOX_DEAD,
    Metric.SAGA_STUCK,
    Metric.SIGNING_KEYS_UNREAD,
}
"""The metrics with alarms that are no ages."""


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


@pytest.mark.parametrize("queues_of", [given_up, undelivered, failed_runs])
def test_the_first_message_in_a_dead_letter_queue_sounds_its_alarm__within_a_minute(
    assembly: Assembly, queues_of: Callable[[Assembly], list[str]]
) -> None:
    queues = queues_of(assembly)
    assert queues
    for queue in queues:
        alarm = assembly.alarm("ApproximateNumberOfMessagesVisible", queue)
        assert sounds_when(alarm) == ("Maximum", "GreaterThanThreshold", 0, 1, 60)
        assert alarm["TreatMissingData"] == "notBreaching"


@pytest.mark.parametrize(("metric", "periods"), [("Errors", 1), ("Throttles", 3)])
def test_a_function_that_fails_sounds_an_alarm_at_once__and_one_that_is_refused_for_three_minutes(
    assembly: Assembly, metric: str, periods: int
) -> None:
    for function in assembly.of_type("Lambda::Function"):
        alarm = assembly.alarm(metric, function)
        assert sounds_when(alarm) == ("Sum", "GreaterThanThreshold", 0, periods, 60)
        assert alarm["TreatMissingData"] == "notBreaching"


def test_a_relay_that_is_woken_late_has_an_alarm(assembly: Assembly) -> None:
    alarm = assembly.alarm("IteratorAge", assembly.function("relay"))
    assert sounds_when(alarm) == ("Maximum", "GreaterThanThreshold", 150_000, 1, 60)
    assert "more than 150 seconds late" in alarm["AlarmDescription"]


def test_an_api_that_fails_its_callers_has_an_alarm(assembly: Assembly) -> None:
    for api in assembly.of_type("ApiGatewayV2::Api"):
        assert sounds_when(assembly.alarm("5xx", api)) == ("Sum", "GreaterThanThreshold", 0, 1, 60)


def sounds_when(alarm: dict[str, Any]) -> tuple[str, str, float, int, int]:
    """Return statistic, comparison and threshold, and in how many periods of how many seconds, all of them."""
    assert alarm.get("DatapointsToAlarm", alarm["EvaluationPeriods"]) == alarm["EvaluationPeriods"]
    names = ("Statistic", "ComparisonOperator", "Threshold", "EvaluationPeriods", "Period")
    statistic, comparison, threshold, periods, period = (alarm[name] for name in names)
    return statistic, comparison, threshold, periods, period


def test_an_alarm_on_an_age_can_sound__before_what_is_so_old_has_vanished(assembly: Assembly) -> None:
    ages = [each["Properties"] for each in alarms(assembly) if each["Properties"]["MetricName"] not in COUNTS]
    assert len(ages) > len(assembly.of_type("SQS::Queue"))
    for alarm in ages:
        oldest, unit = oldest_seen(assembly, alarm)
        evaluation = alarm["EvaluationPeriods"] * alarm["Period"] * unit
        assert 0 < alarm["Threshold"] <= oldest - evaluation, alarm["AlarmDescription"]


def oldest_seen(assembly: Assembly, alarm: dict[str, Any]) -> tuple[float, int]:
    """Return the highest age that an alarm's metric reaches for certain, and the metric's units in a second."""
    on = [id_in(each["Value"]) for each in alarm.get("Dimensions", [])]
    match alarm["MetricName"], on:
        case "IteratorAge", [function]:
            return assembly.mapping_of(function)["MaximumRecordAgeInSeconds"] * 1_000, 1_000
        case "ApproximateAgeOfOldestMessage", [queue]:
            return retention(assembly, queue) - longest_before(assembly, queue), 1
        case Metric.OUTBOX_OLDEST_PENDING_SECONDS, []:
            return math.inf, 1  # a pending event never expires
    pytest.fail(f"{alarm['MetricName']} is neither among the counts nor an age whose limit is known here")


def retention(assembly: Assembly, queue: str) -> int:
    return int(assembly.properties(queue)["MessageRetentionPeriod"])


def longest_before(assembly: Assembly, queue: str) -> int:
    """Return the seconds that a message may have spent in other queues, which SQS leaves out of the age it reports."""
    sources = [
        name
        for name, each in assembly.of_type("SQS::Queue").items()
        if "RedrivePolicy" in each["Properties"] and assembly.dead_letters_of(name) == queue
    ]
    return max((retention(assembly, each) for each in sources), default=0)


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


ROW = re.compile(
    r"\| (?P<what>[^|]+) \| `(?P<metric>\w+)`[^|]* \| (?P<rings>[^|]+) \| \[[^]]+\]\(#(?P<anchor>[a-z-]+)\) \|"
)
UNITS = {60: "minute", 300: "five minutes", HOUR: "hour"}


def test_the_runbooks_table_has_every_alarm__and_when_it_rings(prod: Assembly) -> None:
    (section,) = re.findall(r"^## What rings when\n(.*?)^## ", (ROOT / RUNBOOKS).read_text(), re.MULTILINE | re.DOTALL)
    table: dict[tuple[str, str], list[str]] = {}
    for row in ROW.finditer(section):
        table.setdefault((row["metric"], row["anchor"]), []).append(row["rings"])
    built: dict[tuple[str, str], set[str]] = {}
    for each in alarms(prod):
        alarm = each["Properties"]
        built.setdefault((alarm["MetricName"], alarm["AlarmDescription"].rpartition("#")[2]), set()).add(rings(alarm))
    assert sorted(table) == sorted(built)
    for key, when in built.items():
        if len(when) == 1:  # where it differs from one queue or job to the next, the table says it in words
            assert table[key] == [*when] * len(table[key]), key


def rings(alarm: dict[str, Any]) -> str:
    """Return when an alarm rings, as the runbook says it."""
    periods = alarm["EvaluationPeriods"]
    unit = UNITS.get(alarm["Period"], f"{alarm['Period']} s")
    span = f"a {unit}" if periods == 1 else f"{alarm.get('DatapointsToAlarm', periods)} of {periods} {unit}s"
    side = "above" if alarm["ComparisonOperator"] == "GreaterThanThreshold" else "below"
    missing = " or missing" if alarm["TreatMissingData"] == "breaching" else ""
    return f"{side} {alarm['Threshold']:,}{missing}, in {span}"


def test_every_runbook_belongs_to_an_alarm(prod: Assembly) -> None:
    found = {each["Properties"]["AlarmDescription"].rpartition("#")[2] for each in alarms(prod)}
    assert found == {each.value for each in Runbook}


def test_more_than_100_dead_letters_sound_an_alarm__and_so_does_silence(assembly: Assembly) -> None:
    alarm = assembly.alarm("dlq_events_total")
    assert (alarm["Namespace"], alarm["Statistic"], alarm["Period"]) == ("Mailroom", "Maximum", 60)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (100, "GreaterThanThreshold")
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (3, 5)
    assert alarm["TreatMissingData"] == "breaching"


def test_a_single_event_that_could_not_be_published_sounds_an_alarm(assembly: Assembly) -> None:
    alarm = assembly.alarm("outbox_dead")
    assert (alarm["Namespace"], *sounds_when(alarm)) == ("Mailroom", "Maximum", "GreaterThanThreshold", 0, 1, 60)
    assert alarm["TreatMissingData"] == "notBreaching"  # that nobody counts rings as too many dead letters
    assert "dead list --source outbox" in alarm["AlarmDescription"]


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


def test_every_alarm_reaches_the_topic(assembly: Assembly) -> None:
    (topic,) = assembly.of_type("SNS::Topic")
    for alarm in alarms(assembly):
        assert alarm["Properties"]["AlarmActions"] == [f"${{{topic}}}"]
        assert alarm["Properties"].get("ActionsEnabled", True) is True


def test_the_topic_takes_what_cloudwatch_says_of_the_stages_own_account__and_nothing_else(assembly: Assembly) -> None:
    (topic,) = assembly.of_type("SNS::Topic")
    (policy,) = assembly.of_type("SNS::TopicPolicy").values()
    assert policy["Properties"]["Topics"] == [f"${{{topic}}}"]
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    (allowed,) = [each for each in statements if each["Effect"] == "Allow"]
    assert {name: each for name, each in allowed.items() if name != "Sid"} == {
        "Effect": "Allow",
        "Principal": {"Service": "cloudwatch.amazonaws.com"},
        "Action": "sns:Publish",
        "Resource": f"${{{topic}}}",
        "Condition": {"StringEquals": {"aws:SourceAccount": ENVIRONMENT.account}},
    }


def test_the_people_on_call_are_told(prod: Assembly) -> None:
    (subscription,) = prod.of_type("SNS::Subscription").values()
    assert subscription["Properties"]["Endpoint"] == "on-call@example.com"
