"""What took effect on AWS, as it happened: what the tables show at the end does not tell everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from mailroom.clients import Call
from mailroom.outbox.table import PENDING_PREFIX, SENT_PREFIX


class Journal:
    """Remembers which events were committed, published and marked, in order. It is a `CallObserver`.

    Parameters
    ----------
    on_bus
        Told of each event that reached the bus: its text.
    """

    def __init__(self, on_bus: Callable[[str], None] = lambda _: None) -> None:
        self.committed: dict[str, str | None] = {}
        """The ids of events that were pending once, in order, each with its subject."""
        self.published: list[str] = []
        self.published_after_mark: list[str] = []
        self._marked: set[str] = set()
        self._on_bus = on_bus

    def publish(self, event_id: str) -> None:
        """Note that a destination has an event."""
        self.published.append(event_id)
        if event_id in self._marked:
            self.published_after_mark.append(event_id)

    def before(self, call: Call) -> None: ...

    def after(self, call: Call, answer: dict[str, Any]) -> None:
        if "Error" in answer:
            return
        if call.operation == "PutEvents":
            self._note_bus(call, answer)
        if call.operation in _BATCHES:
            self._note_batch(call, answer)
        for item in _puts(call):
            partition, event_id = (item.get(name, {}).get("S", "") for name in ("partition", "event_id"))
            if partition.startswith(PENDING_PREFIX):
                self.committed.setdefault(event_id, item["subject"]["S"] if "subject" in item else None)
                self._marked.discard(event_id)
            elif partition.startswith(SENT_PREFIX):
                self._marked.add(event_id)

    def _note_bus(self, call: Call, answer: dict[str, Any]) -> None:
        for entry, outcome in zip(call.parameters["Entries"], answer["Entries"], strict=True):
            if "ErrorCode" not in outcome:
                self.publish(json.loads(entry["Detail"])["id"])
                self._on_bus(entry["Detail"])

    def _note_batch(self, call: Call, answer: dict[str, Any]) -> None:
        entries, text = _BATCHES[call.operation]
        done = {each["Id"] for each in answer.get("Successful", ())}
        for entry in call.parameters[entries]:
            if entry["Id"] in done:
                self.publish(json.loads(entry[text])["id"])


_BATCHES = {
    "SendMessageBatch": ("Entries", "MessageBody"),
    "PublishBatch": ("PublishBatchRequestEntries", "Message"),
}
"""Where queues and topics have their entries, and an entry its event."""


def _puts(call: Call) -> Iterator[dict[str, Any]]:
    match call.operation:
        case "PutItem":
            yield call.parameters["Item"]
        case "TransactWriteItems":
            yield from (each["Put"]["Item"] for each in call.parameters["TransactItems"] if "Put" in each)
        case "BatchWriteItem":
            for requests in call.parameters["RequestItems"].values():
                yield from (each["PutRequest"]["Item"] for each in requests if "PutRequest" in each)
