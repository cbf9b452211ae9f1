"""`holdfast doctor`, from the command line to its JSON."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from holdfast.cli.doctor import doctor
from holdfast.errors import ConfigurationError

SCRIPT = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def told(*words):
    return CliRunner().invoke(doctor, [str(word) for word in words])


def test_the_screen_fits_and_the_code_says_it(store, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    bad = told(script, "--store", store, "--notice", "off", "--state", "900TiB")
    assert bad.exit_code == 1, bad.output
    lines = bad.output.split("\n")
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("error    ")
    assert "2 has SIGTERM ignored" in " ".join(bad.output.split())
    assert "none of 3 snapshots of 900 TiB fit into memory" in " ".join(bad.output.split())
    script.write_text("")
    good = told(script, "--store", store, "--notice", "off")
    assert good.exit_code == 0, good.output
    assert "error" not in good.output


def test_the_json_has_what_the_reference_says(store):
    out = json.loads(told("--json", "--store", store, "--notice", "off").stdout)
    assert list(out) == ["format", "findings", "checks", "facts"]
    for one in out["findings"]:
        assert list(one) == ["check", "severity", "what", "why", "fix"]
        assert one["check"] in out["checks"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["gone.py"], "cannot be read"),
        ([__file__.replace("test_doctor.py", "")], "cannot be read"),
        (["--state", "much"], "write a size"),
        (["--state", "9" * 400], "write a size"),
        (["/dev/zero"], "cannot be read"),
        (["--run", "nobody"], "nobody"),
        (["--notice", "nowhere"], "no source of notices"),
    ],
)
def test_what_cannot_be_meant(words, why, store):
    result = told(*words, "--store", store)
    assert isinstance(result.exception, ConfigurationError)
    assert why in str(result.exception)


def test_a_script_that_is_none(store, tmp_path):
    for text in ("def (", "-" * 100_000 + "1", "\0"):
        (tmp_path / "x.py").write_text(text)
        result = told(tmp_path / "x.py", "--store", store)
        assert "is not valid Python" in str(result.exception)
    os.mkfifo(tmp_path / "fifo")
    result = told(tmp_path / "fifo", "--store", store)
    assert "cannot be read" in str(result.exception)
    (tmp_path / "large.py").write_bytes(b"#" * ((16 << 20) + 1))
    result = told(tmp_path / "large.py", "--store", store)
    assert "has more than" in str(result.exception)


def test_a_script_may_have_an_encoding_of_its_own_and_be_a_link(store, tmp_path):
    (tmp_path / "x.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n" + SCRIPT.encode())
    (tmp_path / "link.py").symlink_to(tmp_path / "x.py")
    result = told(tmp_path / "link.py", "--store", store, "--notice", "off")
    assert "4 has SIGTERM ignored" in " ".join(result.output.split())
