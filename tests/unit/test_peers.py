"""Peers: which addresses may be reached, whatever their notation carries inside."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from mailroom.peers import NONE, Peers

LAPTOP = "127.0.0.0/8, fd00::/8"


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_a_public_address_may_be_reached(address: str) -> None:
    assert Peers.of(NONE).refusal(ip_address(address)) is None


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - nothing binds to it
        ("::", "unspecified"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%2", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        *(
            (address, "private or special-purpose")
            for address in (
                "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "0.1.2.3", "192.0.0.8", "192.0.0.170",
                "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1",
                "255.255.255.255", "fd00:ec2::254", "fec0::1", "2001:db8::1", "3fff::1", "5f00::1", "100::1",
                "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::808:808", "4000::1", "2001:2::1",
                "2001:1::1", "2001:20::1", "2001:30::1", "2002:808:808::1",
            )
        ),
        ("::ffff:127.0.0.1", "loopback IPv4 within IPv6"),
        ("::ffff:169.254.169.254", "link-local IPv4 within IPv6"),
        ("64:ff9b::a00:1", "private or special-purpose IPv4 within IPv6"),
        ("64:ff9b::a9fe:a9fe", "link-local IPv4 within IPv6"),
        ("2002:7f00:1::1", "loopback IPv4 within IPv6"),
        ("2002:a00:1::1", "private or special-purpose IPv4 within IPv6"),
        ("2001:0:808:808:0:0:f5ff:fffe", "private or special-purpose IPv4 within IPv6"),
    ],
)  # fmt: skip
def test_any_other_address_is_refused_by_its_rule(address: str, rule: str) -> None:
    assert Peers.of(NONE).refusal(ip_address(address)) == rule


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.0.1", "::ffff:127.0.0.1", "fd00::1", "8.8.8.8"])
def test_the_stages_own_networks_may_be_reached_besides(address: str) -> None:
    assert Peers.of(LAPTOP).refusal(ip_address(address)) is None


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "169.254.169.254", "2002:a00:1::1"])
def test_no_more_may_be_reached__than_the_stage_allows(address: str) -> None:
    assert Peers.of(LAPTOP).refusal(ip_address(address)) is not None


@pytest.mark.parametrize("setting", ["", "localhost", "127.0.0.1/8", "127.0.0.0/8,", "None", "10.0.0.0/33"])
def test_a_setting_that_names_no_networks_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear|has host bits"):
        Peers.of(setting)
