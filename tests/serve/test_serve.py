"""`holdfast serve`: pages, events, and what it refuses; over HTTP where that makes a difference."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from asked import asking
from made_runs import Made, make_run

from holdfast.cli.main import main
from holdfast.journal.store import RunStore

S = 1_000_000_000
TOKEN = "kept-in-a-file-0123456789"
EVIL = "<script>alert(1)</script>"
Begin = Callable[..., Any]


def fill(place: Path) -> RunStore:
    """Runs of all sorts, and what cannot be read as one."""
    store = RunStore(place)
    # Rows say how long ago, in whole days: not one that turns while tests look.
    then_ns = time.time_ns() - 84 * 3600 * S
    make_run(store, "good", [Made(30), Made(20)], requested_ns=then_ns)
    make_run(store, "bad", [Made(30, cause=EVIL), Made(20, cause="failed")],
             requested_ns=then_ns - 2000 * S)  # fmt: skip
    store.create("new")
    make_run(store, "newer", [Made(3)], requested_ns=then_ns + 2000 * S)
    newer = place / "newer" / "run.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "format": 99}))
    (place / "half").mkdir()
    (place / "half" / "run.json").write_text('{"format": 1, "na')
    for name in (EVIL.replace("/", ""), "\x1b[31mred"):
        (place / name).mkdir()
        (place / name / "run.json").write_text("{}")
    return store


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, serve_store: Begin) -> Any:
    """By a process, over HTTP."""
    place = tmp_path_factory.mktemp("store")
    fill(place)
    return serve_store(place)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Any]:
    """Without either."""
    place = tmp_path / "store"
    place.mkdir()
    store = fill(place)
    with asking(place, tmp_path / "mirror") as found:
        found.store = store
        yield found


def all_read(asked: Any) -> Any:
    """The list, if all runs are in it: a look that takes long leaves some for the next one."""
    answer = asked.get("/", Accept="text/html")
    runs = set(re.findall(r'data-run="([^"]*)"', answer.text))
    assert runs <= {"good", "bad", "new"}
    return answer if len(runs) == 3 else None


def test_the_list_has_every_run_and_what_cannot_be_read(
    asked: Any, eventually: Callable[..., Any]
) -> None:
    answer = eventually(lambda: all_read(asked))
    assert answer.status == 200
    assert "newer Holdfast" in answer.text
    assert "half" in answer.text
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text


def test_a_login_that_is_broken_off_is_no_error(asked: Any) -> None:
    """It is broken off where others need the place: that would fill the terminal."""
    asked._ask("/login", "POST", {}).close()


def test_a_runs_page_is_the_reports(asked: Any) -> None:
    page = asked.get("/run/bad", Accept="text/html").text
    assert 'id="goodput"' in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    waits = asked.get("/run/new", Accept="text/html").text
    assert "nothing was recorded yet" in waits


@pytest.mark.contract("page: no path leaves the store")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/run/none", 404), ("/run/newer", 422), ("/run/half", 422), ("/nothing", 404),
        ("/run/..", 422), ("/run/../../etc/passwd", 404), ("/run/..%2f..%2fetc%2fpasswd", 404),
        ("/run/%2e%2e", 422), ("/run/good%00", 422), ("/run/" + quote(EVIL), 404),
        ("/run/%1b%5b31mred", 422), ("//evil.example/run", 404), ("/run/good/journal", 404),
        ("/run/" + "x" * 3000, 422), ("/run/none/live", 404), ("/run/%ff%fe", 422),
    ],
)  # fmt: skip
def test_no_path_leaves_the_store(served: Any, path: str, status: int) -> None:
    answer = served.get(path, Accept="text/html")
    assert answer.status == status
    assert "root:" not in answer.text
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text


@pytest.mark.contract("page: its headers")
def test_every_answer_has_its_headers(served: Any) -> None:
    for path in ("/", "/run/good", "/nothing"):
        headers = served.get(path, Accept="text/html").headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src ")
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.contract("page: strangers are refused")
def test_strangers_are_refused(served: Any) -> None:
    assert served.get("/", Host="evil.example").status == 421
    assert served.get("/", Origin="http://evil.example").status == 403
    assert served.get("/live", Sec_Fetch_Site="cross-site").status == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert served.get("/run/good", method).status == 405
    assert served.get("/", "HEAD").text == ""


def test_the_list_is_sorted_and_searched_by_its_address(
    asked: Any, eventually: Callable[..., Any]
) -> None:
    eventually(lambda: all_read(asked))
    page = asked.get("/?by=run&down=1&q=%3Cb%3E").text
    assert 'aria-sort="descending"' in page
    assert "none that match “&lt;b&gt;”" in page
    assert "<b>" not in page.split('id="pages"')[1].split("</div>")[0]
    page = asked.get("/?by=run&down=1").text
    places = [page.index(f'data-run="{name}"') for name in ("new", "good", "bad")]
    assert places == sorted(places)
    events = asked.events("/live?q=bad")
    told = events.until(lambda data: "order" in data["parts"])["parts"]
    assert json.loads(told["order"]) == ["bad"]
    events.close()


def test_the_list_is_live(asked: Any) -> None:
    events = asked.events("/live")
    wanted = {"row:good", "row:bad", "row:new", "counts", "order"}
    events.until(lambda data: wanted.difference_update(data["parts"]) or not wanted)
    make_run(asked.store, "late", [Made(5)], requested_ns=time.time_ns() - 100 * S)
    later = events.until(lambda data: "row:late" in data["parts"])["parts"]
    assert "late" in json.loads(later["order"])
    assert "row:good" not in later
    shutil.rmtree(asked.store.root / "late")
    gone = events.until(lambda data: "row:late" in data["gone"])
    assert "late" not in json.loads(gone["parts"]["order"])
    mark = events.mark
    events.close()
    make_run(asked.store, "again", [Made(5)], requested_ns=time.time_ns() - 100 * S)
    events = asked.events(f"/live?mark={mark}")
    found = events.until(lambda data: "row:again" in data["parts"])["parts"]
    assert "row:good" not in found
    events.close()
    shutil.rmtree(asked.store.root / "again")


def test_a_run_that_is_deleted_while_one_looks_says_so(asked: Any) -> None:
    make_run(asked.store, "gone", [Made(5)], requested_ns=time.time_ns() - 900 * S)
    events = asked.events("/run/gone/live")
    assert {"head", "course", "goodput"} <= set(events.next()["parts"])
    shutil.rmtree(asked.store.root / "gone")
    events.until(lambda data: "no run is named" in data["parts"].get("trouble", ""))
    make_run(asked.store, "gone", [Made(9)], requested_ns=time.time_ns() - 900 * S)
    shown = {"trouble": "?", "goodput": ""}

    def is_back(data: Any) -> bool:  # it may be looked at while it is written
        shown.update(data["parts"])
        return shown["trouble"] == "" and "9 steps kept" in shown["goodput"]

    events.until(is_back)
    events.close()
    shutil.rmtree(asked.store.root / "gone")


@pytest.mark.contract("page: served")
def test_a_token_is_exchanged_for_a_cookie(tmp_path: Path, serve_store: Begin) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    (tmp_path / "store").mkdir()
    served = serve_store(tmp_path / "store", "--token-file", file)
    assert served.get("/live").status == 401
    answer = served.get("/run/x", Accept="text/html")
    assert (answer.status, answer.headers["location"]) == (303, "/login?to=/run/x")
    assert "Token" in served.get("/login").text
    place = served.get("/compare?a=x%20y&b=z", Accept="text/html").headers["location"]
    asked_for = "/compare?a=x%20y&amp;b=z"
    assert f'name="to" value="{asked_for}"' in served.get(place).text
    assert served.get("/", Authorization=f"Bearer {TOKEN}").status == 200
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert served.get("/login", "POST", "token=wrong", **form).status == 403
    assert (
        served.get("/login", "POST", f"token={TOKEN}", Origin="http://evil.example").status == 403
    )
    assert served.get("/login", "POST", "x" * 20_000, **form).status == 413
    body = urlencode({"token": TOKEN, "to": "/compare?a=x%20y&b=z"})
    answer = served.get("/login", "POST", body, **form)
    assert answer.headers["location"] == "/compare?a=x%20y&b=z"
    body = urlencode({"token": TOKEN, "to": "//evil.example/?a=b"})
    assert served.get("/login", "POST", body, **form).headers["location"] == "/"
    answer = served.get("/login", "POST", f"token={TOKEN}", **form)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert served.get("/", Cookie=cookie.partition(";")[0]).status == 200
    for to in ("//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb: c"):
        answer = served.get(f"/login?token={TOKEN}&to={quote(to)}")
        assert answer.status == 303
        assert answer.headers["location"] in ("/", "/a%0D%0Ab%3A%20c"), to
    answer = served.get(f"/login?token={TOKEN}&to=/run/x")
    assert answer.headers["location"] == "/run/x"
    assert served.end() == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--host", "0.0.0.0"), "a token is needed"),
        (("--token-file", "none"), "cannot be read"),
        (("--token-file", "open"), "chmod 600"),
        (("--token-file", "short"), "16 or more"),
        (("--allow-host", "a/b"), "give a host"),
        (("--store", "good"), "is a file, and no store"),
        (("--host", "203.0.113.7", "--token-file", "good"), "an address of this host"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("open", TOKEN, 0o644),
        ("short", "abc", 0o600),
        ("good", TOKEN, 0o600),
    ):
        Path(name).write_text(text)
        Path(name).chmod(mode)
    with pytest.raises(SystemExit) as exit_:
        main(["serve", "--store", str(tmp_path / "store"), "--port", "0", *flags])
    assert exit_.value.code == 78
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_stream_is_asked_for_its_head_alone(asked: Any) -> None:
    """A page asks so why it is refused; nobody watches then."""
    for path in ("/live", "/run/good/live", "/compare/live?a=good&b=bad"):
        answer = asked.get(path, "HEAD")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.text == ""


def test_two_runs_side_by_side(asked: Any) -> None:
    page = asked.get("/compare?a=good&b=bad", Accept="text/html").text
    numbers = re.search(r"steps kept</th><td>(\d+)</td><td>(\d+)</td>", page)
    assert numbers is not None
    assert numbers.groups() == ("50", "50")
    assert '<td class="better">' in page
    assert "<script>alert" not in page
    events = asked.events("/compare/live?a=good&b=bad")
    assert set(events.next()["parts"]) == {"compared", "trouble"}
    events.close()
    for query in ("a=good", "a=good&b=none", "a=good&b=../bad", ""):
        assert asked.get(f"/compare?{query}", Accept="text/html").status == 404, query
