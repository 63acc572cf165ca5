"""Text that people read: something of it shows, and it reads in the order in which it is written."""

from __future__ import annotations

import unicodedata

_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and a symbol by their category that show as nothing: fillers of Hangul, and Braille without dots."""
_REORDERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""What sets the direction of the characters after it: https://www.unicode.org/reports/tr9/#Directional_Formatting_Codes"""


def legible(text: str) -> str:
    """Return a text that people can read.

    Raises
    ------
    ValueError
        If nothing of it shows, or if characters in it change the direction of others.
    """
    if not any(map(_shows, text)):
        raise ValueError("nothing in it can be seen")
    if any(each in _REORDERS for each in text):
        raise ValueError("it has characters that change the direction of the text")
    return text


def _shows(character: str) -> bool:
    """Whether it is a letter, number, punctuation mark or symbol; a mark needs one of these to stand on."""
    return unicodedata.category(character)[0] in "LNPS" and character not in _BLANK
