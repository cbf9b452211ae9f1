"""A stand-in for the standby interpreter: it waits, and becomes what it is told. Not a test.

`MODE` in its environment: `quiet` never says that it is ready, `dead` ends at once, `idle` waits
at the lowest priority.
"""

from __future__ import annotations

import json
import os
import sys

task = json.loads(os.environ.pop("HOLDFAST_STANDBY_TASK"))
mode = os.environ.get("MODE", "")
if task.get("server_of"):  # it forks nothing: each interpreter is started by itself
    os.write(task["status_fd"], b'{"event": "unfit", "why": "a stand-in"}')
    sys.exit(0)
if mode == "dead":
    sys.exit(3)
if mode == "idle":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
if mode != "quiet":
    told = {"event": "ready", "modules": 7, "pss_bytes": 90 << 20, "took_s": 0.1}
    os.write(task["status_fd"], json.dumps(told).encode() + b"\n")
line = b""
while not line.endswith(b"\n"):
    data = os.read(task["wake_fd"], 1 << 16)
    if not data:
        sys.exit(0)
    line += data
wake = json.loads(line)
os.write(task["status_fd"], b'{"event": "warm"}\n')
os.chdir(wake["cwd"])
os.execvpe(wake["argv"][0], wake["argv"], wake["env"])
