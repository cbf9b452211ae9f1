"""`holdfast serve`: the runs of a store, live in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.moments import window_ns
from holdfast.cli.places import store_option
from holdfast.config import run_store, scratch_folder, serve_token, summaries_folder
from holdfast.core.alerts import AlertPolicy
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.journal.objects import is_object_url
from holdfast.journal.store import RunFolder, RunStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from holdfast.journal.recorded import Recorded
    from holdfast.report.overview import Overview
    from holdfast.serve.access import Access

PORT = 8470
TOKEN_CHARS = 16
MAX_TOKEN_BYTES = 4096


@click.command()
@store_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="The port; 0 is any that is free.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Who looks must have the token in FILE, which nobody else may read.",
)
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    help="A name under which browsers may reach it; may be repeated.",
)
@click.option(
    "--checkpoint-age",
    metavar="TIME",
    default="1h",
    show_default=True,
    help="Alert when a run's newest checkpoint is older: 90s, 5min, 2h; off: never.",
)
def serve(
    store: str | None,
    host: str,
    port: int,
    token_file: str | None,
    allow_host: tuple[str, ...],
    checkpoint_age: str,
) -> None:
    """Show the runs of a store in a browser, live.

    Only this machine can connect, unless --host says otherwise: then a token is demanded, from
    --token-file or HOLDFAST_SERVE_TOKEN. It reads the store, and changes nothing.
    """
    from holdfast.serve.access import LOCAL_NAMES, Access, host_of
    from holdfast.serve.server import is_loopback, listening, url_of
    from holdfast.serve.server import serve as serve_until_asked

    _needs_libraries()
    token = _token(token_file)
    if token is None and not is_loopback(host):
        raise ConfigurationError(
            f"--host {host}: others can connect there, so a token is needed; name a file with one "
            "(--token-file), made for example by: python -c 'import secrets; "
            "print(secrets.token_urlsafe())'"
        )
    for name in allow_host:
        if host_of(name) is None:
            raise ConfigurationError(f"--allow-host {name!a}: give a host's name")
    names = {*LOCAL_NAMES, *(host_of(name) or "" for name in allow_host)}
    names |= {host.lower()} - {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    policy = AlertPolicy(checkpoint_ns=_age_ns(checkpoint_age))
    named = run_store(store)
    place = RunStore.at(named)
    access = Access(frozenset(names), token)
    _warm()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # the rest has been said
    with listening(host, port) as sock:
        shown = store or (named if is_object_url(named) else str(place.root))
        note = "; who looks needs the token" if token else ""
        click.echo(f"holdfast: the runs of {shown} are at {url_of(sock)}{note}", err=True)
        click.echo("holdfast: Ctrl-C ends it", err=True)
        number = sock.getsockname()[1]
        with contextlib.suppress(KeyboardInterrupt):
            serve_until_asked(lambda: _site(place, shown, access, policy, number), sock)


def _site(
    place: RunStore, shown: str, access: Access, policy: AlertPolicy, port: int
) -> tuple[ASGIApp, asyncio.Event]:
    from holdfast.serve.app import Site
    from holdfast.serve.runs_look import RunsLook

    look = RunsLook(place, cache=summaries_folder(), scratch=scratch_folder(), policy=policy)
    site = Site(place, shown, look, see, access, port)
    return site.app(), site.closing


def see(folder: RunFolder, recorded: Recorded) -> tuple[Overview, tuple[tuple[int, int], ...]]:
    """What a live page shows of a run; raises JournalError while nothing is recorded."""
    from holdfast.cli.report_page import ENOUGH, Source, look, newest_of
    from holdfast.report.findings import nearer
    from holdfast.report.of_run import findings_of
    from holdfast.report.overview import Gains
    from holdfast.report.run_page import saves_of

    now_ns = max(recorded.now_ns(), recorded.facts.requested_ns or 0)
    findings = nearer(findings_of(folder, recorded, recorded.account(now_ns)), Path.cwd())
    facts = recorded.facts
    source = Source(recorded.ledger, now_ns, facts.ranks(), newest_of(facts))
    view = look(findings, source, None)
    if len(findings.account.disruptions) >= ENOUGH:
        words = f"holdfast plan --from-run {folder.name} says what would raise it most."
        view = replace(view, gains=Gains((), words))
    return view, saves_of(findings.checkpoints)


def _warm() -> None:
    """Import now what the first answer needs."""
    import holdfast.runs.reading
    from holdfast.report.page import environment

    assert holdfast.runs.reading  # noqa: S101 - imported for what it loads
    environment().get_template("runs.html")


def _age_ns(text: str) -> int | None:
    if text == "off":
        return None
    try:
        return window_ns(text)
    except ConfigurationError:
        raise ConfigurationError(f"--checkpoint-age {text}: give 90s, 5min, 2h or off") from None


def _token(path: str | None) -> str | None:
    """The token; raises ConfigurationError for one that others can read, or guess."""
    token, source = serve_token(), "HOLDFAST_SERVE_TOKEN"
    if path is not None:
        source = f"--token-file {path}"
        try:
            with Path(path).open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                token = file.read(MAX_TOKEN_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            raise ConfigurationError(f"{source}: it cannot be read ({error.strerror})") from None
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise ConfigurationError(f"{source}: others may read it; chmod 600 {path}")
    if token is None:
        return None
    if len(token) < TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise ConfigurationError(
            f"{source}: the token must be {TOKEN_CHARS} or more printable ASCII characters"
        )
    return token


def _needs_libraries() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigurationError(needs_extra("holdfast serve needs", "serve")) from None
