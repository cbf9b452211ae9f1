"""`holdfast doctor`: what on this host will hurt a run, before it does."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.places import open_run, store_option
from holdfast.config import inherited_environment, resolve
from holdfast.config.kinds import INSTANCE
from holdfast.distribution import stranger
from holdfast.errors import EXIT_DONE, EXIT_USER_FAILURE, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.doctor.facts import Facts, ScriptHabit
    from holdfast.doctor.finding import Finding

FORMAT = 1
WIDTH = 80
INDENT = 9
STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}
MOST_BYTES = 1 << 63
SCRIPT_LIMIT_BYTES = 16 << 20
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?")
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{letter}i": 1 << (10 * power) for power, letter in enumerate("KMGT", 1)
}


@click.command()
@click.argument("script", required=False)
@click.option("--run", metavar="RUN", help="Use what that run has recorded of its saves.")
@store_option
@click.option("--state", metavar="SIZE", help="How large a checkpoint is, such as 40GiB.")
@click.option("--grace", "grace_s", type=float, metavar="S", help="As for holdfast run.")
@click.option("--notice", metavar="SOURCES", help="As for holdfast run.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def doctor(
    script: str | None,
    run: str | None,
    store: str | None,
    state: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Check this host for what will hurt a run, and say what to do about it.

    Looks at this host, at SCRIPT's source (without running it), and at what RUN has recorded. Asks
    no address but that of a store in a bucket, and those of sources of notices that are named, or
    that this host is known to have.
    Exit codes: 0, or 1 when something is found that costs progress.
    """
    from holdfast.doctor.checks import CHECKS, examine

    facts = _facts(script, run, store, state, flags)
    findings = examine(facts)
    if as_json:
        result = {
            "format": FORMAT,
            "findings": [asdict(one) for one in findings],
            "checks": list(CHECKS),
            "facts": asdict(facts),
        }
        json.dump(result, sys.stdout, indent=1, allow_nan=False)
        print()
    else:
        _show(findings, len(CHECKS))
    is_bad = any(one.severity == "error" for one in findings)
    sys.exit(EXIT_USER_FAILURE if is_bad else EXIT_DONE)


def _facts(
    script: str | None, run: str | None, store: str | None, state: str | None, flags: dict[str, Any]
) -> Facts:
    from holdfast.doctor import host
    from holdfast.doctor.ask import ask
    from holdfast.doctor.bucket import object_store
    from holdfast.doctor.facts import Facts
    from holdfast.doctor.recorded import run_record
    from holdfast.notices.protocol import SourceSurroundings
    from holdfast.notices.registry import wanted

    settings = resolve(flags | {"store": store}).settings
    environ = inherited_environment()
    around = SourceSurroundings(environ)
    sources = wanted(settings.notice, around)
    folder = None if run is None else open_run(run, store)
    record = None if folder is None else run_record(folder)
    bucket = object_store(settings.store, instance=settings.store_credentials == INSTANCE)
    state_bytes = _bytes(state) if state is not None else record.state_bytes if record else None
    return Facts(
        grace_s=settings.grace_s,
        ranks=max(settings.local_ranks, record.ranks if record else 1),
        keep_last=settings.keep_last,
        run=record,
        state_bytes=state_bytes,
        memory=host.memory_tier(settings, folder.scratch_key if folder else ""),
        store=None if bucket is not None else host.store_place(settings.store),
        bucket=bucket,
        mirror=None if bucket is None else host.scratch_place(settings.mirror),
        stranger=stranger(),
        keeps_programs=settings.compile_cache_bytes is not None,
        has_cache_key=settings.cache_key_file is not None,
        cache_key_trouble=_key_trouble(settings.cache_key_file),
        scratch=host.scratch_place(settings.scratch),
        sources=tuple(ask(sources, around)),
        listens=settings.notice != "off",
        script=script,
        habits=() if script is None else _habits(script),
        **host.host_facts(environ),
    )


def _key_trouble(path: str | None) -> str:
    """Why the key of the compile cache cannot be used; "": it can, or there is none."""
    from holdfast.cache.seal import read_seal

    try:
        if path is not None:
            read_seal(path)
    except ConfigurationError as error:
        return str(error)
    return ""


def _habits(script: str) -> tuple[ScriptHabit, ...]:
    from holdfast.doctor.script import look
    from holdfast.journal.regular import read_regular

    try:
        source = read_regular(os.path.realpath(script), SCRIPT_LIMIT_BYTES)
    except OSError as error:
        raise ConfigurationError(f"the script {script} cannot be read: {error.strerror}") from None
    if len(source) > SCRIPT_LIMIT_BYTES:
        raise ConfigurationError(f"the script {script} has more than {SCRIPT_LIMIT_BYTES} bytes")
    try:
        return look(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigurationError(f"the script {script} is not valid Python: {error}") from None


def _bytes(text: str) -> int:
    match = SIZE.fullmatch(text.strip())
    nbytes = float(match[1]) * UNITS[match[2] or ""] if match else 0.0
    if not 1 <= nbytes < MOST_BYTES:
        raise ConfigurationError(f"--state {text}: write a size, such as 40GiB or 500MB")
    return int(nbytes)


def _show(findings: Sequence[Finding], checks: int) -> None:
    for one in findings:
        head = click.style(f"{one.severity:{INDENT}}", fg=STYLES[one.severity], bold=True)
        first, *rest = _wrapped(one.what, WIDTH)
        click.echo(head + first)
        for line in rest:
            click.echo(" " * INDENT + line)
        for word, text in (("why", one.why), ("fix", one.fix)):
            for number, line in enumerate(_wrapped(text, WIDTH - 5)):
                mark = click.style(f"{word}: ", dim=True) if number == 0 else " " * 5
                click.echo(" " * INDENT + mark + line)
        click.echo("")
    counts = {name: sum(one.severity == name for one in findings) for name in STYLES}
    summary = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counts.items() if n)
    click.echo(f"{checks} checks: {summary or 'no problem found'}")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width - INDENT, break_on_hyphens=False) or [""]
