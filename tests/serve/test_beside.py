"""What is worked out beside the looks: seldom, kept, and never waited for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from holdfast.serve.beside import EVERY_S, MOST, SHARE, Beside


class Waiting(Executor):
    """Works nothing out before it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[Any], Any], Any]] = []

    def submit(self, work: Callable[[Any], Any], of: Any, /) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        self.waiting.append((future, work, of))
        return future

    def work(self) -> None:
        for future, work, of in self.waiting:
            try:
                future.set_result(work(of))
            except ValueError as error:
                future.set_exception(error)
        self.waiting.clear()


class Story:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.worker = Waiting()
        self.beside: Beside[str, str] = Beside(self.worker, lambda: self.now_s)

    def ask(self, about: int, key: str = "a") -> tuple[str | None, bool]:
        return self.beside.get(key, about, lambda: key, lambda taken: f"{taken} of {about}")


def test_nobody_waits_and_the_answer_is_kept() -> None:
    story = Story()
    assert story.ask(3) == (None, False)
    assert story.worker.waiting == []  # the page that opens is made first
    assert story.ask(3) == (None, False)
    assert story.ask(3) == (None, False)
    assert len(story.worker.waiting) == 1
    story.worker.work()
    assert story.ask(3) == ("a of 3", True)
    assert story.ask(3, "b") == story.ask(3, "b") == (None, False)
    assert story.ask(3) == ("a of 3", True)
    assert len(story.worker.waiting) == 1  # b's


def test_it_is_worked_out_again_seldom_and_the_old_answer_stands_meanwhile() -> None:
    story = Story()
    story.ask(3)
    story.ask(3)
    story.now_s = 10.0
    story.worker.work()
    assert story.ask(3) == ("a of 3", True)
    story.now_s += 10.0 / SHARE - 1
    assert story.ask(4) == ("a of 3", False)
    assert story.worker.waiting == []
    story.now_s += 1
    assert story.ask(5) == ("a of 3", False)
    assert story.ask(6) == ("a of 3", False)
    story.worker.work()
    assert story.ask(6) == ("a of 5", False)
    assert story.worker.waiting == []
    story.now_s += EVERY_S
    story.ask(6)
    story.worker.work()
    assert story.ask(6) == ("a of 6", True)


def test_what_fails_is_not_tried_at_every_look() -> None:
    story = Story()

    def fail(_: str) -> str:
        raise ValueError("no")

    story.beside.get("a", 1, str, fail)
    story.beside.get("a", 1, str, fail)
    story.worker.work()
    with pytest.raises(ValueError, match="no"):
        story.beside.get("a", 1, str, fail)
    assert story.beside.get("a", 1, str, fail) == (None, True)
    assert story.worker.waiting == []


def test_the_oldest_answers_are_forgotten() -> None:
    story = Story()
    for number in range(MOST + 1):
        story.ask(1, str(number))
        story.ask(1, str(number))
    story.worker.work()
    assert story.ask(1, "1") == ("1 of 1", True)
    assert story.ask(1, "0") == (None, False)
