"""Text from outside for a screen: nothing in it that a terminal or a page would obey is left.

What a run has stored was written by its script, its hosts or anybody who can write into its store.
Whatever prints it passes it through here; only the colours of ranks' own output get further.
"""

from __future__ import annotations

import re

# Controls of C0 and C1 but tab and newline, and what turns the direction of the text around it.
_OBEYED = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_COLOUR = r"\x1b\[[0-9;:]*m"
_OBEYED_BUT_COLOUR = re.compile(rf"({_COLOUR})|{_OBEYED}")


def clean(text: str) -> str:
    r"""The text without colours, and every other control character spelled out: `\x1b`."""
    if text.isprintable():
        return text
    return _OBEYED_BUT_COLOUR.sub(lambda found: "" if found[1] else _written(found[0]), text)


def coloured(line: str) -> str:
    """A line of a rank's output for a terminal: its colours stay, and end with it.

    Of a line that was drawn over and over, as progress bars are, what was drawn last.
    """
    if line.isprintable():
        return line
    drawn = line.rstrip("\r").rpartition("\r")[2]
    shown = _OBEYED_BUT_COLOUR.sub(lambda found: found[1] or _written(found[0]), drawn)
    return f"{shown}\x1b[0m" if "\x1b" in shown else shown


def sentence(text: str) -> str:
    """Words that may go on in further lines: those are indented, or one could pose as ours."""
    return clean(text).replace("\n", "\n  ")


def _written(char: str) -> str:
    """JSON, where those below DEL never stand, stays JSON."""
    return f"\\u{ord(char):04x}" if char >= "\x7f" else ascii(char)[1:-1]
