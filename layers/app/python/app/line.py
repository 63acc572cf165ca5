"""One line of text: what can neither begin a header of its own nor spoil a log."""

from __future__ import annotations

LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
"""A regular expression for text without control characters and without any line break of Unicode."""
