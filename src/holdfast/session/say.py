"""What Holdfast itself prints in a training process."""

from __future__ import annotations

import sys

from holdfast.core.visible import sentence


def say(words: str) -> None:
    """One line on the training process's standard error; never raises."""
    try:
        sys.stderr.write(f"holdfast: {sentence(words)}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
