"""The account in which tests run: what moto is spared must not show."""

from __future__ import annotations

import pytest
from pynamodb.connection import Connection
from pynamodb.exceptions import TransactWriteError
from pynamodb.transactions import TransactWrite

from app.owners import Owner
from mailroom.runtime import Runtime
from tests.moto_account import REGION, MotoAccount


def counts() -> dict[str, int]:
    return {owner.id: owner.repo_count for owner in Owner.scan(consistent_read=True)}


def add_one_and_be_refused(owner: Owner) -> None:
    with TransactWrite(connection=Connection(region=REGION)) as transaction:
        transaction.update(owner, [Owner.repo_count.add(1)])
        transaction.save(Owner("2"))
        transaction.condition_check(Owner, "3", condition=Owner.id.exists())


def test_a_cancelled_transaction_leaves_every_row_as_it_was(runtime: Runtime) -> None:
    owner = Owner("1", repo_count=1)
    owner.save()
    with pytest.raises(TransactWriteError):
        add_one_and_be_refused(owner)
    assert counts() == {"1": 1}


def test_rows_that_are_kept_stay_as_they_were__and_can_be_put_again(
    runtime: Runtime, moto_account: MotoAccount
) -> None:
    owner = Owner("1", repo_count=1)
    owner.save()
    kept = moto_account.rows()
    for _ in range(2):
        Owner("1").update([Owner.repo_count.add(1)])
        Owner("2").save()
        moto_account.put(kept)
        assert counts() == {"1": 1}
