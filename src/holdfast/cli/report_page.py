"""A run's report as a page, and its charts as a picture: what `holdfast report --html` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast import __version__
from holdfast.cli.files import write_file
from holdfast.core.ledger.incremental import Ledger
from holdfast.errors import HoldfastError
from holdfast.journal.facts.attempts import RankSeen
from holdfast.journal.gathered import Gathered, gathered_run
from holdfast.journal.recorded import RecordedLedger
from holdfast.report.findings import Findings
from holdfast.report.overview import Gain, Gains, Overview, RunSight, overview
from holdfast.report.tiers import Newest
from holdfast.report.words import counted, percent

ENOUGH = 3  # disruptions: fewer say too little of how often they come
BEST = 5  # changes that are shown


@dataclass(frozen=True, slots=True)
class FindingsSource:
    """Where findings came from. `gathered`: what a plan is fitted from; None: there is none."""

    ledger: Ledger
    now_ns: int | None
    ranks: tuple[RankSeen, ...] = ()
    newest: Mapping[str, Newest] = field(default_factory=dict)
    gathered: Callable[[], Gathered] | None = None
    store: str | None = None


def source_of(
    recorded: RecordedLedger, now_ns: int, findings: Findings, store: str | None
) -> FindingsSource:
    """What was read of a run, from which those findings came; `store` as it was named."""
    facts = recorded.facts
    newest = {
        name: Newest(kept.step, kept.at_ns, sets.interval_ns)
        for name, sets in facts.controllers.tiers.items()
        if (kept := sets.newest) is not None
    }
    from_memory = [one.attempt for one in findings.resumed if one.from_memory]
    return FindingsSource(
        ledger=recorded.ledger,
        now_ns=now_ns,
        ranks=facts.ranks(),
        newest=newest,
        gathered=lambda: gathered_run(recorded, from_memory),
        store=store,
    )


def look(
    findings: Findings,
    source: FindingsSource,
    price_per_chip_hour: float | None,
    gains: Gains | None,
) -> Overview:
    """All that a page shows of these findings."""
    course = source.ledger.course(source.now_ns)
    steps = source.ledger.step_times(source.now_ns)
    now_ns = course.end_ns if source.now_ns is None else max(source.now_ns, course.end_ns)
    return overview(
        RunSight(
            findings=findings,
            course=course,
            steps=steps,
            now_ns=now_ns,
            ranks=source.ranks,
            newest=source.newest,
            price_per_chip_hour=price_per_chip_hour,
            gains=gains,
            store_flag=source.store,
        )
    )


def gains_of(gathered: Gathered) -> Gains:
    """What would raise goodput most, by a plan fitted from the run; it takes its time."""
    from holdfast.sim.fitted import fit
    from holdfast.sim.observed import observe
    from holdfast.sim.plan import plan
    from holdfast.sim.plan_input import question_of

    disruptions = len(gathered.account.disruptions)
    try:
        found = plan(question_of(fit(observe(gathered)).values({})))
    except (HoldfastError, ValueError, ArithmeticError, OSError):
        return Gains((), "No plan can be fitted from what was recorded.")
    words = (
        f"By a plan fitted from the run ({counted(disruptions, 'disruption')}), which expects "
        f"{percent(found.goodput)}: each change alone. holdfast plan --from-run tells how sure "
        "that is."
    )
    best = [Gain(one.change, one.gain, one.goodput) for one in found.what_ifs[:BEST]]
    return Gains(tuple(best), words)


def write(
    view: Overview, findings: Findings, html: str | None, svg: str | None, png: str | None
) -> None:
    """The files that were asked for; raises ConfigurationError where an extra is missing."""
    from holdfast.report.run_page import figures_of, run_page

    if html is not None:
        write_file(html, run_page(view, findings.checkpoints, __version__).encode(), "the page")
    if svg is None and png is None:
        return
    from holdfast.report.charts import png as png_of
    from holdfast.report.sheet import sheet

    title = f"{view.name}: goodput {percent(view.account.goodput)}"
    picture = sheet(figures_of(view), title, across=("timeline",))
    if svg is not None:
        write_file(svg, picture.encode(), "the picture")
    if png is not None:
        write_file(png, png_of(picture), "the picture")
