"""An attempt of ranks that nobody supervises begins once all have read what it starts from."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.events import Resume
from holdfast.session.proposals import Proposals

SET = Resume("0000-000000000004", 4, 0)


@dataclass
class Told:
    refused: list[str] = field(default_factory=list)
    created: list[Resume] = field(default_factory=list)

    def proposals(self, ranks: int) -> Proposals:
        return Proposals(ranks, self.refused.append)

    def propose(self, to: Proposals, resume: Resume) -> int:
        to.propose(resume, lambda: self.created.append(resume))
        return to.newest.number


def test_the_last_of_them_puts_it_on_record() -> None:
    told = Told()
    made = told.proposals(3)
    number = told.propose(made, SET)
    made.answer(2, number, None)
    made.answer(2, number, None)  # a register is read again
    made.answer(0, number, None)
    assert (told.created, made.unread) == ([], (1,))
    made.answer(1, number, None)
    made.answer(1, number, None)
    assert told.created == [SET]


def test_one_that_cannot_read_it_is_enough() -> None:
    told = Told()
    made = told.proposals(2)
    first = told.propose(made, SET)
    made.answer(1, first, "rank 1: a flipped bit")
    made.answer(0, first, None)
    made.answer(1, first, "rank 1: a flipped bit")
    assert (told.created, told.refused) == ([], ["rank 1: a flipped bit"])
    assert made.why == "rank 1: a flipped bit"
    second = told.propose(made, Resume(None, 0, None))
    made.answer(0, first, None)  # late: it says nothing of the second
    made.answer(1, second, None)
    assert made.unread == (0,)
    made.answer(0, second, None)
    assert told.created == [Resume(None, 0, None)]
