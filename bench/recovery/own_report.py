"""What Holdfast says of itself, beside the ruler; and how its restarts were started."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import Any

from bout import Bout
from ruler import NS_PER_S, account, boot_ns


def own_report(
    bout: Bout, from_ns: int, to_ns: int, undisturbed_ns: int | None = None
) -> dict[str, Any] | None:
    """Holdfast's own account of these seconds, and the ruler's of the same ones."""
    if not bout.system.name.startswith("holdfast"):
        return None
    command = [
        sys.executable, "-m", "holdfast.cli.main", "report", "race",
        "--store", str(bout.place.folder / "store"),
        "--window", f"{(to_ns - from_ns) / NS_PER_S:.3f}", "--json",
    ]  # fmt: skip
    environment = {**os.environ, "HOLDFAST_SCRATCH": str(bout.place.folder / "scratch")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    said = json.loads(done.stdout)
    # The report's clock is unix time, the ruler's is the time since boot.
    offset_ns = time.time_ns() - boot_ns()
    from_ns, to_ns = (int(said[key] * NS_PER_S) - offset_ns for key in ("start_s", "end_s"))
    ruled = account(bout.follower.read().lives, from_ns, to_ns, undisturbed_ns)
    return {
        "goodput": said["goodput"],
        "ruler": ruled.goodput,
        "difference_points": 100 * (said["goodput"] - ruled.goodput),
        "difference_to_own_points": 100 * (said["goodput"] - ruled.own_goodput),
        "lost_steps": said["lost_steps"],
        "badput_s": said["badput_s"],
        "restarts": restarts(said["incidents"]),
        "kills_warm": warm(
            said["incidents"],
            [(one.at_ns + offset_ns) / NS_PER_S for one in bout.struck if one.what == "kill"],
        ),
    }


def restarts(incidents: list[dict[str, Any]]) -> dict[str, Any]:
    """How many attempts began as standbys, why the others did not, and the phases' medians."""
    known = [one["restart"] for one in incidents if one.get("restart")]
    cold = [rank for restart in known for rank in restart["cold"]]
    phases: dict[str, list[float]] = {}
    for restart in known:
        for name, took_s in restart["phases_s"].items():
            phases.setdefault(name, []).append(took_s)
    return {
        "warm": sum(not restart["cold"] for restart in known),
        "cold": sum(bool(restart["cold"]) for restart in known),
        "ranks_cold_because": dict(Counter(rank["why"] for rank in cold)),
        "phases_s": {name: round(statistics.median(of), 4) for name, of in phases.items()},
    }


def warm(incidents: list[dict[str, Any]], killed_s: list[float]) -> list[bool | None]:
    """Of each kill, whether all ranks came back from standbys; None: its restart is not known.

    A kill's incident is the first one that was over after it: nothing is struck before it is back.
    """
    told: list[bool | None] = []
    for at_s, next_s in pairwise([*killed_s, float("inf")]):
        over = (one for one in incidents if at_s < (one["resumed_s"] or 0.0) <= next_s)
        restart = next((one.get("restart") for one in over), None)
        told.append(None if restart is None else not restart["cold"])
    return told
