"""Which addresses an outgoing request may reach: those of the public internet, and what the stage allows besides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Self

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NONE = "none"
"""No networks besides the public internet, as a setting."""

_GIVEN_OUT = IPv6Network("2000::/3")
"""All of IPv6 that leads to single hosts anywhere: https://www.iana.org/assignments/ipv6-address-space"""
_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv4 as networks without it write it: https://www.rfc-editor.org/rfc/rfc6052#section-2.1"""
_SPECIAL = tuple(
    ip_network(block) for block in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2002::/16", "3fff::/20")
)
"""Special-purpose blocks of which `is_global` takes some for public, others in one Python than in the next.
https://www.iana.org/assignments/iana-ipv4-special-registry
https://www.iana.org/assignments/iana-ipv6-special-registry"""


@dataclass(frozen=True, slots=True)
class Peers:
    """Tells the addresses that may be reached from those that may not.

    Parameters
    ----------
    besides
        Networks that may be reached though they are not public: the stage's own, on a laptop.
    """

    besides: tuple[Network, ...] = ()

    @classmethod
    def of(cls, setting: str) -> Self:
        """Read a stage's setting: networks with commas between them, or `none`.

        Raises
        ------
        ValueError
            If it is neither.
        """
        return cls(() if setting == NONE else tuple(ip_network(each.strip()) for each in setting.split(",")))

    def are_own(self, address: Address) -> bool:
        """Answer whether an address is in one of the stage's own networks."""
        return any(address in network for network in self.besides)

    def refusal(self, address: Address) -> str | None:
        """Answer the rule that keeps an address out of reach; None if it may be reached."""
        if self.are_own(address):
            return None
        if isinstance(address, IPv4Address):
            return _refusal_of(address)
        inner = [rule for each in _embedded(address) if (rule := self.refusal(each))]
        if inner:
            return f"{inner[0]} IPv4 within IPv6"
        if address.ipv4_mapped or address in _NAT64:
            return None
        return _refusal_of(address)


def _refusal_of(address: Address) -> str | None:
    for name in ("multicast", "loopback", "link_local", "unspecified"):
        if getattr(address, f"is_{name}"):
            return name.replace("_", "-")
    special = not address.is_global or any(address in block for block in _SPECIAL)
    if special or (isinstance(address, IPv6Address) and address not in _GIVEN_OUT):
        return "private or special-purpose"
    return None


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """Answer the IPv4 addresses to which packets for an IPv6 address may be carried."""
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
