"""A look at the ranks: their pages and their processes, for the judge of hangs (`core.hang.judge`).

Reading a page costs nothing and /proc little; nothing here waits.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.agent.ranks import RankPages, RankView
from holdfast.core.hang.events import RankLook
from holdfast.journal.layout import FIRST_CUSTOM_SPAN, SPAN_KINDS, UNNAMED_SPAN
from holdfast.journal.rank_page import PageValues

LATE_NS = 3_000_000_000
LONGEST_QUEUE = 64  # steps dispatched ahead: JAX stops at fewer


class Wakefulness:
    """Whether this process, and the machine, ran all the time: asked at every turn of the loop.

    Two clocks tell: one that stands still while the machine sleeps falls behind the other; and a
    turn comes late when we were stopped, or a virtual machine was, or the processors were lost.
    """

    def __init__(self, longest_wait_ns: int) -> None:
        self._longest_wait_ns = longest_wait_ns
        self._boot_ns = self._mono_ns = 0

    def gap_ns(self, boot_ns: int, mono_ns: int) -> int:
        """For how long nothing ran before this turn, by the clocks as they are now; 0: all is well.

        `boot_ns` goes on while the machine sleeps, `mono_ns` does not.
        """
        before_boot_ns, before_mono_ns = self._boot_ns, self._mono_ns
        self._boot_ns, self._mono_ns = boot_ns, mono_ns
        if not before_boot_ns:
            return 0
        slept_ns = (boot_ns - mono_ns) - (before_boot_ns - before_mono_ns)
        late_ns = mono_ns - before_mono_ns - self._longest_wait_ns
        is_late = max(slept_ns, late_ns) > LATE_NS
        return boot_ns - before_boot_ns if is_late else 0


def look_at(pages: RankPages, pids: dict[int, int]) -> tuple[RankLook, ...]:
    """Every rank of the attempt as it is now."""
    return tuple(_look(view, pids.get(view.rank, 0)) for view in pages.views)


def _look(view: RankView, child_pid: int) -> RankLook:
    values = view.page.snapshot() if view.page is not None else None
    pid = pid_of(values, child_pid)
    process, kernel = process_state(pid)
    if values is None:
        return RankLook(view.rank, process=process, kernel=kernel)
    view.pace.look(values.step, values.step_at_ns, values.spans_ns)
    span, span_ns = _span(values)
    complete_ns = values.complete_at_ns
    return RankLook(
        view.rank,
        doing=values.phase.name.lower(),
        step=values.step,
        step_ns=values.step_at_ns,
        complete_ns=complete_ns,
        awaited_ns=values.awaited_at_ns,
        behind=_behind(values),
        span=span,
        span_ns=span_ns,
        span_ended_ns=values.span_ended_at_ns,
        process=process,
        kernel=kernel,
        samples=view.pace.samples,
        median_ns=view.pace.median_ns,
        longest_ns=view.pace.take_longest_ns(),
    )


def _behind(values: PageValues) -> int:
    """Steps that the device has to do before the awaited one is: no queue is longer than some."""
    if not values.awaited_at_ns:
        return 0
    known = max(values.complete, values.watermark)
    return min(max(0, values.awaited - known), LONGEST_QUEUE)


def _span(values: PageValues) -> tuple[str, int]:
    """The span that says most of why the rank takes no step, and its start; "" and 0: none.

    One in which the clock stands still goes before one that waits; of those, the outermost.
    """
    spans = [(_name(span.kind), span.start_ns) for span in values.open_spans]
    still = [span for span in spans if span[0] in ("compile", "startup", "custom")]
    return (still or spans or [("", 0)])[0]


def _name(kind: int) -> str:
    if kind in (UNNAMED_SPAN, FIRST_CUSTOM_SPAN) or kind >= len(SPAN_KINDS):
        return "custom"
    return SPAN_KINDS[kind]


def pid_of(values: PageValues | None, child_pid: int) -> int:
    """The rank's own process: a shell or a launcher may stand between it and us."""
    return values.owner_pid if values is not None and values.owner_pid else child_pid


def process_state(pid: int) -> tuple[str, str]:
    """The kernel's letter for a process, and where in the kernel it sleeps; "" for what is not."""
    kernel = "0"
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "", ""
    with contextlib.suppress(OSError):  # some kernels do not tell, or not everybody
        kernel = Path(f"/proc/{pid}/wchan").read_text()
    # The command may hold spaces and brackets: the fields start after the last ")".
    state = stat.rpartition(b")")[2].split()[0].decode()
    return state, "" if kernel == "0" else kernel
