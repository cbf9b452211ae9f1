"""What a look at a script's source finds."""

from __future__ import annotations

import pytest

from holdfast.doctor.script import look

HANDLER = "import signal\ndef stop(n, f):\n    global flag\n    flag = True\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("", ""),
        (HANDLER + "signal.signal(signal.SIGTERM, stop)", "5 handler-replaces"),
        (HANDLER + "signal.signal(15, stop)", "5 handler-replaces"),
        (HANDLER + "signal.signal(signal.SIGINT, stop)", ""),
        (HANDLER + "old = signal.signal(signal.SIGTERM, stop)", ""),
        (HANDLER + "old = signal.getsignal(15)\nsignal.signal(signal.SIGTERM, stop)", ""),
        ("import signal\nsignal.signal(signal.SIGTERM, old)", ""),  # an old one is put back
        ("import signal as s\ns.signal(s.SIGTERM, lambda *_: 0)", "2 handler-replaces"),
        ("from signal import *", ""),
        (HANDLER + "import holdfast as hf\nsignal.signal(15, stop)\nhf.start()", ""),
        (
            HANDLER + "import holdfast as hf\nhf.start()\nsignal.signal(15, stop)",
            "7 handler-replaces",
        ),
        (
            "from signal import SIGTERM, signal\nsignal(SIGTERM, lambda *_: 0)",
            "2 handler-replaces",
        ),
        (
            HANDLER + "for one in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(one, stop)",
            "6 handler-replaces",
        ),
        ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)", "2 ignores-sigterm"),
        ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)", "2 dies-of-sigterm"),
        (
            "import os, signal\ndef stop(*_):\n    os._exit(1)\n"
            "old = signal.signal(signal.SIGTERM, stop)",
            "3 handler-exits",
        ),
        (
            "import signal, sys\nclass T:\n  def stop(self, *_):\n    sys.exit(1)\n"
            "  def go(self):\n    old = signal.signal(signal.SIGTERM, self.stop)",
            "4 handler-raises",
        ),
        ("from os import _exit\n_exit(3)", "2 exits-hard"),
        (
            HANDLER + "import jax\nsignal.signal(15, stop)\njax.distributed.initialize()",
            "6 handler-replaces, 7 jax-replaces",
        ),
        (
            HANDLER + "import holdfast, jax\nx = signal.signal(15, stop)\n"
            "jax.distributed.initialize()",
            "",
        ),
        ("try:\n    run.done(1)\nexcept:\n    pass", "3 swallows-stop"),
        (
            "import holdfast as hf\nr = hf.start()\ntry:\n  r.poll()\nexcept BaseException:\n  1",
            "5 swallows-stop",
        ),
        ("try:\n    main()\nexcept (ValueError, SystemExit):\n    pass", "3 swallows-exit"),
        ("try:\n    run.done(1)\nexcept Exception:\n    pass", ""),
        ("try:\n    run.done(1)\nexcept:\n    log()\n    raise", ""),
        ("try:\n    run.done(1)\nexcept SystemExit:\n    raise\nexcept:\n    pass", ""),
        ("import sys\ntry:\n    run.done(1)\nexcept:\n    sys.exit(1)", ""),
    ],
)
def test_habits(source, found):
    assert ", ".join(f"{one.line} {one.habit}" for one in look(source)) == found


def test_words_are_the_code_and_short():
    (one,) = look("import os\nos._exit(" + "1 + " * 60 + "1)")
    assert one.words.startswith("os._exit(1 + 1")
    assert len(one.words) <= 61
