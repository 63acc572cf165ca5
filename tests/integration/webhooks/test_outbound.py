"""Requests to somebody else's URL, to a real server on this machine: what comes back, and what is never reached."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import trustme

from mailroom.clock import SystemClock
from mailroom.failures import FailureKind, failure_of
from mailroom.outbound import Answer, Dial, Found, LookUp, NoAnswer, Outbound, PeerRefused, dial, look_up
from mailroom.outbound_url import OutboundUrl, UrlRefused
from mailroom.peers import Peers
from mailroom.timings import Timings
from tests.receiver import NOT_YET, Receiver, Visit, listening

BODY = b'{"type":"test.happened"}'
LAPTOP = "127.0.0.0/8"
PUBLIC = "93.184.216.34"
SOON = 0.3
"""Seconds: long enough for a server on this machine, short enough for a test."""

Send = Callable[..., Answer]


def outbound(
    networks: str = LAPTOP,
    *,
    tls: ssl.SSLContext | None = None,
    look_up: LookUp = look_up,
    dial: Dial = dial,
    **timings: float,
) -> Outbound:
    return Outbound(
        peers=Peers.of(networks),
        timings=replace(Timings(), **timings),
        clock=SystemClock(),
        tls=tls,
        look_up=look_up,
        dial=dial,
    )


def send(url: str, sender: Outbound | None = None, **headers: str) -> Answer:
    return (sender or outbound()).post(OutboundUrl.parse(url), headers=headers, body=BODY)


@contextmanager
def ends_soon() -> Iterator[None]:
    """See that the block ends long before the receivers of these tests give up."""
    start = SystemClock().monotonic()
    yield
    assert SystemClock().monotonic() - start < NOT_YET / 2


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening() as receiver:
        yield receiver


def test_the_bytes_arrive_as_they_are__with_the_headers(receiver: Receiver) -> None:
    answer = send(f"{receiver.url}/in?a=1", **{"webhook-id": "msg_1"})

    (got,) = receiver.got
    assert (answer.status, answer.accepted) == (204, True)
    assert (got.path, got.body, got.headers["webhook-id"]) == ("/in?a=1", BODY, "msg_1")
    assert got.headers["host"] == receiver.url.removeprefix("http://")
    assert got.headers["content-length"] == str(len(BODY))


def test_every_request_has_a_connection_of_its_own(receiver: Receiver) -> None:
    sender = outbound()
    for _ in range(3):
        send(receiver.url, sender)

    assert receiver.connections == 3


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer__and_nobody_goes_there(receiver: Receiver, status: int) -> None:
    with listening() as elsewhere:
        receiver.behave = lambda visit: visit.answer(status, location=elsewhere.url)
        answer = send(receiver.url)

    assert (answer.status, answer.accepted) == (status, False)
    assert (len(receiver.got), elsewhere.got) == (1, [])


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
def test_what_a_receiver_says_is_kept__where_it_did_not_accept(receiver: Receiver, status: int) -> None:
    receiver.behave = lambda visit: visit.answer(status, b'no: \x1b[31m"why"\r\n\x00caf\xc3\xa9\xff', retry_after="7")

    assert send(receiver.url) == Answer(status, "7", "no: [31m'why'  café\ufffd")


EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nRetry-After: 99\r\n\r\n"
FINAL = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"


@pytest.mark.parametrize("interim", [EARLY, b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n"])
@pytest.mark.parametrize("count", [1, 20])
def test_interim_answers_are_skipped__until_the_final_one(receiver: Receiver, interim: bytes, count: int) -> None:
    receiver.behave = lambda visit: visit.send(interim * count + FINAL)

    assert send(receiver.url) == Answer(503, "7", "busy")


def test_an_endless_row_of_interim_answers_is_no_answer(receiver: Receiver) -> None:
    receiver.behave = lambda visit: visit.send(EARLY * 21 + FINAL)

    with pytest.raises(NoAnswer, match="more than 20 interim responses"):
        send(receiver.url)


def test_another_protocol_is_no_success(receiver: Receiver) -> None:
    receiver.behave = lambda visit: visit.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")

    assert not send(receiver.url).accepted


@pytest.mark.parametrize("count", [101, 500])
def test_many_headers_make_no_other_answer(receiver: Receiver, count: int) -> None:
    many = b"".join(b"X-%d: some\r\n" % number for number in range(count))
    receiver.behave = lambda visit: visit.send(b"HTTP/1.1 503 Busy\r\n" + many + FINAL.partition(b"\r\n")[2])

    assert send(receiver.url) == Answer(503, "7", "busy")


def test_a_body_in_chunks_is_read__after_many_headers(receiver: Receiver) -> None:
    head = b"HTTP/1.1 500 Oh\r\n" + b"X: y\r\n" * 200 + b"Transfer-Encoding:\r\n chunked\r\n\r\n"
    receiver.behave = lambda visit: visit.send(EARLY + head + b"4\r\nbusy\r\n0\r\n\r\n")

    assert send(receiver.url) == Answer(500, None, "busy")


@pytest.mark.parametrize("head", [b"X: " + b"y" * 70_000 + b"\r\n", b"X: y\r\n" * 12_000], ids=["one", "many"])
def test_headers_without_end_are_no_answer(receiver: Receiver, head: bytes) -> None:
    receiver.behave = lambda visit: visit.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")

    with pytest.raises(NoAnswer, match="headers of more than 65536 bytes"):
        send(receiver.url)


def test_of_a_huge_answer_no_more_is_read_than_is_kept(receiver: Receiver) -> None:
    receiver.behave = lambda visit: visit.answer(500, b"x" * 50_000_000)

    assert send(receiver.url).excerpt == "x" * 1024


def test_the_body_of_a_success_is_nobodys_business__however_slowly_it_comes(receiver: Receiver) -> None:
    receiver.behave = lambda visit: visit.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")

    assert send(receiver.url) == Answer(200)


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 ",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 ",
    ],
)
def test_a_receiver_that_drips_is_left__when_the_whole_time_is_over(receiver: Receiver, beginning: bytes) -> None:
    receiver.behave = lambda visit: visit.drip(beginning)

    with ends_soon(), pytest.raises(NoAnswer, match=rf"no answer within {SOON} s"):
        send(receiver.url, outbound(outbound_timeout=SOON))


def test_a_failure_counts_as_answered__though_its_body_drips(receiver: Receiver) -> None:
    receiver.behave = lambda visit: visit.drip(b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n")

    with ends_soon():
        assert send(receiver.url, outbound(outbound_timeout=SOON)).status == 500


def test_a_receiver_that_says_nothing_is_left__when_a_read_took_too_long(receiver: Receiver) -> None:
    receiver.behave = lambda visit: visit.wait()

    with ends_soon(), pytest.raises(NoAnswer, match="timed out"):
        send(receiver.url, outbound(outbound_read_timeout=SOON))


def test_a_receiver_that_does_not_listen_is_no_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        with pytest.raises(NoAnswer, match=rf"127.0.0.1:{port}: .*refused") as caught:
            send(f"http://127.0.0.1:{port}")

    assert failure_of(caught.value).kind is FailureKind.TRANSIENT, "one of many: no state of the consumer's"


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00" * 100, b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 200]
)
def test_what_is_no_http_is_no_answer(receiver: Receiver, answer: bytes) -> None:
    def behave(visit: Visit) -> None:
        visit.wfile.write(answer)
        visit.connection.shutdown(socket.SHUT_RDWR)

    receiver.behave = behave

    with pytest.raises(NoAnswer) as caught:
        send(receiver.url)
    assert str(caught.value).isprintable()


def test_a_connection_that_is_reset_is_no_answer(receiver: Receiver) -> None:
    def behave(visit: Visit) -> None:
        # No lingering: closing resets the connection.
        visit.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        visit.connection.close()

    receiver.behave = behave

    with pytest.raises(NoAnswer, match="reset"):
        send(receiver.url)


def test_no_proxy_is_asked__whatever_the_environment_says(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        send(receiver.url)

    assert (len(receiver.got), proxy.connections) == (1, 0)


# TLS


def authority() -> tuple[trustme.CA, ssl.SSLContext]:
    ca, trusting = trustme.CA(), ssl.create_default_context()
    ca.configure_trust(trusting)
    return ca, trusting


def serving(ca: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    return context


def test_a_receiver_with_a_good_certificate_gets_it() -> None:
    ca, trusting = authority()
    with listening(tls=serving(ca, "hooks.example.com")) as receiver:
        answer = send(f"https://hooks.example.com:{receiver.port}", outbound(tls=trusting, look_up=at("127.0.0.1")))

    assert (answer.status, len(receiver.got)) == (204, 1)


@pytest.mark.parametrize("name", ["other.example.com", "127.0.0.1"])
def test_a_certificate_of_another_name_is_refused__before_a_byte_is_sent(name: str) -> None:
    ca, trusting = authority()
    with listening(tls=serving(ca, name)) as receiver, pytest.raises(NoAnswer, match="certificate"):
        send(f"https://hooks.example.com:{receiver.port}", outbound(tls=trusting, look_up=at("127.0.0.1")))

    assert receiver.got == []


def test_a_certificate_of_an_unknown_authority_is_refused() -> None:
    ca, _ = authority()
    with listening(tls=serving(ca, "hooks.example.com")) as receiver, pytest.raises(NoAnswer, match="verify failed"):
        send(f"https://hooks.example.com:{receiver.port}", outbound(look_up=at("127.0.0.1")))

    assert receiver.got == []


def test_a_handshake_that_never_ends_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"

        with ends_soon(), pytest.raises(NoAnswer, match=rf"no answer within {SOON} s"):
            send(url, outbound(outbound_timeout=SOON))


# Who is never reached


def at(*addresses: str) -> LookUp:
    """Make a name lead to these addresses."""

    def look_up(host: str, port: int) -> list[Found]:
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port) if family == socket.AF_INET else (address, port, 0, 0))
            for family, address in zip(families, addresses, strict=True)
        ]

    return look_up


class Dialled:
    """Notes which addresses are connected to; they all lead to a receiver, as if they were it."""

    def __init__(self, receiver: Receiver, *, down: str = "") -> None:
        self.addresses: list[str] = []
        self._receiver = receiver
        self._down = down

    def __call__(self, found: Found, seconds: float) -> socket.socket:
        self.addresses.append(found[4][0])
        if found[4][0] == self._down:
            raise ConnectionRefusedError("refused")
        sock = socket.create_connection(("127.0.0.1", self._receiver.port), seconds)
        posing = _Posing(sock.family, sock.type, sock.proto, sock.detach())
        posing.peer = found[4]
        return posing


class _Posing(socket.socket):
    """A connection to this machine that says it is one to another address."""

    peer: Any

    def getpeername(self) -> Any:
        return self.peer


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("10.0.0.1", "private or special-purpose"),
        ("::1", "loopback"),
        ("::ffff:10.0.0.1", "IPv4 within IPv6"),
        ("64:ff9b::a9fe:a9fe", "IPv4 within IPv6"),
        ("fd00:ec2::254", "private or special-purpose"),
    ],
)
def test_a_name_that_leads_inside_is_refused__and_nothing_connects(receiver: Receiver, address: str, rule: str) -> None:
    dialled = Dialled(receiver)

    with pytest.raises(
        PeerRefused, match=rf"hooks.example.com is at no address that may be reached: .*{rule}"
    ) as caught:
        send("https://hooks.example.com/", outbound("none", look_up=at(address), dial=dialled))

    assert (dialled.addresses, receiver.connections) == ([], 0)
    assert failure_of(caught.value).kind is FailureKind.PERMANENT
    assert address not in str(caught.value)


def test_of_several_addresses_a_public_one_alone_is_connected(receiver: Receiver) -> None:
    dialled = Dialled(receiver)
    inside = ("10.0.0.1", "127.0.0.1", "::1")

    with pytest.raises(NoAnswer, match="SSL"):  # it is no TLS server: connecting is what this is about
        send("https://hooks.example.com/", outbound("none", look_up=at(*inside, PUBLIC, *inside), dial=dialled))

    assert dialled.addresses == [PUBLIC]


def test_the_next_address_is_tried__when_one_does_not_answer(receiver: Receiver) -> None:
    dialled = Dialled(receiver, down="127.0.0.2")
    url = f"http://hooks.example.com:{receiver.port}/"

    answer = send(url, outbound(look_up=at("127.0.0.2", "10.0.0.1", "127.0.0.3"), dial=dialled))

    assert (answer.status, dialled.addresses) == (204, ["127.0.0.2", "127.0.0.3"])


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_peer_that_is_not_who_was_looked_up_is_refused__before_a_byte_is_sent(
    receiver: Receiver, scheme: str
) -> None:
    def elsewhere(found: Found, seconds: float) -> socket.socket:
        return socket.create_connection(("127.0.0.1", receiver.port), seconds)

    sender = outbound("198.51.100.0/24", look_up=at("198.51.100.7"), dial=elsewhere)

    with pytest.raises(PeerRefused, match=r"hooks.example.com led to an address that may not be reached: loopback"):
        send(f"{scheme}://hooks.example.com/", sender)

    assert receiver.got == []


def test_a_name_that_changes_is_looked_up_once(receiver: Receiver) -> None:
    answers = iter(["127.0.0.1", "10.0.0.1"])

    def changing(host: str, port: int) -> list[Found]:
        return at(next(answers))(host, port)

    answer = send(f"http://hooks.example.com:{receiver.port}/", outbound(look_up=changing))

    assert (answer.status, list(answers)) == (204, ["10.0.0.1"])


def test_plain_http_never_leaves_the_stages_own_networks(receiver: Receiver) -> None:
    dialled = Dialled(receiver)

    with pytest.raises(PeerRefused, match="plain http outside the stage's own networks"):
        send("http://hooks.example.com/", outbound(look_up=at(PUBLIC), dial=dialled))

    assert dialled.addresses == []


def test_a_name_that_nobody_knows_is_no_answer() -> None:
    def unknown(host: str, port: int) -> list[Found]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(NoAnswer, match=r"hooks.example.com: .*not known"):
        send("https://hooks.example.com/", outbound(look_up=unknown))


def test_a_name_whose_look_up_hangs_is_left(receiver: Receiver) -> None:
    def hanging(host: str, port: int) -> list[Found]:
        receiver.over.wait(10)
        return []

    with ends_soon(), pytest.raises(NoAnswer, match="its name was not resolved in time"):
        send("https://hooks.example.com/", outbound(look_up=hanging, outbound_timeout=SOON))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example.com/", "scheme"),
        ("http://127.0.0.1/", "scheme"),
        ("https://127.0.0.1/", "loopback"),
        ("https://169.254.169.254/latest/meta-data/", "link-local"),
        ("https://[::1]/", "loopback"),
        ("https://[::ffff:127.0.0.1]/", "IPv4 within IPv6"),
        ("https://[64:ff9b::7f00:1]/", "IPv4 within IPv6"),
        ("https://[2002:7f00:1::]/", "IPv4 within IPv6"),
        ("https://localhost/", "public internet"),
        ("https://metadata:8443/", "public internet"),
    ],
)
def test_a_url_is_refused__whose_own_text_leads_inside(url: str, reason: str) -> None:
    with pytest.raises(UrlRefused, match=reason):
        outbound("none").check(OutboundUrl.parse(url))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "http://localhost:8080/", "https://hooks.example.com/"])
def test_a_laptop_takes_its_own_urls_too(url: str) -> None:
    outbound().check(OutboundUrl.parse(url))
