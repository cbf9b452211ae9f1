"""`holdfast plan`: what scripts rely on, the screen, and what is said of bad input."""

from __future__ import annotations

import json
import sys

import pytest

from holdfast.cli.main import main
from holdfast.cli.plan_screen import faster_words
from holdfast.sim.plan import Faster


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["plan", *arguments])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


def test_the_json_that_scripts_rely_on(capsys):
    code, out, err = plan(
        capsys, "--mtbf", "11124", "--save-stall", "60", "--restart", "600", "--json"
    )
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["best_interval_s"] == pytest.approx(1115.7, rel=0.03)
    assert found["goodput"] == pytest.approx(0.85246, abs=0.001)
    assert found["goodput_low"] < found["goodput"] < found["goodput_high"]
    assert (found["scheduling_goodput"], found["runtime_goodput"]) == (1, found["goodput"])


def test_a_given_interval_and_units(capsys):
    _, out, _ = plan(
        capsys, "--hosts", "2048", "--failures-per-1000-node-days", "6.5", "--restart", "5min",
        "--interval", "1h", "--days", "54d", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert found["interval_s"] == 3600
    assert found["goodput"] == pytest.approx(0.714, abs=0.01)
    assert found["duration_s"] == 54 * 86_400


def test_flags_win_over_a_file(capsys, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('mtbf = "11124s"\nsave-stall = 60\nrestart = "10min"\n')
    _, out, _ = plan(capsys, "--file", str(path), "--json")
    assert json.loads(out)["goodput"] == pytest.approx(0.85246, abs=0.001)
    _, out, _ = plan(capsys, "--file", str(path), "--save-stall", "300", "--json")
    assert json.loads(out)["goodput"] == pytest.approx(0.74414, abs=0.001)


LLAMA_3 = (
    "--hosts", "2048", "--chips-per-host", "8", "--failures-per-1000-node-days", "3.79",
    "--days", "54", "--save-stall", "300", "--restart", "600",
)  # fmt: skip


def on_a_terminal(monkeypatch):
    """Of 80 columns, without colours."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_into_a_pipe_no_line_is_folded(capsys):
    _, out, _ = plan(capsys, *LLAMA_3)
    lines = out.splitlines()
    (estimates,) = [line for line in lines if "the published estimate" in line]
    assert estimates.endswith("%")
    assert "goodput by the linear formula" in estimates
    assert max(len(line) for line in lines if "──" in line) == 110  # a rule is for the eye


def test_one_screen(capsys, monkeypatch):
    on_a_terminal(monkeypatch)
    code, out, err = plan(
        capsys, *LLAMA_3, "--host-share", "0.8", "--repair", "1d", "--reschedule", "1h",
        "--memory-copy", "2", "--notice-recall", "0.3", "--notice-lead", "10min",
    )  # fmt: skip
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 50
    for words in (
        "2,048 hosts", "16,384 chips", "54 d", "one every 3.09 h", "in nine runs of ten",
        "scheduling", "runtime", "cannot be reached", "waiting for another host", "durable",
        "memory", "first order", "one more adds", "what would raise it", "points",
        "the published estimate", "tch, trm and tre", "by the linear formula",
    ):  # fmt: skip
        assert words in " ".join(out.split()), words


def test_the_failures_of_a_published_run(capsys):
    _, out, _ = plan(capsys, *LLAMA_3)
    assert "419 ± 41 failures" in out
    assert "90 % cannot be reached with saves that block for 5 min: 74.4 % is the most" in " ".join(
        out.split()
    )


def test_a_run_that_cannot_progress_is_told_so(capsys):
    code, out, _ = plan(capsys, "--mtbf", "5min", "--restart", "10min")
    assert code == 0
    assert "The run cannot progress" in out
    assert "it would take" in " ".join(out.split())


WAYS = """
[buy.on-demand]
price = 4
provision = "10min"

[buy.spot]
price-per-chip-hour = 1.6
interruptions = 30
provision = "lognormal:20min:1"
notice = 30
"""


def test_ways_to_buy(capsys, monkeypatch, tmp_path):
    """From a file and by flags, which win; one screen."""
    on_a_terminal(monkeypatch)
    path = tmp_path / "plan.toml"
    path.write_text(WAYS)
    command = (
        *LLAMA_3, "--file", str(path), "--buy", "spot:price=1,interruptions=1",
        "--buy", "calendar:price=2,window=7d,gap=3d", "--buy", "no:price=1,interruptions=90000",
    )  # fmt: skip
    _, out, _ = plan(capsys, *command, "--json")
    found = json.loads(out)["buying"]
    assert [way["name"] for way in found["ways"]] == ["on-demand", "spot", "calendar", "no"]
    assert (found["ways"][1]["price"], found["cheapest"]) == (1, "spot")
    assert found["ways"][3]["wall_s"] is None
    _, out, _ = plan(capsys, *command)
    assert max(map(len, out.splitlines())) <= 80
    assert "spot is cheapest" in out
    assert "never" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "holdfast: give either --mtbf or --failures-per-1000-node-days"),
        (("--mtbf", "nan"), "holdfast: --mtbf: 'nan' is not a duration"),
        (("--mtbf", "-5"), "holdfast: --mtbf: -5 is less than zero"),
        (("--mtbf", "5", "--hosts", "0"), "holdfast: --hosts: 0 is too few"),
        (("--mtbf", "5", "--restart", "5m"), "holdfast: --restart: 5m: there is no unit 'm'"),
        (("--mtbf", "5", "--restrat", "5"), "holdfast: no such option '--restrat'"),
        (("--file", "none.toml"), "holdfast: none.toml cannot be read"),
        (("--mtbf", "5h", "--buy", "spot"), "holdfast: --buy 'spot': price is missing"),
        (("--mtbf", "5h", "--buy", "a:prize=1"), "holdfast: --buy 'a:prize=1': 'prize' is not a s"),
        (("--mtbf", "5h", "--buy", "a:price=x"), "holdfast: --buy 'a:price=x': price: 'x' is not"),
        (("--mtbf", "5h", "--buy", "a:price"), "holdfast: --buy 'a:price': give NAME:price=2.1"),
        (("--mtbf", "5h", "--buy", ":price=1"), "holdfast: --buy ':price=1': '' cannot name"),
        (
            ("--mtbf", "5h", "--buy", "a:price=1,window=5"),
            "holdfast: --buy 'a:price=1,window=5': window has no effect without gap",
        ),
        (
            ("--mtbf", "5h", "--buy", "a:price=1,pays=never"),
            "holdfast: --buy 'a:price=1,pays=never': pays: 'never' is neither held nor always",
        ),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, capsys):
    code, out, err = plan(capsys, *arguments)
    assert (code, out) == (78, "")
    assert err.startswith(words)
    assert err.count("\n") == 1


def test_faster_steps_in_words() -> None:
    words = faster_words(Faster(0.1, 86_400.0, 24.0, 0.935))
    assert words == (
        "with MFU that is 10 % higher (40 % becomes 44 %), the work of 11 d takes 10 d, which "
        "saves 24 h and 24 chip-hours; with the steps as they are, goodput of 93.5 % would do as "
        "much"
    )
    assert "no goodput would do as much" in faster_words(Faster(0.1, 86_400.0, 24.0, 1.05))
