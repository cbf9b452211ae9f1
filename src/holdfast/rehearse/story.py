"""What came of a rehearsal: its verdict, and the sentences that tell it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.durations import in_words
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN
from holdfast.rehearse.tale import Tale


class Rehearsed(StrEnum):
    """What is rehearsed."""

    MAINTENANCE = "maintenance"
    PREEMPTION = "preemption"
    KILL = "kill"
    HANG = "hang"

    @property
    def is_announced(self) -> bool:
        """Whether a source of notices tells of it."""
        return self in (Rehearsed.MAINTENANCE, Rehearsed.PREEMPTION)


@dataclass(frozen=True, slots=True)
class RehearsalStory:
    """`done_ns`: when it was done; None: the command ended before. `at_step`: how far it was then.

    `exit_code`: of the supervisor that was warned; None: it was not the one to leave.
    `is_taken`: it had not left by the deadline, and was ended as the host would have been.
    `resumed_step`: what the next attempt began after; None: none did. `new_steps`: that it made.
    `lost_steps`: None: nothing is known of them.
    """

    what: Rehearsed
    done_ns: int | None
    tale: Tale
    at_step: int = 0
    exit_code: int | None = None
    is_taken: bool = False
    resumed_step: int | None = None
    new_steps: int = 0
    lost_steps: int | None = None

    @property
    def known_ns(self) -> int | None:
        """When the run knew of it; None: it never did."""
        return self.tale.heard_ns if self.what.is_announced else self.tale.noticed_ns


def verdict(story: RehearsalStory) -> tuple[bool, str]:
    """Whether all is well, and why."""
    tale, lost = story.tale, story.lost_steps
    if story.done_ns is None and story.exit_code not in (None, EXIT_DONE):
        code = story.exit_code
        return False, f"the command failed with exit code {code} before anything was done to it"
    if story.done_ns is None:
        return False, "the command ended before anything was done to it: try a smaller --after"
    if not story.at_step:
        return False, "it made no step that Holdfast could see, so there was nothing to save"
    if story.exit_code == EXIT_DONE:
        return True, "it was done before it had to leave: train for longer to see more"
    if story.known_ns is None:
        return False, "it was not noticed"
    if story.what.is_announced and story.exit_code is None and not story.is_taken:
        why = "the notice was withdrawn" if tale.is_withdrawn else "nothing dated ends the run"
        return True, f"{why}, and training went on"
    if story.exit_code not in (None, EXIT_SAVED_START_ME_AGAIN):
        return False, f"it failed by itself, with exit code {story.exit_code}"
    if story.resumed_step is None or not story.new_steps:
        return False, "it did not go on afterwards"
    if not story.what.is_announced:
        return True, "it went on by itself"
    if not lost:
        return True, "no step was lost"
    if tale.leeway_ns is not None and 0 < tale.leeway_ns < tale.need_ns:
        return True, f"{_steps(lost)} lost: the deadline left less time than a save needs"
    return False, f"{_steps(lost)} lost, though the deadline allowed a save"


def lines(story: RehearsalStory) -> list[str]:
    """The story in its order, a sentence a line."""
    tale, done_ns = story.tale, story.done_ns
    sentences = []
    if done_ns is not None:
        sentences.append(f"{story.what} at step {story.at_step}")
    if story.known_ns is not None and done_ns is not None:
        verb = "notice heard" if story.what.is_announced else "noticed"
        sentences.append(f"{verb} after {in_words(story.known_ns - done_ns)}")
    if tale.leeway_ns is not None:
        need = f"a save needs {in_words(tale.need_ns)}" if tale.need_ns else "no save measured yet"
        sentences.append(f"deadline {in_words(tale.leeway_ns)} after that; {need}")
    if tale.is_withdrawn:
        sentences.append("withdrawn again")
    if tale.agreed_step is not None and tale.ordered_ns is not None:
        sentences.append(f"all ranks agreed on step {tale.agreed_step}")
        sentences.append(_saved(tale, tale.ordered_ns))
    if story.is_taken:
        sentences.append("still there at the deadline: killed, as the host would have been")
    elif story.exit_code is not None:
        again = " (start me again)" if story.exit_code == EXIT_SAVED_START_ME_AGAIN else ""
        sentences.append(f"left with exit code {story.exit_code}{again}")
    if story.resumed_step is not None:
        after = f"from step {story.resumed_step}" if story.resumed_step else "from the beginning"
        sentences.append(f"resumed {after}")
    if story.lost_steps is not None:
        sentences.append(f"{_steps(story.lost_steps)} lost")
    return sentences


def _saved(tale: Tale, ordered_ns: int) -> str:
    if tale.saved_ns is None:
        return "that step was not saved"
    left = ""
    if tale.told_deadline_ns is not None:
        left_ns = tale.told_deadline_ns - tale.saved_ns
        left = f", {in_words(abs(left_ns))} {'before' if left_ns >= 0 else 'after'} the deadline"
    return f"saved {in_words(tale.saved_ns - ordered_ns)} after the order{left}"


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}" if count else "no step"
