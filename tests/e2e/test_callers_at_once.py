"""Callers that race: the API in process, its tables in the emulator, whose writes are atomic as AWS's are."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import uuid4

import pytest

from app.api import api
from app.owners import Owner
from app.repos import Repo
from app.settings import AppSettings
from mailroom.clock import SystemClock
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.idempotency import IdempotencyRow
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime

from .racing import at_once

ORDER = {"name": "tool", "owner_id": "owner-1"}


@pytest.fixture
def client(runtime: Runtime) -> ApiClient:
    return ApiClient(api, runtime)


def statuses(answers: list[ApiAnswer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


def made() -> tuple[int, int, int]:
    """Answer how many repositories, events and counted repositories there are."""
    return len(list(Repo.scan())), len(list(OutboxRow.scan())), sum(int(each.repo_count) for each in Owner.scan())


def test_twenty_with_one_key_and_body_make_one(client: ApiClient) -> None:
    answers = at_once(20, lambda _: client.post("/api/v1/repos", ORDER, key="the-key"))
    assert set(statuses(answers)) <= {201, 409}
    assert len({answer.json["id"] for answer in answers if answer.status == 201}) == 1
    assert all("Retry-After" in answer.headers for answer in answers if answer.status == 409)
    assert made() == (1, 1, 1)


def test_another_body_under_the_key_is_refused__also_while_the_first_runs(client: ApiClient) -> None:
    bodies = [{**ORDER, "name": f"tool-{number}"} for number in range(10)]
    answers = at_once(10, lambda number: client.post("/api/v1/repos", bodies[number], key="the-key"))
    assert statuses(answers) == {201: 1, 422: 9}
    assert made() == (1, 1, 1)


def test_two_callers_with_one_key_are_two_requests(runtime: Runtime) -> None:
    signed = Runtime(runtime.settings.model_copy(update={"auth": "iam"}), runtime.of(AppSettings))
    callers = [ApiClient(api, signed, identity=identity(role)) for role in ("AROAONE", "AROATWO")]
    answers = at_once(2, lambda number: callers[number].post("/api/v1/repos", ORDER, key="the-key"))
    assert statuses(answers) == {201: 2}
    assert made() == (2, 2, 2)


def identity(role: str) -> dict[str, str]:
    return {"accountId": "000000000000", "userId": f"{role}:session"}


def test_a_quota_holds__however_many_ask_at_once(client: ApiClient) -> None:
    client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 3})

    def ask(_: int) -> ApiAnswer:
        while True:
            answer = client.post("/api/v1/repos", ORDER, key=uuid4().hex)
            if answer.status != 503:  # contention, which says so and may be repeated
                return answer

    answers = at_once(8, ask)
    assert statuses(answers) == {201: 3, 409: 5}
    assert made() == (3, 3, 3)


def test_two_records_whose_window_is_over_are_each_taken_over_by_one(client: ApiClient) -> None:
    keys = ["one", "two"]
    for key in keys:
        assert client.post("/api/v1/repos", ORDER, key=key).status == 201
    past = int((SystemClock().now() - timedelta(minutes=1)).timestamp() * 1000)
    for record in IdempotencyRow.scan():
        record.update(
            [IdempotencyRow.status.set("INPROGRESS"), IdempotencyRow.in_progress_until.set(past)],
        )
    answers = at_once(8, lambda number: client.post("/api/v1/repos", ORDER, key=keys[number % 2]))
    assert set(statuses(answers)) <= {201, 409}
    assert len({answer.json["id"] for answer in answers if answer.status == 201}) == 2
    assert made() == (4, 4, 4)
