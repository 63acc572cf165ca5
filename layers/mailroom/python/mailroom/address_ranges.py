"""Which address ranges are not the public internet, and which IPv6 ranges carry an IPv4 address.

The ranges are stated here, since Python's `is_global` and its like answer otherwise in one version than in the next.
They are those of IANA's registries as updated on 2025-10-09. A block of the special-purpose registries is refused even
where its packets are forwarded (AS112, AMT, anycast of PCP and TURN): none of them leads to a server of somebody's own.

https://www.iana.org/assignments/iana-ipv4-special-registry
https://www.iana.org/assignments/iana-ipv6-special-registry
https://www.iana.org/assignments/ipv6-address-space
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_REFUSED: dict[str, tuple[str, ...]] = {
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "unspecified": ("0.0.0.0/32", "::/128"),
    "private or special-purpose": (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private use
        "100.64.0.0/10",  # shared by carriers
        "172.16.0.0/12",  # private use
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4 and 6a44
        "192.168.0.0/16",  # private use
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "240.0.0.0/4",  # reserved, broadcast
        # 2000::/3 is all of IPv6 that is given out. Outside: translation, discard, SRv6, unique local, site-local, …
        "::/3", "4000::/2", "8000::/1",
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, DETs, …
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    ),
}  # fmt: skip
"""The ranges by the rule that refuses them; of several, the first counts."""

_RULES = tuple((ip_network(block), rule) for rule, blocks in _REFUSED.items() for block in blocks)

_MAPPED = IPv6Network("::ffff:0:0/96")
"""https://www.rfc-editor.org/rfc/rfc4291#section-2.5.5.2"""
_NAT64 = IPv6Network("64:ff9b::/96")
"""https://www.rfc-editor.org/rfc/rfc6052#section-2.1"""
_6TO4 = IPv6Network("2002::/16")
"""https://www.rfc-editor.org/rfc/rfc3056#section-2"""
_TEREDO = IPv6Network("2001::/32")
"""https://www.rfc-editor.org/rfc/rfc4380#section-4"""
_ISATAP = 0x00005EFE
"""The upper half of an interface identifier, the bit of globally unique ones aside:
https://www.rfc-editor.org/rfc/rfc5214#section-6.1"""


def rule_of(address: Address) -> str | None:
    """Return the rule that keeps an address out of the public internet; None if it is part of it."""
    return next((rule for block, rule in _RULES if address in block), None)


def mapped_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address of which an IPv6 address is only another notation; None if it is an address itself."""
    return _ipv4_at(address, 0) if address in _MAPPED else None


def is_ipv4(address: IPv6Address) -> bool:
    """Return whether packets for an IPv6 address are sent to the IPv4 address within, which alone is judged then."""
    return address in _MAPPED or address in _NAT64


def embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    """Return the IPv4 addresses to which packets for an IPv6 address may be carried."""
    if is_ipv4(address) or int(address) >> 32 & 0xFDFFFFFF == _ISATAP:
        yield _ipv4_at(address, 0)
    if address in _6TO4:
        yield _ipv4_at(address, 80)
    if address in _TEREDO:
        yield _ipv4_at(address, 64)
        yield IPv4Address(int(_ipv4_at(address, 0)) ^ 0xFFFFFFFF)


def _ipv4_at(address: IPv6Address, right: int) -> IPv4Address:
    """Return the 32 bits of an address that have so many to their right."""
    return IPv4Address(int(address) >> right & 0xFFFFFFFF)
