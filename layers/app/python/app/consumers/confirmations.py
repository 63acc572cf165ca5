"""Ask whoever reads the mail of a new address to confirm it."""

from __future__ import annotations

from app.confirmation import ask
from app.email import Email, emails
from app.events import OwnerEmailChanged
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.unit_of_work import UnitOfWork


@consumer(on=OwnerEmailChanged, writes=[Owner], uses=[Email], rate=emails, max_concurrency=5)
def confirmations(event: OwnerEmailChanged, work: UnitOfWork) -> None:
    """Send a token to the address."""
    ask(event, work)
