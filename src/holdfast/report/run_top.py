"""The top of a run's page in words: what somebody needs who is woken at night, and goodput."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core.ledger.kinds import BACKOFF
from holdfast.core.visible import clean
from holdfast.report.document import NS_PER_CHIP_HOUR
from holdfast.report.kinds import style_of
from holdfast.report.overview import Factor, Overview
from holdfast.report.run_tables import last_words
from holdfast.report.words import (
    MISSING,
    chip_hours,
    counted,
    duration,
    moment,
    money,
    percent,
    shortened,
)

STATE_TONES = {"running": "good", "done": "good", "failed": "bad", "interrupted": "bad",
               "silent": "bad"}  # fmt: skip
CARD_CHARS = 72
MOST_COMMANDS = 100  # the newest
LATE = 10  # times the usual step: so old may the last one be
SLOW = 1.5  # times the usual


def head(view: Overview) -> dict[str, Any]:
    """Which run it is, and its state."""
    facts = [counted(view.attempts, "attempt"), counted(view.account.chips, "chip")]
    since = "since it was requested" if view.is_live else "from its request to its end"
    facts.append(f"{duration(view.account.elapsed_ns)} {since}")
    if view.unix_clock:
        facts.append(f"seen {moment(view.now_ns)}")
    return {
        "name": view.name,
        "state": view.state,
        "tone": STATE_TONES.get(view.state, ""),
        "why": "" if view.why and view.why in view.advice.reason else view.why,
        "facts": " · ".join(facts),
        "command": " ".join(view.command),
        "commands": [
            (f"{one.attempt:,}", " ".join(one.command)) for one in view.commands[-MOST_COMMANDS:]
        ]
        if len(view.commands) > 1
        else [],
    }


def _card(name: str, value: str, words: str, tone: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "words": words, "tone": tone}


def cards(view: Overview) -> Iterator[dict[str, str]]:
    """The answers, each with a number, the most urgent first."""
    yield from _notice_cards(view)
    yield from _last_step_card(view)
    if view.phase is not None:
        phase = view.phase
        usual = "it never was in this before"
        tone = ""
        if phase.usual_ns is not None:
            usual = f"usually {duration(phase.usual_ns)}, of {counted(phase.times, 'time')}"
            tone = "bad" if phase.lasts_ns > 3 * phase.usual_ns else ""
        if phase.kind == BACKOFF and view.why:  # it takes what was decided
            usual, tone = view.why, ""
        yield _card(f"in {clean(phase.kind)}", duration(phase.lasts_ns), usual, tone)
    yield from _pace_card(view)
    for tier in view.tiers:
        if not view.is_live and not (tier.at_risk_steps and view.state != "done"):
            continue  # of a run that is over nothing is at risk, but for what was never saved
        yield _card(
            f"at risk from {tier.name}",
            duration(tier.at_risk_ns),
            f"{counted(tier.at_risk_steps, 'step')} since step {tier.last_step or 0:,}, "
            f"if {tier.survives} is lost",
        )
    newest = view.newest
    if newest is not None:
        ago = duration(max(0, view.now_ns - newest.at_ns))
        over = "not over" if newest.down_ns is None else f"over after {duration(newest.down_ns)}"
        cause = shortened(newest.cause, CARD_CHARS)
        value = f"{ago} ago" if view.is_live else f"{len(view.incidents):,}"
        words = f"{cause}; {over}" if view.is_live else f"the last: {cause}"
        yield _card("last disruption" if view.is_live else "disruptions", value, words,
                    "bad" if newest.down_ns is None and view.is_live else "")  # fmt: skip


def _notice_cards(view: Overview) -> Iterator[dict[str, str]]:
    for one in view.announced:
        words = clean(one.words)
        takes = "no save was measured yet"
        if view.save_ns is not None:
            takes = f"a save takes {duration(view.save_ns)}"
        if one.deadline_ns is None:
            yield _card("notice", "no time said", f"{words}; {takes}", "bad")
            continue
        left_ns = one.deadline_ns - view.now_ns
        value = f"in {duration(left_ns)}" if left_ns > 0 else "its time has come"
        short = view.save_ns is None or left_ns < view.save_ns * 3 // 2
        yield _card("notice", value, f"{words}; {takes}", "bad" if short else "")


def _last_step_card(view: Overview) -> Iterator[dict[str, str]]:
    if view.last_step_age_ns is None:
        yield _card("last step", MISSING, "no step was completed yet")
        return
    step, age = view.steps.last_step, duration(view.last_step_age_ns)
    if not view.is_live:
        yield _card("last step", f"{step:,}", f"completed {age} ago")
        return
    late = view.steps.usual_ns and view.last_step_age_ns > LATE * view.steps.usual_ns
    where = ", complete on the device" if view.is_on_device else ""
    tone = "bad" if late else "good"
    yield _card("last step", f"{age} ago", f"step {step:,}{where}", tone)


def _pace_card(view: Overview) -> Iterator[dict[str, str]]:
    steps = view.steps
    if not steps.usual_ns:
        return
    times = steps.recent_ns / steps.usual_ns
    usual = f"usually {duration(steps.usual_ns)}"
    tone = "bad" if times > SLOW else "good" if view.is_live else ""
    yield _card(
        "a step takes", duration(steps.recent_ns), f"{times:.2f} × its normal; {usual}", tone
    )


def broke(view: Overview) -> dict[str, Any] | None:
    """The first rank that failed, while that matters: it is not over, or the run gave up."""
    newest = view.newest
    if newest is None or not (newest.lines or newest.traceback):
        return None
    if view.state != "failed" and (newest.down_ns is not None or not view.is_live):
        return None
    who = "The output" if newest.rank is None else f"Rank {newest.rank} broke first: its output"
    return {"title": f"{who} in attempt {newest.attempt} ended with",
            "lines": last_words(newest)}  # fmt: skip


def goodput(view: Overview) -> dict[str, Any]:
    """Goodput, its factors, and what each lost."""
    account = view.account
    lost = account.elapsed - account.productive
    steps = f"{counted(account.steps_kept, 'step')} kept, {account.lost_steps:,} lost"
    return {
        "goodput": percent(account.goodput),
        "tone": "good" if account.productive else "",
        "kept": f"{duration(account.wall_ns(account.productive))} kept of "
        f"{duration(account.elapsed_ns)} paid for",
        "lost": _lost(view, lost),
        "factors": [_factor(view, one) for one in view.factors],
        "share": f"{(account.goodput or 0) * 100:.2f}",
        "colour": style_of("step").colour,
        "steps": ". ".join(filter(None, (steps, view.productivity.capitalize()))) + ".",
    }


def _factor(view: Overview, one: Factor) -> dict[str, str]:
    lost = "" if one.lost_chip_ns is None else f"lost {_lost(view, one.lost_chip_ns)}"
    return {"name": one.name, "share": percent(one.share), "of": one.of, "lost": lost}


def _lost(view: Overview, chip_ns: int) -> str:
    """Chip-hours, and money where a price was given."""
    share = f"{chip_hours(chip_ns)} chip-hours"
    if view.price_per_chip_hour is not None:
        cost = chip_ns / NS_PER_CHIP_HOUR * view.price_per_chip_hour
        share += f", {money(cost)} in money"
    return share


def gains(view: Overview) -> list[dict[str, Any]]:
    """What would raise it, as rows with bars."""
    if view.gains is None or not view.gains.changes:
        return []
    most = view.gains.changes[0].gain or 1.0
    return [
        {
            "change": one.change,
            "gain": f"+{one.gain * 100:.1f} points",
            "goodput": percent(one.goodput),
            "share": max(0.0, one.gain / most),
            "colour": style_of("step").colour,
        }
        for one in view.gains.changes
    ]
