"""Stacks as text, read: which frame is the user's, and who waits for others."""

from __future__ import annotations

import faulthandler
import sys
import threading
from pathlib import Path

from holdfast.agent.stack_text import (
    Frame,
    innermost_of_user,
    is_whole,
    main_thread,
    waits_for_others,
)

FAULTHANDLER = """\
Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in inner
  File "/venv/lib/python3.11/site-packages/torch/optim/sgd.py", line 7 in step
  File "/home/me/my (own) code/train.py", line 41 in train_step
  File "/home/me/my (own) code/train.py", line 80 in <module>
"""

PY_SPY = """\
Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4720 (idle): "holdfast-ready"
    wait (threading.py:324)
Thread 4711 (active+gil): "MainThread"
    poll (selectors.py:415)
    load (/home/me/data.py:3)
    <module> (/home/me/train.py:80)
Thread 4721 (idle): "Thread-1"
    wait (threading.py:324)
"""


def test_the_main_thread_of_both_forms() -> None:
    frames = main_thread(FAULTHANDLER)
    assert [frame.name for frame in frames] == ["inner", "step", "train_step", "<module>"]
    assert str(innermost_of_user(frames)) == "train_step (train.py:41)"
    assert [frame.name for frame in main_thread(PY_SPY)] == ["poll", "load", "<module>"]


def test_it_is_whole_with_the_main_threads_last_frame() -> None:
    for size in range(len(FAULTHANDLER)):
        assert not is_whole(FAULTHANDLER[:size])
    assert is_whole(FAULTHANDLER)
    module = '  File "<frozen runpy>", line 198 in _run_module_as_main\n'
    assert is_whole(FAULTHANDLER + module)
    assert is_whole(FAULTHANDLER + "  ...\n")  # deeper than faulthandler goes


def test_without_a_frame_of_the_users_own_the_innermost_is_told() -> None:
    frames = [Frame("wait", "<frozen importlib>", 3), Frame("f", "/v/site-packages/x.py", 1)]
    assert innermost_of_user(frames) == frames[0]
    assert innermost_of_user([]) is None


def test_who_waits_for_others() -> None:
    assert waits_for_others(main_thread(FAULTHANDLER))
    assert not waits_for_others(main_thread(PY_SPY))
    assert waits_for_others([Frame("all_reduce", "/home/me/mine.py", 4)])
    assert not waits_for_others([])


def test_what_is_no_stack_gives_none() -> None:
    for text in (
        "",
        "Permission denied\n",
        "Thread 1\n",
        "  File x\n\0\0",
        "Thread 0x1 (\n    a b",
    ):
        assert main_thread(text) == []


def test_what_this_python_writes_is_understood(tmp_path: Path) -> None:
    go = threading.Event()
    other = threading.Thread(target=go.wait)
    other.start()
    with (tmp_path / "stacks").open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    go.set()
    other.join()
    assert is_whole((tmp_path / "stacks").read_text())
    frames = main_thread((tmp_path / "stacks").read_text())
    assert frames[0].name == sys._getframe().f_code.co_name
    assert frames[0].file == __file__
