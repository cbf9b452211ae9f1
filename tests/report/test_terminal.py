from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.account import Account, Disruption
from holdfast.report.findings import (
    CompilationFindings,
    DisruptionEvidence,
    Findings,
    LastAnnounced,
    LaunchFindings,
)
from holdfast.report.terminal import STORIES_SHOWN, show
from holdfast.report.words import duration


def shown(findings: Findings, width: int = 80, *, every_story: bool = False, **options) -> str:
    options = {"color_system": None, "file": io.StringIO()} | options
    console = Console(width=width, **options)
    show(findings, console, every_story=every_story)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_the_screen(findings: Findings, width: int) -> None:
    lines = shown(findings, width).splitlines()
    assert max(map(cell_len, lines)) <= width


def test_the_headline_names_its_denominators(findings: Findings) -> None:
    text = shown(findings)
    assert "79.3 %             = 99.9 %             × 79.3 %" in text
    assert "of 2 min 01 s paid" in text
    assert "of 2 min 01 s ready" in text
    assert "× —" in text
    assert "Not measured:" in text


def test_all_three_factors_together_are_a_line_with_their_denominator(findings: Findings) -> None:
    assert "with program" not in shown(findings)
    text = shown(replace(findings, program=0.5, productivity=0.397))
    assert "with program: 39.7 %, 48.1 s at best of 2 min 01 s paid" in text


def test_every_kind_is_in_the_table_with_its_level(findings: Findings) -> None:
    text = shown(findings)
    rows = [line.split() for line in text.splitlines()]
    assert ["productive", "400", "steps", "kept,", "31", "lost", "96.00", "79.3", "%"] in rows
    for kind in findings.account.kinds:
        if kind != "step":
            assert f"■ {kind.partition(':')[0]} " in text
    assert text.index("scheduling badput") < text.index("■ queued") < text.index("runtime badput")
    assert "evaluation" in text


def test_the_compile_row_says_what_was_found_compiled(findings: Findings) -> None:
    def row(findings: Findings) -> str:
        return next(line for line in shown(findings).splitlines() if "■ compile" in line)

    assert "12 hits, 1 miss, 3.40 s saved" in row(findings)
    without = replace(findings, compilations=CompilationFindings(0, 1, 0))
    assert "0 hits, 1 miss " in row(without)
    assert "compiling" in row(replace(findings, compilations=None))


def test_it_says_how_often_is_saved_to_which_tier_and_why(findings: Findings) -> None:
    words = "saving every 14 steps to memory, every 9 min to disk, because a copy blocks 1.2 ms"
    assert words in shown(replace(findings, saving=words), 110)
    over = shown(replace(findings, saving=words, state="done"), 110)
    assert f"\nAt its end: {words[:40]}" in over
    assert "saving every" not in shown(findings)
    assert "1,200 saves to memory, 1 ms each; 9 to disk" in shown(findings)
    assert "resumed at step 1,400, from memory" in shown(findings)


def test_it_counts_down_to_what_is_announced(findings: Findings) -> None:
    warned = [
        LastAnnounced("gce: terminate", 100 * SECOND_NS, deadline, 142 * SECOND_NS)
        for deadline in (200 * SECOND_NS, 140 * SECOND_NS, None)
    ]
    text = shown(replace(findings, announced=tuple(warned)))
    assert "announced 42.0 s ago: gce: terminate, in 58.0 s" in text
    assert "terminate; it is due now" in text
    assert "terminate; no time is given" in text


@pytest.mark.parametrize("state", ["done", "stopped", "failed", "interrupted"])
def test_a_run_that_has_left_counts_down_to_nothing(findings: Findings, state: str) -> None:
    """What it left because of is in the story of that disruption."""
    warned = LastAnnounced("gce: terminate", 100 * SECOND_NS, 200 * SECOND_NS, 142 * SECOND_NS)
    for one in ("running", "silent", ""):
        assert "in 58.0 s" in shown(replace(findings, announced=(warned,), state=one))
    assert "gce: terminate" not in shown(replace(findings, announced=(warned,), state=state))


def test_it_says_how_often_the_job_was_requeued(findings: Findings) -> None:
    words = "job 17 was requeued 2 times, and began again 60 min after the request"
    assert words in " ".join(shown(findings).split())
    assert "requeued" not in shown(replace(findings, requeues=()))


def test_each_disruption_has_a_line_and_a_waterfall(findings: Findings) -> None:
    text = shown(findings, 110)
    assert "attempt 0 after 31.0 s: a maintenance notice" in text
    assert "attempt 1 after 1 min 10 s: killed by a signal" in text
    line = next(line for line in text.splitlines() if line.startswith("attempt 1"))
    assert line.split()[-5:] == ["12", "steps", "5.00", "s", "0.018"]
    unfinished = next(line for line in text.splitlines() if line.startswith("attempt 2"))
    assert "not yet" in unfinished
    phases = [line.split()[0] for line in text[text.index("attempt 1") :].splitlines()[1:7]]
    assert phases == ["lost", "detect", "backoff", "startup", "compile", "first"]
    assert "│ ValueError: no" in text
    assert "│ one" not in text, "a traceback says more than the last lines"
    assert "note: 12 records were dropped" in text


def test_the_first_start_is_shown_as_a_restart_is(findings: Findings) -> None:
    phases = {"startup": 2 * SECOND_NS, "compile": SECOND_NS, "step": SECOND_NS}
    account = replace(findings.account, first_start_ns=phases)
    text = shown(replace(findings, account=account), 110)
    title = next(line for line in text.splitlines() if line.startswith("first start"))
    assert title.startswith(f"first start: {duration(sum(phases.values()))} until the first step")
    begun = replace(findings, account=replace(findings.account, first_start_ns={"startup": 10**9}))
    assert "first start: 1.00 s so far, without a step" in shown(begun, 110)
    later = replace(findings, account=replace(findings.account, first_start_ns={}))
    assert "first start" not in shown(later, 110)


def test_a_long_cause_has_lines_of_its_own(findings: Findings) -> None:
    long = DisruptionEvidence(1, "rank 3 failed: " + "very " * 30 + "badly")
    lines = shown(replace(findings, evidence=(long,))).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("attempt 1"))
    assert lines[at].split() == [
        "attempt",
        "1",
        "after",
        "1",
        "min",
        "10",
        "s",
        "12",
        "steps",
        "5.00",
        "s",
        "0.018",
    ]
    assert [line.startswith("  ") for line in lines[at + 1 : at + 4]] == [True] * 3
    assert "badly" in lines[at + 3]


def test_a_waterfall_falls(findings: Findings) -> None:
    text = shown(findings, 100)
    phases = ("drain", "reschedule", "startup", "restore", "compile", "first")
    rows = text[text.index("attempt 0") : text.index("attempt 1")].splitlines()
    story = [row[29:] for row in rows if row.split()[:1] and row.split()[0] in phases]
    assert len(story) == len(phases)
    starts = [len(row) - len(row.lstrip()) for row in story]
    assert starts == sorted(starts)
    assert starts[-1] > starts[0]


def test_phases_too_short_to_see_share_a_line(findings: Findings) -> None:
    kinds = {"detect": 400_000, "drain": 2_000_000, "startup": SECOND_NS, "step": 2_000_000_000}
    one = replace(findings.account.disruptions[1], waterfall_ns=kinds)
    text = shown(replace(findings, account=replace(findings.account, disruptions=(one,))), 100)
    story = text[text.index("attempt 1") :].splitlines()[1:4]
    assert [row.split()[0] for row in story] == ["startup", "first", "and"]
    assert story[2].strip() == "and detect <1 ms, drain 2 ms"


def test_plain_means_plain(findings: Findings) -> None:
    assert "\x1b" not in shown(findings)
    coloured = shown(findings, color_system="truecolor", force_terminal=True, no_color=False)
    assert "\x1b[" in coloured
    without = shown(findings, color_system="truecolor", force_terminal=True, no_color=True)
    assert "38;2" not in without


def test_ascii_terminals_get_ascii(findings: Findings) -> None:
    raw = io.BytesIO()
    console = Console(width=80, file=io.TextIOWrapper(raw, "ascii", errors="strict"))
    show(findings, console)
    console.file.flush()
    assert b"####" in raw.getvalue()
    assert b"= 99.9 %             x 79.3 %" in raw.getvalue()


def test_disruptions_that_share_their_downtime_say_so(findings: Findings) -> None:
    """In a crash loop each row has all the time up to the one step that ends it."""
    assert "share the time" not in shown(findings, 100)
    one = findings.account.disruptions[1]
    twice = replace(findings.account, disruptions=(one, replace(one, attempt=2)))
    text = shown(replace(findings, account=twice), 100)
    assert "end with the same step share the time until then" in text


def test_many_disruptions_are_summed_up(findings: Findings) -> None:
    one = findings.account.disruptions[1]
    many = tuple(replace(one, attempt=5 + n) for n in range(STORIES_SHOWN + 5))
    crowded = replace(findings, account=replace(findings.account, disruptions=many))
    text = shown(crowded, 100)
    assert "5 earlier disruptions" in text
    (earlier,) = (line.split() for line in text.splitlines() if "earlier disruptions" in line)
    assert earlier[-5:] == ["60", "steps", "0", "s", "0.033"], "down as long as those shown"
    assert f"{STORIES_SHOWN + 5} disruptions" in text
    assert text.count("killed by a signal") == STORIES_SHOWN
    assert shown(crowded, 100, every_story=True).count("killed by a signal") == len(many)


@pytest.mark.parametrize("width", [80, 110])
def test_how_many_steps_were_lost_is_never_cut_short(findings: Findings, width: int) -> None:
    one = replace(findings.account.disruptions[1], lost_steps=912_345)
    text = shown(replace(findings, account=replace(findings.account, disruptions=(one,))), width)
    assert " 912,345 steps " in text


@pytest.mark.parametrize("elapsed_s", [0, 5])
def test_a_run_that_has_not_begun(elapsed_s: int) -> None:
    elapsed = elapsed_s * SECOND_NS
    account = Account(
        "new", 0, elapsed, 2, {"step": 0, "queued": 2 * elapsed}, 0, 0, (), 2 * elapsed
    )
    text = shown(Findings(account))
    assert "no disruptions" in text
    assert "0 steps kept, 0 lost" in text
    assert ("0.0 %" if elapsed else "—") in text


def test_a_disruption_without_any_time() -> None:
    still = Disruption(0, "failed", 0, 0, None, 0, None, {}, 1)
    account = Account("new", 0, 0, 1, {"step": 0}, 0, 0, (still,), 0)
    assert "attempt 0 after 0 s: the command failed" in shown(Findings(account))


def test_into_a_pipe_nothing_is_folded_or_cut_and_no_line_fills_the_room(
    findings: Findings,
) -> None:
    screen = io.StringIO()
    command = ("python", "train.py", *(f"--option-{n}" for n in range(40)))
    console = Console(file=screen, width=1000, highlight=False)
    show(replace(findings, command=command), console, folded=False)
    lines = screen.getvalue().splitlines()
    assert " ".join(command) in [line.strip() for line in lines]
    ruled = [line for line in lines if "──" in line or line.startswith("where it went")]
    assert ruled
    assert max(map(cell_len, ruled)) <= 110


def test_the_latest_command_is_shown_and_that_others_came_before(findings: Findings) -> None:
    launched = tuple(LaunchFindings(n, ("train.py", "--lr", str(n))) for n in range(3))
    text = shown(replace(findings, command=launched[-1].command, commands=launched))
    assert "train.py --lr 2" in text
    assert "2 other commands before it" in text


def test_a_goodput_of_nothing_is_not_green(findings: Findings) -> None:
    kinds = {"step": 0, "startup": sum(findings.account.kinds.values())}
    nothing = replace(findings, account=replace(findings.account, kinds=kinds))
    colours = {"color_system": "truecolor", "force_terminal": True, "no_color": False}
    assert "38;2;0;158;115m" in shown(findings, **colours)
    text = shown(nothing, **colours)
    assert "38;2;0;158;115m" not in text.split("where it went", maxsplit=1)[0]
