"""Clocks that are hours apart on two hosts: their run's books are as if the clocks agreed."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal.recorded import RecordedLedger, load_run
from holdfast.journal.sidecar import sidecar_path

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from told_runs import UNIX, BootClock, S, ToldRun

sys.path.pop(0)

some = settings(max_examples=max(1, settings.default.max_examples // 4))  # files take their time
hours = st.integers(-50 * 3600 * S, 50 * 3600 * S)
FIRST = BootClock("boot-0", 7 * S)


def told(recorded: RecordedLedger, now_ns: int) -> dict[str, Any]:
    """All that a report is made of."""
    ledger = recorded.ledger
    return {
        "accounts": [recorded.account(now_ns + later_s * S) for later_s in (-20, 0, 20)],
        "course": ledger.course(now_ns),
        "rows": [(n, *(c.tolist() for c in rows)) for n, *rows in ledger.rows()],
        "requested": recorded.facts.requested_ns,
    }


@some
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 10**15), hours), min_size=1, max_size=3),
)
def test_the_books_are_as_if_the_clocks_agreed(random, attempts, others):
    run = ToldRun(random, attempts, len(others) + 1, is_even=False)
    apart = [BootClock(f"boot-{n}", *clock) for n, clock in enumerate(others, start=1)]
    now_ns = UNIX + run.spans[-1][1]
    with tempfile.TemporaryDirectory() as folder:
        roots = Path(folder, "agree"), Path(folder, "apart")
        run.put(roots[0], lambda _: True, [FIRST] * run.hosts)
        run.put(roots[1], lambda _: True, [FIRST, *apart])
        agreed, differ = (load_run(root) for root in roots)
        assert told(agreed, now_ns) == told(differ, now_ns)
        clocks = [one.clock for one in differ.facts.controllers.hosts.all(differ.facts.clock)]
    assert [clock.error_ns for clock in clocks] == [0, *(1000 for _ in apart)]


@some
@given(st.randoms(use_true_random=False), st.integers(1, 3), hours, st.data())
def test_what_was_measured_may_come_late(random, attempts, wall_by_ns, data):
    """The controller's text file comes home after the ranks' journals were read, in two parts."""
    run = ToldRun(random, attempts, 2, is_even=False)
    now_ns = UNIX + run.spans[-1][1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run.put(root, lambda _: True, [FIRST, BootClock("boot-1", 10**12, wall_by_ns)])
        text = sidecar_path(root / "journal/controller-000001.hfj")
        lines = text.read_bytes().splitlines(keepends=True)
        cut = data.draw(st.integers(0, len(lines)))
        text.write_bytes(b"".join(lines[:cut]))
        recorded = load_run(root)
        text.write_bytes(b"".join(lines))
        recorded.refresh()
        assert told(recorded, now_ns) == told(load_run(root), now_ns)


def test_without_measurements_a_boot_goes_by_its_wall_clock():
    """What is compared above would tell: the same journals without them give other books."""
    from random import Random

    run = ToldRun(Random(3), 2, 2, is_even=False)
    now_ns = UNIX + run.spans[-1][1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run.put(root, lambda _: True, [FIRST, BootClock("boot-1", 10**12, 3600 * S)])
        right = told(load_run(root), now_ns)
        text = sidecar_path(root / "journal/controller-000001.hfj")
        lines = [json.loads(line) for line in text.read_bytes().splitlines()]
        assert any(line.get("fact") == "host" for line in lines)
        blank = b"".join(
            line.replace(b'"boot":"boot-1"', b'"boot":"boot-9"')
            for line in text.read_bytes().splitlines(keepends=True)
        )
        text.write_bytes(blank)
        assert told(load_run(root), now_ns) != right
