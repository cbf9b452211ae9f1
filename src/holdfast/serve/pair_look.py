"""Two runs side by side, as parts of a page."""

from __future__ import annotations

from html import escape

from holdfast.core.visible import clean
from holdfast.errors import JournalError
from holdfast.journal.store import RunStore
from holdfast.report.compare import comparison
from holdfast.report.page import environment
from holdfast.report.run_top import STATE_TONES
from holdfast.serve.run_look import RunLook, See
from holdfast.serve.topic import Parts


class PairLook:
    """Of one thread at a time. Calling it looks at both, and gives the parts."""

    def __init__(self, store: RunStore, first: str, second: str, see: See) -> None:
        self.names = first, second
        self._looks = RunLook(store, first, see), RunLook(store, second, see)
        self._parts: Parts = {}

    def __call__(self) -> Parts:
        """Raises UnknownRun when one was deleted, HoldfastError when one cannot be read."""
        try:
            is_new = [look.read() for look in self._looks]
        except JournalError as error:
            return {"compared": f"<p>{escape(clean(str(error)))}</p>"}
        first, second = (look.view for look in self._looks)
        if any(is_new) and first is not None and second is not None:
            macros = environment().get_template("compare_parts.html").module
            heads = [(v.name, v.state, STATE_TONES.get(v.state, "")) for v in (first, second)]
            found = comparison(first, second)
            self._parts = {"compared": str(getattr(macros, "compared")(heads, found)).strip()}  # noqa: B009 - a macro
        return self._parts
