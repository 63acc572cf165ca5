"""Address ranges: where each begins and ends, and the same on every Python."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest

import mailroom
from mailroom import address_ranges, outbound, outbound_url, peers
from mailroom.peers import NONE, Peers

REFUSED_IPV4 = """
0.0.0.0 0.255.255.255
10.0.0.0 10.255.255.255
100.64.0.0 100.127.255.255
127.0.0.0 127.255.255.255
169.254.0.0 169.254.255.255
172.16.0.0 172.31.255.255
192.0.0.0 192.0.0.255
192.0.2.0 192.0.2.255
192.31.196.0 192.31.196.255
192.52.193.0 192.52.193.255
192.88.99.0 192.88.99.255
192.168.0.0 192.168.255.255
192.175.48.0 192.175.48.255
198.18.0.0 198.19.255.255
198.51.100.0 198.51.100.255
203.0.113.0 203.0.113.255
224.0.0.0 255.255.255.255
"""
"""Every IPv4 address that is not public, as first and last of each gapless run."""

REFUSED_IPV6 = """
2001:: 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff
2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff
2002:: 2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff
2620:4f:8000:: 2620:4f:8000:ffff:ffff:ffff:ffff:ffff
3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff
4000:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
"""
"""The same of IPv6, from 2000:: on."""

RANGES = [line.split() for line in (REFUSED_IPV4 + REFUSED_IPV6).split("\n") if line]
EMBEDDED = ["::ffff:{}", "64:ff9b::{}", "2606:4700::5efe:{}", "2606:4700::200:5efe:{}"]
"""Notations of an IPv4 address within an IPv6 one that may be reached if the IPv4 address may."""

INTERPRETERS = ("3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).parents[2]


def refusal(address: str) -> str | None:
    return Peers.of(NONE).refusal(ip_address(address))


def neighbours(first: str, last: str) -> Iterator[str]:
    """Return the addresses before and after a range, as far as there are any."""
    kind = type(ip_address(first))
    for number in (int(ip_address(first)) - 1, int(ip_address(last)) + 1):
        if 0 <= number < 2 ** kind(first).max_prefixlen:
            yield str(kind(number))


def within(notation: str, address: str) -> str:
    return str(IPv6Address(notation.format(address)))


@pytest.mark.parametrize(("first", "last"), RANGES, ids=str)
def test_a_range_is_refused_from_its_first_address_to_its_last__and_its_neighbours_are_not(
    first: str, last: str
) -> None:
    assert refusal(first)
    assert refusal(last)
    assert all(refusal(neighbour) is None for neighbour in neighbours(first, last))


@pytest.mark.parametrize("edge", ["1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff",
                                  "64:ff9b::1:0:0", "::fffe:ffff:ffff", "::1:0:0:0"])  # fmt: skip
def test_below_2000_nothing_is_public__but_public_ipv4_within(edge: str) -> None:
    assert refusal(edge)


@pytest.mark.parametrize("notation", EMBEDDED)
@pytest.mark.parametrize(("first", "last"), [pair for pair in RANGES if "." in pair[0]])
def test_ipv4_within_ipv6_is_judged_as_ipv4_is(notation: str, first: str, last: str) -> None:
    for address in (first, last):
        assert refusal(within(notation, address)) == f"{refusal(address)} IPv4 within IPv6"


@pytest.mark.parametrize("notation", EMBEDDED)
def test_public_ipv4_within_ipv6_may_be_reached(notation: str) -> None:
    assert refusal(within(notation, "8.8.8.8")) is None


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("2002:a9fe:a9fe::1", "link-local IPv4 within IPv6"),
        ("2001:0:a9fe:a9fe::f7f7:f7f7", "link-local IPv4 within IPv6"),
        ("2001:0:808:808::5601:5601", "link-local IPv4 within IPv6"),
        ("2002:808:808::1", "private or special-purpose"),
        ("2001:0:808:808::f7f7:f7f7", "private or special-purpose"),
        ("2606:4700::1:5efe:7f00:1", None),
        ("2606:4700::5eff:7f00:1", None),
    ],
)
def test_tunnelled_ipv4_is_named__if_it_is_the_reason(address: str, rule: str | None) -> None:
    assert refusal(address) == rule


JUDGED = [
    *(edge for pair in RANGES for edge in pair),
    *(within(notation, pair[0]) for pair in RANGES if "." in pair[0] for notation in EMBEDDED),
    "8.8.8.8", "192.0.0.9", "192.0.0.170", "2606:4700:4700::1111", "2002:808:808::1", "2001:1::1", "2001:20::1",
    "2001:30::1", "3fff:1000::", "5f00::1", "64:ff9b:1::808:808", "100:0:0:1::1", "fe80::1%2", "fec0::1",
]  # fmt: skip
"""What the versions of Python that are in use have disagreed about, and all of the above."""

VERDICTS = """
import ipaddress, json, sys
from mailroom.outbound_url import OutboundUrl
from mailroom.peers import Peers
asked, urls = json.load(sys.stdin)
verdicts = [Peers.of("none").refusal(ipaddress.ip_address(each)) for each in asked]
print(json.dumps([verdicts, [str(OutboundUrl.parse(each)) for each in urls]]))
"""

URLS = ["https://[::ffff:8.8.8.8]/", "https://[::FFFF:808:808]/", "https://[2606:4700::0:1]:8443/", "https://8.8.8.8/"]


def other_interpreters() -> list[str]:
    """Return the Pythons of this machine, by path, besides the one that runs."""
    found = (
        subprocess.run([ROOT / "local/python", version], capture_output=True, text=True, check=True).stdout.strip()
        for version in INTERPRETERS
        if version != f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    return [path for path in found if path]


def verdicts_of(interpreter: str) -> object:
    """Return what an interpreter makes of the addresses and URLs."""
    package = str(Path(mailroom.__path__[0]).parent)
    done = subprocess.run(
        [interpreter, "-c", VERDICTS],
        input=json.dumps([JUDGED, URLS]),
        env={"PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_every_python_of_this_machine_judges_alike() -> None:
    own = verdicts_of(sys.executable)
    assert own == [[refusal(each) for each in JUDGED], [
        "https://[::ffff:8.8.8.8]/", "https://[::ffff:8.8.8.8]/", "https://[2606:4700::1]:8443/", "https://8.8.8.8/",
    ]]  # fmt: skip
    for interpreter in other_interpreters():
        assert verdicts_of(interpreter) == own, interpreter


@pytest.mark.parametrize("module", [address_ranges, peers, outbound_url, outbound])
def test_no_opinion_of_the_interpreter_is_asked(module: object) -> None:
    """`is_global`, `is_private` and their like answer otherwise in one Python than in the next."""
    source = Path(str(module.__file__)).read_text()  # type: ignore[attr-defined]
    opinions = {name for kind in (IPv4Address, IPv6Address) for name in dir(kind) if name.startswith("is_")}
    opinions |= {"ipv4_mapped", "sixtofour", "teredo"}
    used = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    literals = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    assert not opinions & (used | literals)
