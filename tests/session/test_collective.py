"""What a script marks of its time with the other ranks."""

from __future__ import annotations

import json

from processes import House

SCRIPT = """
import json
import holdfast as hf
from holdfast.journal.layout import Word
from holdfast.session import run as module

now = [1000]
module.now_ns = lambda: now[0]
run = hf.start()
state = run.restore(init=lambda: {"x": 0})
for step in run.steps(3):
    with run.collective():
        now[0] += 7
    now[0] += 100
    try:
        with run.collective():
            now[0] += 1
            raise ValueError
    except ValueError:
        pass
    run.done(step, state)
print("marked", json.dumps(run._writer.page.load(Word.TOGETHER_NS)))
"""


def test_time_in_collectives_is_counted_and_is_no_span(house: House) -> None:
    out = house.here(house.script(SCRIPT), HOLDFAST_NAME="r")
    assert "marked 24" in out
    report = json.loads(house.command("report", "r", "--json"))
    assert report["steps_kept"] == 3
