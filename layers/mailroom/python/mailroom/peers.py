"""Which addresses an outgoing request may reach: those of the public internet, and what the stage allows besides."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network
from typing import Self

from mailroom.address_ranges import Address, Network, embedded_ipv4, is_ipv4, rule_of

NONE = "none"
"""No networks besides the public internet, as a setting."""


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
        """Return whether an address is in one of the stage's own networks."""
        return any(address in network for network in self.besides)

    def refusal(self, address: Address) -> str | None:
        """Return the rule that keeps an address out of reach; None if it may be reached."""
        if self.are_own(address):
            return None
        if isinstance(address, IPv4Address):
            return rule_of(address)
        inner = [rule for each in embedded_ipv4(address) if (rule := self.refusal(each))]
        if inner:
            return f"{inner[0]} IPv4 within IPv6"
        return None if is_ipv4(address) else rule_of(address)
