"""URLs of destinations: read once, refused with what is wrong, and never repeated, since they may hold a password."""

from __future__ import annotations

import pytest

from mailroom.publishers.place import Place, PublisherUrlError, Server
from mailroom.publishers.publisher import kind_of

TOPIC = "arn:aws:sns:eu-central-1:111122223333:things"


def read(name: str, **rules: object) -> Server:
    return Place("kafka", name).server(**{"needs": ("secret",), "may_have": ("region",), **rules})  # type: ignore[arg-type]


def test_a_server_has_host_port_path_and_options() -> None:
    server = read("broker.example:9092/a%2Fb%20c?secret=n%26m&region=r")
    assert server == Server((("broker.example", 9092),), "a/b c", {"secret": "n&m", "region": "r"})


def test_a_port_that_is_left_out_is_the_usual_one__where_there_is_one() -> None:
    assert read("broker?secret=s", port=5671).hosts == (("broker", 5671),)
    with pytest.raises(PublisherUrlError, match="host has no port"):
        read("broker?secret=s")


def test_hosts_may_be_several__where_the_destination_knows_several() -> None:
    assert read("a:1,[::1]:2/t?secret=s", several=True).hosts == (("a", 1), ("[::1]", 2))
    with pytest.raises(PublisherUrlError, match="host is none"):
        read("a:1,b:2/t?secret=s")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("/topic?secret=s", "names no host"),
        (":9092/topic?secret=s", "host is none"),
        ("a b:9092?secret=s", "host is none"),
        ("a:99999?secret=s", "port 99999"),
        ("a:0?secret=s", "port 0"),
        ("a:x?secret=s", "host is none"),
        ("a:1", "option secret is missing"),
        ("a:1?secret=", "option secret is missing or empty"),
        ("a:1?secret=s&region=", "option region is missing or empty"),
        ("a:1?secret=s&secret=t", "twice"),
        ("a:1?secret=s&colour=red", r"option 'colour', and knows secret, region"),
        ("a:1?secret", "no option=value"),
        ("a:1/topic?secret=s#part", "fragment"),
        ("a:1,,b:2?secret=s", "names no host"),
    ],
)
def test_a_server_that_cannot_be_is_refused__with_what_is_wrong(name: str, what: str) -> None:
    with pytest.raises(PublisherUrlError, match=what):
        read(name, several=True)


@pytest.mark.parametrize("name", ["me:hunter2@a:1/t?secret=s", "me@a:1?secret=s", "a:1?secret=s&password=hunter2"])
def test_a_password_in_the_url_is_refused__and_not_told(name: str) -> None:
    with pytest.raises(PublisherUrlError) as caught:
        read(name)
    assert "hunter2" not in str(caught.value)


def test_an_arn_is_read() -> None:
    arn = Place("sns", TOPIC).arn("sns")
    assert (arn.region, arn.account, arn.name, arn.is_fifo) == ("eu-central-1", "111122223333", "things", False)
    assert Place("sns", f"{TOPIC}.fifo").arn("sns").is_fifo


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("things", "name it by its ARN, arn:aws:sns:<region>:<account>:<name>"),
        (f"{TOPIC}:11111111-2222-3333-4444-555555555555", "name it by its ARN"),
        (TOPIC.replace("111122223333", "1111"), "name it by its ARN"),
        (TOPIC.replace(":things", ":"), "name it by its ARN"),
        (TOPIC.replace("sns", "sqs"), "one of sqs, and sns:// takes those of sns"),
        (TOPIC.replace("eu-central-1", "middle-earth"), "region middle-earth is none"),
        (TOPIC.replace("eu-central-1", ""), "name it by its ARN"),
    ],
)
def test_an_arn_that_cannot_be_is_refused__with_what_is_wrong(name: str, what: str) -> None:
    with pytest.raises(PublisherUrlError, match=what):
        Place("sns", name).arn("sns")


@pytest.mark.parametrize("url", ["me:hunter2@host", "smoke://me:hunter2@host", "eventbridge://me:hunter2@host"])
def test_a_url_of_no_destination_is_not_told(url: str) -> None:
    with pytest.raises(PublisherUrlError) as caught:
        kind_of(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["arn:aws:events:eu-central-1:111122223333:event-bus/b", "a bus", "x" * 257])
def test_a_bus_is_named_by_its_name(name: str) -> None:
    with pytest.raises(PublisherUrlError, match="name a bus of this account and region"):
        kind_of(f"eventbridge://{name}")
