"""`holdfast serve`: the runs of a store, live in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.door import say, say_link
from holdfast.cli.moments import window_ns
from holdfast.cli.places import store_option
from holdfast.cli.prices import price_of, price_option
from holdfast.config import run_store, scratch_folder, serve_token, summaries_folder
from holdfast.core.alerts import AlertPolicy
from holdfast.errors import EXIT_DONE, ConfigurationError, needs_extra
from holdfast.journal.store import RunStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp

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
    help="Viewers need the token in FILE, which only you may read.",
)
@click.option("--no-token", is_flag=True, help="All users of this machine may look.")
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="A proxy's address, which says who comes by TLS (X-Forwarded-Proto); may be repeated.",
)
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    help="A name under which browsers may reach it; may be repeated.",
)
@price_option
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
    no_token: bool,
    proxies: tuple[str, ...],
    allow_host: tuple[str, ...],
    checkpoint_age: str,
    price_per_chip_hour: str | None,
) -> None:
    """Show the runs of a store in a browser, live.

    Only this machine can connect, unless --host says otherwise: then a token is demanded, from
    --token-file or HOLDFAST_SERVE_TOKEN. Without one, a link is printed that lets one browser in,
    so that other users of this machine see nothing. It reads the store, and changes nothing.
    """
    from holdfast.serve.invitation import Invitation
    from holdfast.serve.server import link_of, listening, url_of
    from holdfast.serve.server import serve as serve_until_asked

    _needs_libraries()
    access, is_inviting = _access(host, token_file, no_token, proxies, allow_host)
    policy = AlertPolicy(checkpoint_ns=_age_ns(checkpoint_age))
    price = price_of(price_per_chip_hour)
    place = RunStore.at(run_store(store))
    is_folder = place.shown == str(place.root)  # and no bucket
    if is_folder and place.root.is_file():
        raise ConfigurationError(f"{place.root} is a file, and no store; name another --store")
    _warm()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # the rest has been said
    with listening(host, port) as sock:
        shown = store or place.shown
        number = sock.getsockname()[1]

        def invite(word: str) -> None:
            say_link("The link was opened; the next browser needs", link_of(sock, word))

        invitation = Invitation(invite) if is_inviting else None
        note = "; viewers need the token" if access.token and not is_inviting else ""
        if invitation is None:
            say(f"The runs of {shown} are at {url_of(sock)}{note}")
        else:
            say_link(f"The runs of {shown}, for one browser:", link_of(sock, invitation.word))
        if place.is_missing:
            say(f"! {place.why_empty}")
        say("Ctrl-C ends it")

        def make() -> tuple[ASGIApp, asyncio.Event]:
            from holdfast.cli.serve_look import Sights
            from holdfast.serve.app import Site
            from holdfast.serve.runs_look import RunsLook

            runs = RunsLook(
                place, cache=summaries_folder(), scratch=scratch_folder(), policy=policy
            )
            site = Site(
                place, shown, runs, Sights(store, price), policy, access, number, invitation
            )
            return site.app(), site.closing

        with contextlib.suppress(KeyboardInterrupt):
            serve_until_asked(make, sock, access.proxies)
    # Looks only read, and one may wait long for a store that is away: nobody waits for it.
    sys.stderr.flush()
    os._exit(EXIT_DONE)


def _access(
    host: str,
    token_file: str | None,
    no_token: bool,
    proxies: tuple[str, ...],
    allow_host: tuple[str, ...],
) -> tuple[Access, bool]:
    """Who may look, and whether by invitation.

    Raises ConfigurationError where others can connect, and there is no token.
    """
    from holdfast.serve.access import LOCAL_NAMES, Access, host_of
    from holdfast.serve.server import is_loopback

    if no_token and token_file is not None:
        raise ConfigurationError("--no-token and --token-file contradict each other; give one")
    token = None if no_token else _token(token_file)
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
    is_inviting = token is None and not no_token
    secret = secrets.token_urlsafe() if is_inviting else token  # only cookies are made of it
    return Access(frozenset(names), secret, frozenset(map(_address, proxies))), is_inviting


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ConfigurationError(f"--proxy {text!a}: give an address, such as 127.0.0.1") from None


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
