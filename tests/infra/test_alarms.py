"""Whatever is not delivered lies in a queue with an alarm that tells what to do."""

from __future__ import annotations

import re

import pytest

from infra.monitoring import RUNBOOKS, Runbook
from tests.infra.assembly import Assembly, id_in
from tests.infra.conftest import Synth

DESCRIPTION = re.compile(rf"(?P<means>[A-Z].+\.) First: (?P<first>aws .+) Then: {RUNBOOKS}#(?P<anchor>[a-z-]+)")


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
    (api,) = assembly.of_type("ApiGatewayV2::Api")
    assert assembly.alarms_on(api) == ["5xx"]


def test_every_alarm_says_what_it_means_what_to_type_and_where_to_read_on(assembly: Assembly) -> None:
    for alarm in assembly.of_type("CloudWatch::Alarm").values():
        description = alarm["Properties"]["AlarmDescription"]
        found = DESCRIPTION.fullmatch(description)
        assert found, description
        assert found["anchor"] in set(Runbook)


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
