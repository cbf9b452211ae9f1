"""The script that a machine runs at its start: it sets up, starts the agent, and the run again.

Every host of every slice runs it. What it may not get wrong: that a run is started twice, that
something is left running when it ends, and that a start which would fail again is tried for ever.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum

from holdfast.config import STARTED_VARIABLE

UNAVAILABLE = 69  # the store is away, or whoever made the machine still holds the run
CONFIGURATION = 78  # asked again, it says the same again
AGAIN_S = 5
ATTRIBUTES = "/computeMetadata/v1/instance/attributes"


class Workers(StrEnum):
    """Which hosts start the command, where there are several."""

    FIRST = "first"  # under `holdfast run`, on the first host of the first slice alone
    EACH = "each"  # as it is, on every host: what connects them is the framework


def startup_script(
    run: str,
    store: str,
    command: Sequence[str],
    setup: str = "",
    *,
    workers: Workers = Workers.FIRST,
    one_host: bool = True,
    agent: bool = True,
) -> str:
    """A shell script: the user's `setup`, the host's agent, then the command.

    It is run at every start of the machine. The run resumes from its newest checkpoint; what it
    ends with ends the script, but for exit code 69, which is over by itself. `one_host`: there is
    no other, so nobody has to be asked which one this is.
    """
    words = list(command)
    environment = [f"export {STARTED_VARIABLE}=$(date +%s%N)"]
    if store.startswith("gs://"):  # the machine's own account opens it
        environment.append("export HOLDFAST_STORE_CREDENTIALS=instance")
    if workers is Workers.EACH:
        environment += [
            f"export HOLDFAST_NAME={shlex.quote(run)}",
            f"export HOLDFAST_STORE={shlex.quote(store)}",
        ]
    else:
        words = ["holdfast", "run", "--name", run, "--store", store, "--", *command]
    parts = [
        "#!/bin/bash",
        f"# Made by holdfast up for run {run}.",
        *environment,
        *filter(None, [setup.rstrip()]),
        "set +e  # whatever the lines above have set",
        *([_agent()] if agent else ()),
        *([_FIRST if agent else _FIRST_ALONE] if _must_ask(workers, one_host) else ()),
        _LOOP.format(words=shlex.join(words), unavailable=UNAVAILABLE, again_s=AGAIN_S),
    ]
    return "\n".join(parts)


def _must_ask(workers: Workers, one_host: bool) -> bool:
    return workers is Workers.FIRST and not one_host


_LOOP = """\
while true; do
  {words}
  code=$?
  [ "$code" -eq {unavailable} ] || exit "$code"
  sleep {again_s}
done
"""


def _agent() -> str:
    """In a shell of its own, so that it is started again when it dies, and ends with the script."""
    return f"""\
agent() {{
  trap 'kill $! 2>/dev/null; wait; exit' TERM
  while true; do
    holdfast agent --autocheckpoint &
    wait $!
    [ $? -ne {CONFIGURATION} ] || exit  # nobody warns this host: it would say so again
    sleep {AGAIN_S} &
    wait $!
  done
}}
agent & agent=$!
trap 'kill "$agent" 2>/dev/null; wait "$agent"' EXIT"""


_FIRST_ALONE = f"""\
attribute() {{
  curl -sf --noproxy '*' --retry 10 --retry-connrefused --max-time 60 \\
    -H 'Metadata-Flavor: Google' \\
    "http://${{GCE_METADATA_HOST:-metadata.google.internal}}{ATTRIBUTES}/$1"
}}
if ! worker=$(attribute agent-worker-number) || ! about=$(attribute tpu-env); then
  echo "holdfast: nothing is started: this machine does not say which host of its slice it is" >&2
  exit {UNAVAILABLE}
fi
slice=$(echo "$about" | sed -n "s/^MEGASCALE_SLICE_ID: *'*\\([0-9]*\\)'*.*/\\1/p")
if [ "$worker" != 0 ] || [ "${{slice:-0}}" != 0 ]; then
  echo "holdfast: worker $worker of slice ${{slice:-0}}: the first host of the first slice runs it"
  exit 0
fi"""
_FIRST = _FIRST_ALONE.replace("  exit 0\n", '  wait "$agent"\n  exit 0\n')
