"""`holdfast calibrate`: what this device really reaches, measured and kept for the reports."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.door import say
from holdfast.config import calibrated_file, inherited_environment, launcher_world
from holdfast.core.ledger.program import scaled
from holdfast.core.visible import clean
from holdfast.errors import EXIT_DONE, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.journal.calibrated import Calibration
    from holdfast.program.device import Device
    from holdfast.program.measure import Rank


@click.command()
@click.option(
    "--framework",
    type=click.Choice(("jax", "torch")),
    help="By which; by default the one that is installed, of both the one with an accelerator.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 60),
    default=1.0,
    show_default=True,
    help="How long each thing is measured.",
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def calibrate(framework: str | None, seconds: float, as_json: bool) -> None:
    """Measure what this host's device really reaches, for program goodput.

    Reports name it beside the peak of its data sheet. Products of matrices by type of numbers,
    memory, and a sum over all devices where there are several (with torch: over the ranks of a
    launcher). It opens the device, takes some ten seconds, and wants it for itself: whatever else
    runs makes the figures smaller. They are kept for this user on this host; runs tell of them
    from their next attempt on.
    """
    from holdfast.journal.calibrated import Calibration
    from holdfast.program import measure
    from holdfast.program.device import find_device

    rank = _rank()
    is_busy = os.getloadavg()[0] >= (os.cpu_count() or 1) / 2
    tool = measure.framework(framework, rank)
    device = find_device()
    found = measure.measure(tool, seconds)
    one = Calibration(device.name, int(time.time()), **asdict(found))
    if rank.local == 0:  # of each host one
        if as_json:
            json.dump(asdict(one), sys.stdout, indent=1, allow_nan=False)
            print()
        else:
            for line in _lines(one):
                click.echo(clean(line))
        if is_busy and tool.platform == "cpu":
            say("The CPUs were busy before: these figures may be low. Measure when they are not.")
        if not device.name or device.kinds > 1:
            say(f"Not kept: {_why_not(device)}. Give runs --peak-flops N.")
        else:
            _keep(calibrated_file(), one, is_told=not as_json)
    sys.exit(EXIT_DONE)


def _keep(place: Path, one: Calibration, is_told: bool) -> None:
    """In the place of this device's last calibration."""
    from holdfast.journal.calibrated import write_calibration

    try:
        write_calibration(place, one)
    except StoreUnavailable as error:
        why = str(error).partition(";")[0]
        raise StoreUnavailable(
            f"measured, and not kept ({why}): give runs --peak-flops N, or this command and runs "
            "another HOLDFAST_MIRROR"
        ) from error
    if is_told:
        say(f"Kept in {place}: runs on this host tell of it from their next attempt on.")


def _why_not(device: Device) -> str:
    if not device.name:
        return "nothing says which device that was, so no run would find it"
    return f"the devices are of several kinds ({clean(device.name)}), and one was measured"


def _rank() -> Rank:
    """Which of the ranks of torchrun, or of a launcher with its variables, this is."""
    from holdfast.program.measure import Rank

    _, world, said_by = launcher_world() or (0, 1, "")
    local = inherited_environment().get("LOCAL_RANK", "")
    is_torchs = world > 1 and said_by == "WORLD_SIZE"
    return Rank(int(local) if local.isdecimal() else 0, world) if is_torchs else Rank()


def _lines(one: Calibration) -> list[str]:
    from holdfast.program.peaks import peak_of

    lines = [f"{one.device or 'A device'}, by {one.by}:"]
    for dtype, flops in one.flops.items():
        sheet = peak_of(one.device, dtype)
        beside = f" ({flops / sheet.flops:.0%} of {scaled(sheet.flops)}FLOP/s)" if sheet else ""
        lines.append(f"  products in {dtype:5} {scaled(flops)}FLOP/s{beside}")
    lines.append(f"  memory            {scaled(one.copy_bytes)}B/s read and written")
    if one.together:
        lines.append(
            f"  a sum over {one.together:<6} {scaled(one.together_bytes)}B/s by each device"
        )
    return lines
