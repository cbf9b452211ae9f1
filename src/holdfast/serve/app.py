"""The application: which address shows what. Everything is read; nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlencode

from holdfast.core.alerts import AlertPolicy
from holdfast.errors import HoldfastError, UnknownRun
from holdfast.journal.remote import remote_of
from holdfast.journal.store import RunStore
from holdfast.serve.access import LOGIN, SESSION_S, Access
from holdfast.serve.guard import AccessGuard, cookie_name, is_encrypted
from holdfast.serve.invitation import Invitation
from holdfast.serve.pages import (
    HtmlPage,
    login_page,
    pair_page,
    run_page,
    runs_page,
    waiting_page,
    words_page,
)
from holdfast.serve.pair_look import PairLook
from holdfast.serve.run_look import WAITING, RunLook, See
from holdfast.serve.runs_look import RunsLook
from holdfast.serve.shown import Shown
from holdfast.serve.stream import HEADERS, EventStream
from holdfast.serve.topic import AFAR_EVERY_S, EVERY_S, TROUBLE, Parts, Topic

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

THREADS = 4
MOST_RUNS = 32  # kept open at once
MOST_PAIRS = 8
MOST_LISTS = 16  # pages of the list, in one order or another
MOST_VIEWERS = 256
MAX_FORM_BYTES = 8192
WRONG_TOKEN_S = 0.5


@dataclass(slots=True)
class _Watched:
    look: RunLook
    topic: Topic


class Site:
    """The pages of one store. All but looks belong to the event loop's thread."""

    def __init__(
        self,
        store: RunStore,
        place: str,
        runs: RunsLook,
        see: See,
        policy: AlertPolicy,
        access: Access,
        port: int,
        invitation: Invitation | None = None,
    ) -> None:
        """`place`: the store as its user named it; `port`: what the cookie is named by."""
        self._store = store
        self._place = place
        self._see = see
        self._policy = policy
        self._access = access
        self._invitation = invitation
        self._port = port
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="look")
        self._every_s = AFAR_EVERY_S if remote_of(store.root) else EVERY_S
        self._runs = runs
        self._lists: OrderedDict[Shown, Topic] = OrderedDict()
        self._watched: OrderedDict[str, _Watched] = OrderedDict()
        self._pairs: OrderedDict[tuple[str, str], Topic] = OrderedDict()
        self.closing = asyncio.Event()

    def app(self) -> ASGIApp:
        """With everything that stands before it."""
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [
            Route("/", self._list),
            Route("/live", self._list_live),
            Route("/run/{name}", self._run),
            Route("/run/{name}/live", self._run_live),
            Route("/compare", self._pair),
            Route("/compare/live", self._pair_live),
            Route(LOGIN, self._login, methods=["GET"]),
            Route(LOGIN, self._log_in, methods=["POST"]),
            Route("/{rest:path}", self._nothing),
        ]
        return AccessGuard(
            Starlette(routes=routes, lifespan=self._lifespan), self._access, self._port
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: object) -> AsyncIterator[None]:
        del app
        yield
        self.closing.set()
        for topic in self._topics():
            topic.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- Pages --------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        shown, topic = self._watch_list(request)
        parts = await topic.current()
        if "order" not in parts:  # the store cannot be read
            return _sent(words_page("The store cannot be read", parts[TROUBLE], 503))
        return _sent(await self._made(lambda: runs_page(self._place, parts, topic.mark, shown)))

    async def _run(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            one = await self._watch(name)
        except UnknownRun as error:
            return _sent(words_page("There is no such run", str(error), 404))
        except HoldfastError as error:
            return _sent(words_page("This run cannot be read", str(error), 422))
        parts = await one.topic.current()
        live = f"/run/{quote(name)}/live"
        if WAITING in parts:
            words, mark = parts[WAITING], one.topic.mark
            return _sent(await self._made(lambda: waiting_page(name, words, mark, live)))
        if one.look.view is None:
            return _sent(words_page("This run cannot be read", parts.get(TROUBLE, ""), 422))
        return _sent(await self._made(lambda: run_page(one.look, parts, one.topic.mark, live)))

    async def _pair(self, request: Request) -> Response:
        try:
            names, topic = await self._watch_pair(request)
        except HoldfastError as error:
            return _sent(words_page("These cannot be compared", str(error), 404))
        parts = await topic.current()
        url = f"/compare/live?{urlencode({'a': names[0], 'b': names[1]})}"
        return _sent(await self._made(lambda: pair_page(names, parts, topic.mark, url)))

    async def _nothing(self, request: Request) -> Response:
        del request
        return _sent(words_page("There is nothing here", "The list has all runs.", 404))

    async def _made(self, make: Callable[[], HtmlPage]) -> HtmlPage:
        return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    # --- Live ---------------------------------------------------------------------------------

    async def _list_live(self, request: Request) -> object:
        return self._stream(self._watch_list(request)[1], request)

    async def _run_live(self, request: Request) -> object:
        try:
            one = await self._watch(request.path_params["name"])
        except HoldfastError as error:
            return _sent(words_page("There is no such run", str(error), 404))
        return self._stream(one.topic, request)

    async def _pair_live(self, request: Request) -> object:
        try:
            _, topic = await self._watch_pair(request)
        except HoldfastError as error:
            return _sent(words_page("These cannot be compared", str(error), 404))
        return self._stream(topic, request)

    def _topic(self, look: Callable[[], Parts]) -> Topic:
        return Topic(look, self._threads, self._every_s)

    def _topics(self) -> list[Topic]:
        lists, pairs = self._lists.values(), self._pairs.values()
        return [*lists, *(one.topic for one in self._watched.values()), *pairs]

    def _stream(self, topic: Topic, request: Request) -> object:
        """The topic from where this viewer is."""
        from starlette.responses import Response

        if sum(one.viewers for one in self._topics()) >= MOST_VIEWERS:
            return _sent(words_page("Too many look at once", "Try again in a while.", 503))
        if request.method == "HEAD":  # whether there is one, and who may have it
            return Response(headers={name.decode(): value.decode() for name, value in HEADERS})
        mark = request.headers.get("last-event-id") or request.query_params.get("mark")
        return EventStream(topic, mark, self.closing)

    def _watch_list(self, request: Request) -> tuple[Shown, Topic]:
        """The page of the list that an address asks for."""
        shown = Shown.of(request.query_params)
        if shown not in self._lists:
            self._lists[shown] = self._topic(partial(self._runs, shown))
            idle = [one for one, t in self._lists.items() if not t.viewers and one != shown]
            for one in idle[: max(0, len(self._lists) - MOST_LISTS)]:
                self._lists.pop(one).stop()
        self._lists.move_to_end(shown)
        return shown, self._lists[shown]

    async def _watch(self, name: str) -> _Watched:
        """A run that the store has; its folder's name is the listing's, not the address's."""
        loop = asyncio.get_running_loop()
        if name not in self._watched:
            await loop.run_in_executor(self._threads, self._store.get, name)
            look = RunLook(self._store, name, self._see, self._policy)
            self._watched.setdefault(name, _Watched(look, self._topic(look)))
            self._forget(name)
        self._watched.move_to_end(name)
        return self._watched[name]

    async def _watch_pair(self, request: Request) -> tuple[tuple[str, str], Topic]:
        """Two runs that the store has."""
        names = request.query_params.get("a", ""), request.query_params.get("b", "")
        if names not in self._pairs:
            loop = asyncio.get_running_loop()
            for name in names:
                await loop.run_in_executor(self._threads, self._store.get, name)
            look = PairLook(self._store, *names, self._see)
            self._pairs.setdefault(names, self._topic(look))
            idle = [p for p, topic in self._pairs.items() if not topic.viewers and p != names]
            for pair in idle[: max(0, len(self._pairs) - MOST_PAIRS)]:
                self._pairs.pop(pair).stop()
        self._pairs.move_to_end(names)
        return names, self._pairs[names]

    def _forget(self, new: str) -> None:
        """Close the runs that nobody has asked for the longest; not the one that is new."""
        idle = [n for n, one in self._watched.items() if not one.topic.viewers and n != new]
        for name in idle[: max(0, len(self._watched) - MOST_RUNS)]:
            self._watched.pop(name).topic.stop()

    # --- The token ----------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        """The form; a token in the address is exchanged for the cookie, and is gone from there."""
        given, to = request.query_params.get("token"), request.query_params.get("to")
        if given is None:
            return _sent(login_page("This server needs its token.", 200, _own_path(to)))
        return await self._exchange(request, given, to)

    async def _log_in(self, request: Request) -> Response:
        from starlette.requests import ClientDisconnect

        body = b""
        try:
            async for chunk in request.stream():  # in what time, `crowd` says
                body += chunk
                if len(body) > MAX_FORM_BYTES:
                    return _sent(login_page("That is no token.", 413))
        except ClientDisconnect:
            return _sent(login_page("That did not come.", 400))  # nobody reads it
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
        given, to = (fields.get(name, [""])[0] for name in ("token", "to"))
        return await self._exchange(request, given, to)

    def _is_let_in(self, given: str) -> bool:
        if self._access.token is None or self._access.is_token(given):
            return True
        return self._invitation is not None and self._invitation.take(given)

    async def _exchange(self, request: Request, given: str, to: str | None) -> Response:
        from starlette.responses import RedirectResponse

        if request.method == "HEAD" or not self._is_let_in(given.strip()):
            await asyncio.sleep(WRONG_TOKEN_S)
            return _sent(login_page("That is not this server's token.", 403, _own_path(to)))
        answer = RedirectResponse(_own_path(to), status_code=303)
        if self._access.token is not None:
            answer.set_cookie(
                cookie_name(self._port),
                self._access.session(time.time()),
                max_age=SESSION_S,
                httponly=True,
                samesite="strict",
                secure=is_encrypted(request.scope, self._access.proxies),
            )
        return answer


def _own_path(to: str | None) -> str:
    """A path of this server's; anything that a browser could take for another's is the list."""
    if to is None or not to.startswith("/") or not to.isascii() or not to.isprintable():
        return "/"
    return quote(to, safe="/%?&=+") if to[1:2] not in ("/", "\\") else "/"


def _sent(page: HtmlPage) -> Response:
    from starlette.responses import HTMLResponse

    policy = f"{page.policy}; frame-ancestors 'none'"
    headers = {"content-security-policy": policy}
    return HTMLResponse(page.html, status_code=page.status, headers=headers)
