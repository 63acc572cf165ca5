"""What people can read, and what only looks like text."""

from __future__ import annotations

import pytest

from mailroom.legible_text import legible


@pytest.mark.parametrize(
    "text", ["a", "7", "!", "\u20ac", "\U0001f469\u200d\U0001f4bb", "\u05d0\u200f", "e\u0301", " a "]
)
def test_text_that_shows_is_taken_as_it_is(text: str) -> None:
    assert legible(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\u00a0",
        "\u200b",
        "\ufeff",
        "\u200e\u200f",
        "\u0301",
        "\ufe0f",
        "\u3164",
        "\u115f\u1160",
        "\u2800",
        "\uffa0",
    ],
)
def test_text_of_which_nothing_shows_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nothing in it can be seen"):
        legible(text)


@pytest.mark.parametrize("code", [*range(0x202A, 0x202F), *range(0x2066, 0x206A)], ids=hex)
def test_what_sets_the_direction_of_other_characters_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="change the direction"):
        legible(f"docs{chr(code)}gpj")
