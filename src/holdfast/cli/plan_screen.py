"""A plan on a terminal: one screen, the same without colour and in plain ASCII."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast.report.bars import bar
from holdfast.report.kinds import style_of
from holdfast.report.terminal import MAX_WIDTH, Page
from holdfast.report.words import counted, percent
from holdfast.sim.durations import in_words
from holdfast.sim.fitted import Fitted
from holdfast.sim.plan import Elastic, Faster, Plan
from holdfast.sim.plan_buying import Buying

WARNING = "lost"  # the kind whose colour a sentence has that says what cannot be

UNSAID = ("hosts", "chips-per-host", "restart-spread")  # the title has them, or nobody asks


def show(plan: Plan, console: Console) -> None:
    """Print it."""
    page = page_for(console)
    print_pieces(_pieces(plan, page), page, console)


def page_for(console: Console) -> Page:
    """The room that there is; in a pipe, lines are for grep, and never folded."""
    width = min(console.width, MAX_WIDTH)
    return Page(width, console.options.ascii_only, width if console.is_terminal else console.width)


def print_pieces(pieces: Iterable[RenderableType], page: Page, console: Console) -> None:
    """Print them; a rule would fill all the room."""
    for piece in pieces:
        width = page.width if isinstance(piece, Rule) else page.room
        console.print(Constrain(piece, width), highlight=False)


def _pieces(plan: Plan, page: Page) -> Iterator[RenderableType]:
    yield from _title(plan, page)
    yield Text()
    yield _headline(plan, page)
    yield Text()
    for note in plan.notes:
        yield Text(note, style_of(WARNING).colour)
    if plan.notes:
        yield Text()
    yield _where_it_goes(plan, page)
    yield Text()
    yield _intervals(plan, page)
    if plan.spares:
        yield Text()
        yield _spares(plan)
    if plan.elastic is not None:
        yield Text()
        yield _elastic(plan.elastic)
    if plan.what_ifs:
        yield Text()
        yield _what_ifs(plan, page)
    if plan.faster is not None:
        yield Text()
        yield Text.assemble(("faster steps: ", "bold"), faster_words(plan.faster))
    if plan.buying is not None:
        yield Text()
        yield from _ways(plan.buying, page)
    if plan.fitted:
        yield Text()
        yield fitted_table(plan.fitted)
        for sentence in plan.assumed:
            yield Text(sentence, style_of(WARNING).colour)
    yield Text()
    yield _estimates(plan)


def _title(plan: Plan, page: Page) -> Iterator[RenderableType]:
    dot, about = page.glyph(" · ", " | "), page.glyph("±", "+-")
    facts = [counted(plan.hosts, "host"), counted(plan.chips, "chip"), in_words(plan.duration_s)]
    words = Text.assemble(("plan", "bold"), dot, dot.join(facts))
    failures = plan.disruptions
    count = f"{failures.mean:,.0f} {about} {2 * failures.sd:,.0f} failures"
    yield Rule(words, align="left", characters=page.glyph("─", "-"), style="dim")
    yield Text(f"{count}, one every {in_words(plan.mtbf_s)}", "dim")


def _headline(plan: Plan, page: Page) -> Table:
    """Goodput with its interval, and the two factors."""
    to, times = page.glyph("–", "-"), page.glyph("×", "x")
    spread = f"{percent(plan.goodput_low)[:-2]} {to} {percent(plan.goodput_high)}"
    there = "of the time, all\nhosts are there"
    if plan.elastic is not None:
        there = "of the chip time,\nits slice is there"
    columns = [
        ("goodput", plan.goodput, f"{spread}\nin nine runs of ten", "="),
        ("scheduling", plan.scheduling_goodput, there, times),
        ("runtime", plan.runtime_goodput, "of that time is\nkept training", ""),
    ]
    grid = Table.grid(padding=(0, 1))
    rows: list[list[Text]] = [[], [], []]
    for name, share, words, sign in columns:
        strong = f"bold {style_of('step').colour}" if name == "goodput" else "bold"
        rows[0] += [Text(name, "dim"), Text()]
        rows[1] += [Text(percent(share), strong), Text(sign, "dim")]
        rows[2] += [Text(words, "dim"), Text()]
    for row in rows:
        grid.add_row(*row)
    return grid


def _where_it_goes(plan: Plan, page: Page) -> Table:
    """The rest of the time, by kind; the bars compare the kinds with one another."""
    rows = [
        ("reschedule", "waiting for another host", plan.badput.reschedule),
        ("restart", "coming back, also in vain", plan.badput.restart),
        ("lost", "steps that failures undid", plan.badput.lost),
        ("save", "blocked by saves", plan.badput.save),
        ("hang", "until a hang is noticed", plan.badput.hang),
        ("other", "data, evaluation and the like", plan.badput.other),
    ]
    table = _table("where the rest goes", "", "share", "")
    worst = max((share for *_, share in rows), default=0.0) or 1.0
    for kind, words, share in rows:
        if share:
            drawn = bar(0, share / worst, 24, ascii_only=page.ascii_only)
            table.add_row(
                kind, Text(words, "dim"), percent(share), Text(drawn, style_of(kind).colour)
            )
    return table


INTERVALS = ("save every", "planned", "best", "holdfast run", "first order")


def interval_rows(plan: Plan, none: str) -> Iterator[tuple[str, ...]]:
    """What is below `INTERVALS`; `none`: for what there is not."""
    tiers = {
        "durable": (
            plan.interval_s,
            plan.best_interval_s,
            plan.run_interval_s,
            plan.first_order_interval_s,
        ),
        "memory": (
            plan.memory_interval_s,
            plan.best_memory_interval_s,
            plan.run_memory_interval_s,
            plan.first_order_memory_interval_s,
        ),
    }
    for tier, values_s in tiers.items():
        if values_s[0] is not None:
            yield tier, *(none if one is None else in_words(one) for one in values_s)
    yield "goodput", *map(percent, (plan.goodput, plan.best_goodput, plan.run_goodput)), none


def _intervals(plan: Plan, page: Page) -> Table:
    table = _table(*INTERVALS)
    for row in interval_rows(plan, page.glyph("—", "-")):
        table.add_row(*row)
    return table


def _spares(plan: Plan) -> Table:
    table = _table("spares", "enough", "wait a loss", "goodput", "one more adds")
    for row in plan.spares:
        style = "bold" if row.spares == plan.best_spares else ""
        mark = " best" if row.spares == plan.best_spares else ""
        gain = f"{row.gain_of_one_more * 100:+.2f} points"
        table.add_row(
            f"{row.spares}{mark}",
            percent(row.enough),
            in_words(row.wait_s),
            percent(row.goodput),
            gain,
            style=style,
        )
    return table


def _elastic(found: Elastic) -> Text:
    gain = f"{found.gain * 100:+.1f} points"
    return Text.assemble(
        ("elastic: ", "bold"),
        f"{found.slices_training:,.1f} of {found.slices} slices train on average, and "
        f"{counted(round(found.restarts), 'restart')} take slices in again; waiting for all of "
        f"them would keep {percent(found.goodput_waiting)}: ",
        (gain, f"bold {style_of('step').colour}"),
    )


def _what_ifs(plan: Plan, page: Page) -> Table:
    table = _table("what would raise it", "goodput", "gain", "")
    worst = plan.what_ifs[0].gain
    for one in plan.what_ifs:
        drawn = bar(0, one.gain / worst, 16, ascii_only=page.ascii_only)
        gain = f"{one.gain * 100:+.1f} points"
        table.add_row(one.change, percent(one.goodput), gain, Text(drawn, style_of("step").colour))
    return table


def faster_words(found: Faster) -> str:
    """What a tenth more of the chips' peak buys."""
    more = f"MFU that is {found.gain:.0%} higher".replace("%", " %")
    takes_s = found.saved_s / found.gain
    work = f"the work of {in_words(takes_s + found.saved_s)} takes {in_words(takes_s)}"
    saved = f"{in_words(found.saved_s)} and {found.saved_chip_hours:,.0f} chip-hours"
    if found.as_goodput <= 1:
        like = f"goodput of {percent(found.as_goodput)} would do as much"
    else:
        like = "no goodput would do as much"
    return (
        f"with {more} (40 % becomes {0.4 * (1 + found.gain):.0%}), {work}, which saves {saved}; "
        f"with the steps as they are, {like}"
    ).replace("%)", " %)")


def _ways(buying: Buying, page: Page) -> Iterator[RenderableType]:
    """What the same work takes and costs, one line a way; then why."""
    none = page.glyph("—", "-")
    table = _table("way to buy", "price", "sched.", "runtime", "goodput", "takes", "costs", "per h")
    for way in buying.ways:
        if way.wall_s is None or way.money is None:
            table.add_row(way.name, f"{way.price:g}", none, none, none, "never", none, none)
            continue
        names = [way.name == buying.cheapest, way.name == buying.fastest]
        table.add_row(
            Text(way.name, "bold" if any(names) else ""),
            f"{way.price:g}",
            percent(way.scheduling_goodput),
            percent(way.runtime_goodput),
            percent(way.goodput),
            Text(in_words(way.wall_s), "bold" if names[1] else ""),
            Text(_money(way.money), "bold" if names[0] else ""),
            f"{way.money_per_useful_chip_hour:.3g}",
        )
    yield table
    yield Text(" ".join(buying.why), "dim")


def _money(amount: float) -> str:
    for below, over, unit in ((1e4, 1.0, ""), (1e7, 1e3, " k"), (1e10, 1e6, " M")):
        if amount < below:
            return f"{amount / over:,.0f}{unit}"
    return f"{amount / 1e9:,.0f} G"


def fitted_table(fitted: Sequence[Fitted]) -> Table:
    """What each fitted parameter rests on."""
    table = _table("fitted", "")
    for one in fitted:
        if one.name not in UNSAID:
            table.add_row(one.name.replace("-", " "), Text(one.words, "dim"))
    return table


def _estimates(plan: Plan) -> Text:
    published = percent(plan.published_runtime_goodput)
    return Text.assemble(
        ("runtime goodput by the published estimate from tch, trm and tre: ", "dim"),
        f"{published}",
        (", exact: ", "dim"),
        percent(plan.runtime_goodput),
        (f"; goodput by the linear formula: {percent(plan.linear_goodput)}", "dim"),
    )


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for i, head in enumerate(heads):
        is_number = i > 0 and head != ""
        table.add_column(head, justify="right" if is_number else "left", no_wrap=is_number)
    return table
