"""Submissions to Kubernetes: any that can be made, for tests."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from holdfast.core.hosts.engine import Submission
from holdfast.engines.kubernetes.options import Wishes

COMMAND = ("python", "train.py")
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
ON = st.just("on")
OPTIONS = {
    "kind": st.sampled_from(["job", "jobset"]),
    "object": NAMES,
    "namespace": NAMES,
    "secret": NAMES,
    "env-from": NAMES,
    "account": NAMES,
    "with": st.sampled_from(["access", "prepull", "access,prepull"]),
    "cpu": st.sampled_from(["32", "500m"]),
    "memory": st.sampled_from(["64Gi", "3Gi", "10G", "1000M"]),
    "chips": st.sampled_from(["1", "4", "8"]),
    "selector": st.sampled_from(["a/b=c", "cloud.google.com/gke-spot=true,pool="]),
    "tolerate": st.sampled_from(["dedicated", "a/b,c"]),
    "exclusive": st.sampled_from(["off", "kubernetes.io/rack"]),
    "retries": st.sampled_from(["0", "7"]),
    "queue": NAMES,
    "max-run": st.just("3600"),
    "flex-start": ON,
    "image-streaming": ON,
    "boot-disk": st.just("lm-image@project-1"),
}
GRIDS = ("2x2", "4x4", "2x2x4", "4x4x4")


def ordered(hosts: int = 8, spares: int = 1, /, **options: str) -> tuple[Submission, Wishes]:
    """One that can be made; words with a blank become options with a dash."""
    given = {"image": "example/lm:1", "claim": "runs"}
    given |= {name.replace("_", "-"): value for name, value in options.items()}
    wanted = Submission(
        "kubernetes", "lm", "0" * 12, "/store", hosts, spares, COMMAND, options=tuple(given.items())
    )
    return wanted, Wishes.of(given)


@st.composite
def orders(draw: st.DrawFn) -> tuple[Submission, Wishes]:
    """Any that can be made."""
    given = draw(st.fixed_dictionaries({}, optional=OPTIONS))
    hosts, spares = draw(st.integers(1, 3000)), draw(st.integers(0, 3))
    if "chips" in given and draw(st.booleans()):
        given |= draw(st.sampled_from([{"accelerator": "nvidia-l4"}, {"resource": "amd.com/gpu"}]))
    if "queue" not in given:
        given.pop("max-run", None)
    restart = draw(st.sampled_from(["", "pods", "in-place", "all"]))
    if grid := draw(st.sampled_from(["", "", *GRIDS])):
        chips = math.prod(map(int, grid.split("x")))
        pods = chips // min(chips, 4)
        given |= {"topology": grid, "chips": str(min(chips, 4)), "accelerator": "tpu-v6e-slice"}
        hosts, spares = pods * draw(st.integers(1, 8)), 0
        if hosts > pods:
            given["kind"] = "jobset"
    if given.get("kind") == "job" and restart == "all":
        restart = ""
    given |= {"restart": restart} if restart else {}
    if given.get("kind") == "job":
        given.pop("exclusive", None)
    is_bucket = draw(st.booleans())
    given |= {"image": "example/lm:1"} | ({} if is_bucket else {"claim": "runs"})
    wanted = Submission(
        "kubernetes",
        draw(NAMES),
        draw(st.sampled_from(["0" * 12, "1234567890ab"])),
        "gs://bucket/runs" if is_bucket else "/store",
        hosts,
        spares,
        ("python", "train.py", "--lr", "1"),
        draw(st.none() | st.integers(1, 8)),
        draw(st.sampled_from([(), ("--grace", "60"), ("--grace", "12.5", "--memory", "2")])),
        tuple(given.items()),
        draw(st.none() | st.integers(0, 10**12)),
        draw(st.none() | st.integers(0, 10**13)),
    )
    return wanted, Wishes.of(given)
