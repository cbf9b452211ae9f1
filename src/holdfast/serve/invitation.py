"""Links that let a browser in: each opens one, and whoever started the server is told the next."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

WORD_BYTES = 24


class Invitation:
    """The link of the moment. `say` is given the word of each one after the first."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.word = secrets.token_urlsafe(WORD_BYTES)

    def take(self, given: str) -> bool:
        """Whether that is its word, which is good no more then."""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.word.encode()):
            return False
        self.word = secrets.token_urlsafe(WORD_BYTES)
        self._say(self.word)
        return True
