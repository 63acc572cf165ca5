"""An event in the envelope in which EventBridge keeps it: read and taken out, whoever moved it."""

from __future__ import annotations

import json

import pytest

from mailroom.failures import Permanent
from mailroom.outbox.event import Envelope, bare

EVENT = {"id": "i", "type": "t", "source": "s", "data": {}}


def in_envelope(event: object) -> str:
    return json.dumps({"version": "0", "id": "e", "detail-type": "x", "source": "s", "detail": event})


def test_an_event_is_read_out_of_the_envelope() -> None:
    assert Envelope.from_json(in_envelope(EVENT)) == Envelope.from_json(json.dumps(EVENT))


@pytest.mark.parametrize("inside", [None, [], "x", {}, {"detail-type": "x", "detail": EVENT}], ids=str)
def test_what_is_no_event_is_none_in_an_envelope_either(inside: object) -> None:
    with pytest.raises(Permanent, match="no CloudEvent"):
        Envelope.from_json(in_envelope(inside))


def test_the_text_of_an_event_is_taken_out_of_the_envelope() -> None:
    assert bare(in_envelope({"id": "é"})) == '{"id":"é"}'


@pytest.mark.parametrize("text", ["", "no json", '{"id": "1",  "detail": {}}', "[" * 100_000, json.dumps(EVENT)])
def test_any_other_text_stays_as_it_is(text: str) -> None:
    assert bare(text) == text
