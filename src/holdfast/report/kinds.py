"""What the kinds of time are called for people, and how they are drawn.

One table for the terminal, the pages and the pictures. The colours are Okabe and Ito's, which
people with any common colour blindness can tell apart; no reader has to rely on them, because
every bar has its name beside it. Which level a kind belongs to is the ledger's to say.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindStyle:
    """How a kind is shown: `words` say what the time was spent on, `colour` is #rrggbb."""

    words: str
    colour: str


GREEN, VERMILLION, ORANGE, YELLOW = "#009e73", "#d55e00", "#e69f00", "#f0e442"
BLUE, SKY, PURPLE, GREY = "#0072b2", "#56b4e9", "#cc79a7", "#8a8f98"

# In the order in which a disruption goes through them, which is the order of a report too. A kind
# with a part after a colon (reschedule:queue, custom:evaluation) is found by the part before it.
STYLES = {
    "lost": KindStyle("steps lost, or cut short", VERMILLION),
    "hang": KindStyle("hung, until noticed", PURPLE),
    "detect": KindStyle("broken, until noticed", PURPLE),
    "drain": KindStyle("until all was gone", PURPLE),
    "queued": KindStyle("first wait for resources", BLUE),
    "reschedule": KindStyle("waiting for a host again", SKY),
    "backoff": KindStyle("waiting before a restart", GREY),
    "stopped": KindStyle("stopped by you, or done", BLUE),
    "startup": KindStyle("processes and imports", ORANGE),
    "restore": KindStyle("reading a checkpoint", ORANGE),
    "compile": KindStyle("compiling", ORANGE),
    "data": KindStyle("waiting for input", YELLOW),
    "save": KindStyle("blocked while saving", YELLOW),
    "custom": KindStyle("as the script named it", GREY),
    "other": KindStyle("in no step and no span", GREY),
    "step": KindStyle("steps that were kept", GREEN),
    "under_way": KindStyle("a step that is not over yet", GREEN),
}

# Waits for hosts, in the order in which a machine goes through them.
WAITS = {
    "hosts": "for its hosts",
    "queue": "in a queue",
    "provision": "being made",
    "pull": "pulling images",
    "boot": "getting ready",
}
_WAITED = {"queued": "first wait", "reschedule": "waiting again"}

ORDER = {kind: place for place, kind in enumerate(STYLES)}


def words_of(kind: str) -> str:
    """What the time was spent on; the part after a colon says it best."""
    head, _, rest = kind.partition(":")
    if head == "custom" and rest:
        return rest
    if head in _WAITED and rest in WAITS:
        return f"{_WAITED[head]}: {WAITS[rest]}"
    words = style_of(kind).words
    return f"{words}: {rest}" if rest else words


def style_of(kind: str) -> KindStyle:
    """The style of a kind of the ledger; one that this version does not know is `other`."""
    return STYLES.get(kind.partition(":")[0], STYLES["other"])


def hatch_of(kind: str) -> int:
    """What tells a kind from those of its colour that come before it: 0 nothing, 1 and 2 lines."""
    own, alike = kind.partition(":")[0], style_of(kind).colour
    same = [name for name, style in STYLES.items() if style.colour == alike]
    return min(2, same.index(own)) if own in same else 0


def place_of(kind: str) -> tuple[int, int, str]:
    """A sort key: the order of `STYLES`, of waits that of `WAITS`, then by name."""
    head, _, rest = kind.partition(":")
    wait = list(WAITS).index(rest) + 1 if head in _WAITED and rest in WAITS else 0
    return ORDER.get(head, len(ORDER)), wait, kind
