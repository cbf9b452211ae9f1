"""The script that a machine starts with, run by a real shell."""

from __future__ import annotations

import os
import subprocess

import pytest

from holdfast.provision import startup

FAKE = """#!/bin/bash
echo "$# $*" >> asked
n=$(wc -l < asked)
exit $(sed -n "${n}p" codes)
"""


@pytest.mark.parametrize("codes", [[0], [69, 69, 75], [1], [69, 78]])
def test_it_starts_the_run_until_that_says_more_than_not_now(tmp_path, monkeypatch, codes):
    monkeypatch.setattr(startup, "AGAIN_S", 0)
    (tmp_path / "codes").write_text("\n".join(map(str, codes)))
    (tmp_path / "holdfast").write_text(FAKE)
    (tmp_path / "holdfast").chmod(0o700)
    command = ["python", "it's.py", "--name", "$HOME"]
    text = startup.startup_script("lm", "/the store", command, "echo set up >> asked.first\n")
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (codes[-1], "")
    asked = (tmp_path / "asked").read_text().splitlines()
    words = "10 run --name lm --store /the store -- python it's.py --name $HOME"
    assert asked == [words] * len(codes)
    assert (tmp_path / "asked.first").read_text() == "set up\n"


def test_a_bucket_is_opened_by_the_machines_own_account():
    line = "export HOLDFAST_STORE_CREDENTIALS=instance\n"
    assert line in startup.startup_script("lm", "gs://b/runs", ["true"])
    assert line not in startup.startup_script("lm", "/nfs/runs", ["true"])
