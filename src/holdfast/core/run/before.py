"""Between two attempts of a run: which set the next one starts from, when, and its launch."""

from __future__ import annotations

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.run import restart, rollback
from holdfast.core.run.course import RunState
from holdfast.core.run.ending import EndEvidence
from holdfast.core.run.over import over_in_a_gap
from holdfast.core.run.state import State, Timer
from holdfast.core.save.choose import NoChoice
from holdfast.core.save.choose import choose as choose_set

TOO_LATE = "the deadline came, and the script reached no boundary"


def on_opened(run: RunState, event: ev.Opened) -> list[act.Action]:
    """Take over what is known of the run, and ask the store what to restore."""
    run.next_attempt = event.next_attempt
    run.high_water = event.high_water
    run.failures = tuple(
        restart.Failure(
            one.attempt,
            exits.ExitCause.USER_ERROR,
            one.signature,
            completed_before=0,
            completed_after=0,
            at_ns=one.at_ns,
            is_from_script=True,
            is_earlier=True,
        )
        for one in event.own_failures
    )
    run.failures_before = event.failures_seen - len(run.failures)
    run.losses_before = event.memory_lost
    run.saving.failures.observed_ns = event.observed_ns
    run.rollbacks.add(event.wishes)
    running = event.running
    if running is not None and _may_go_on(run, running):
        return _adopt(run, running)
    return _choose_first(run, event.at_ns)


def _choose_first(run: RunState, at_ns: int) -> list[act.Action]:
    """Nothing runs, and nothing was launched by this controller."""
    if run.stop and run.policy.is_supervised:
        return over_in_a_gap(run, at_ns, *run.stopping.where_nothing_ran)
    return choose(run, at_ns)


# --- what runs already ----------------------------------------------------------------------


def _may_go_on(run: RunState, running: ev.RunningAttempt) -> bool:
    """Whether it has the ranks that this run is to have, on all hosts or, if elastic, on some."""
    policy = run.policy
    is_of_run = all(host < policy.hosts for host in running.hosts)
    if not is_of_run or running.ranks != policy.place(running.hosts).ranks:
        return False
    return policy.is_elastic or len(running.hosts) in (0, policy.hosts)


def _adopt(run: RunState, running: ev.RunningAttempt) -> list[act.Action]:
    """Ask its hosts; until it is certain that all are there it is as one being launched."""
    run.state = State.LAUNCHING
    run.attempt, run.resume = running.attempt, running.resume
    run.placement = run.policy.place(running.hosts)
    said = f"Attempt {run.attempt} was begun by an earlier controller: asking its hosts"
    by_ns = run.stopping.deadline_ns
    return [
        *([] if by_ns is None else [act.SetTimer(Timer.DEADLINE, by_ns)]),
        act.Say("info", said),
        act.Adopt(run.attempt, run.next_attempt, run.resume, run.placement),
    ]


def on_adopted(run: RunState, event: ev.Adopted) -> list[act.Action]:
    """It goes on, and so does the save that was under way."""
    run.is_on_record = run.is_adopted = True
    run.next_attempt += 1
    durable_step = max(run.resume.durable_step, event.committed_step)
    run.high_water = run.high_water_at_launch = max(run.high_water, durable_step)
    run.saving.begin(
        event.at_ns,
        durable_step,
        attempt=run.attempt,
        resume=run.resume,
        ranks=run.placement.ranks,
    )
    run.saving.failures.known(run.failures_seen, run.losses_seen)
    said = act.Say("info", f"Attempt {run.attempt} goes on: all its hosts are there")
    memory = event.memory
    ordered = run.carry_out(run.saving.adopt(event.at_ns, event.order, event.verdict, memory))
    return [said, act.PublishCommitted(durable_step), *ordered]


def on_not_adopted(run: RunState, event: ev.NotAdopted) -> list[act.Action]:
    """What is left of it ends, and the next attempt begins; that is a failure like others."""
    run.failures_before += 1
    words = f"Attempt {event.attempt} cannot go on, and is ended: {event.words}"
    return [act.Say("warning", words), *_choose_first(run, event.at_ns)]


# --- what to start from ---------------------------------------------------------------------


def choose(run: RunState, at_ns: int) -> list[act.Action]:
    """Ask the store; not before what the last attempt has copied into memory is sealed."""
    run.state = State.CHOOSING
    run.choice_waits = run.saving.tier.is_sealing and not run.rollbacks.standing
    if run.choice_waits:
        return [act.SetTimer(Timer.SEAL, at_ns + run.saving.tier.seal_limit_ns)]
    wish, why = run.rollbacks.take_up()
    if wish is None:
        return [act.Choose()]
    which = f" ({why})" if why else ""
    return [act.Say("warning", rollback.wish_words(wish) + which), act.Choose(wish)]


def on_seal_timer(run: RunState, event: ev.TimerFired) -> list[act.Action]:
    """What is being sealed has kept the next attempt waiting long enough."""
    if event.timer == Timer.DEADLINE:
        return on_deadline_timer(run, event)
    if event.timer != Timer.SEAL or not run.choice_waits:
        return []
    run.saving.tier.give_up_seals()
    return choose(run, event.at_ns)


def on_choice_failed(run: RunState, event: ev.ChoiceFailed) -> list[act.Action]:
    """A store that is away is waited for, and not for ever."""
    again_ns, why = run.absence.again(event.at_ns) if event.is_away else (None, "")
    words = f"{event.words}; {why}" if why else event.words
    if again_ns is None:
        return over_in_a_gap(run, event.at_ns, event.exit_code, words)
    run.state = State.WAITING
    said: list[act.Action] = [act.Say("warning", words)] if why else []
    return [*said, act.SetTimer(Timer.RESTART, again_ns)]


def on_restart_timer(run: RunState, event: ev.TimerFired) -> list[act.Action]:
    """The back-off is over."""
    return choose(run, event.at_ns) if event.timer == Timer.RESTART else []


# --- the launch -----------------------------------------------------------------------------


def on_placed(run: RunState, event: ev.Placed) -> list[act.Action]:
    """Who has a part of the next attempt."""
    run.hosts = event.hosts
    return []


def on_sets_seen(run: RunState, event: ev.SetsSeen) -> list[act.Action]:
    """Choose a set and launch the next attempt from it, unless more was wished for meanwhile."""
    if run.rollbacks.is_overtaken:
        return choose(run, event.at_ns)
    wish, _ = rollback.prevailing(run.rollbacks.standing)
    chosen, words = choose_set(event.seen, wish, run.rejected.now(event.at_ns))
    if isinstance(chosen, NoChoice):
        return over_in_a_gap(run, event.at_ns, chosen.exit_code, words)
    return _launch(run, event.at_ns, chosen, words)


def on_chosen(run: RunState, event: ev.Chosen) -> list[act.Action]:
    """Launch the next attempt from the chosen set, unless more was wished for meanwhile."""
    if run.rollbacks.is_overtaken:
        return choose(run, event.at_ns)
    return _launch(run, event.at_ns, event.resume, event.words)


def _launch(run: RunState, at_ns: int, resume: ev.Resume, words: str) -> list[act.Action]:
    run.absence.over()
    run.state = State.LAUNCHING
    run.attempt = run.next_attempt
    run.is_on_record = run.is_adopted = False
    run.next_attempt += 1
    run.resume = resume
    run.ending = EndEvidence()
    run.holding.over()
    run.is_relayed = False
    granted, on_record = run.rollbacks.settle()
    if granted is not None:
        _go_back(run, granted, resume.step)
    # A predecessor that was cut off may have committed a step since this controller looked.
    run.high_water = max(run.high_water, resume.step)
    # Now, not at Launched: the first of many ranks may show itself before the last is started.
    run.placement = run.policy.place(run.hosts)
    run.saving.begin(
        at_ns, resume.durable_step, attempt=run.attempt, resume=resume, ranks=run.placement.ranks
    )
    run.saving.failures.known(run.failures_seen, run.losses_seen)
    run.high_water_at_launch = run.high_water
    run.saves_wake_ns, run.until, run.is_end_told = None, 0, False
    return [
        act.Say("info", _started(run.attempt, words)),
        act.Launch(run.attempt, resume, run.placement, on_record),
    ]


def _started(attempt: int, words: str) -> str:
    return f"Attempt {attempt}: {words}" if attempt else f"{words[:1].upper()}{words[1:]}"


def _go_back(run: RunState, wish: rollback.Wish, step: int) -> None:
    """Progress is counted anew; a person's wish begins a new story of failures as well."""
    run.high_water = run.high_water if wish.to is None else step
    if not wish.is_from_script:
        run.judge_by(())


def on_set_refused(run: RunState, event: ev.SetRefused) -> list[act.Action]:
    """Choose another one for all ranks, and what somebody wished for still stands."""
    if run.resume.set_name is not None:
        run.rejected = run.rejected.add(run.resume.set_name, event.words, in_memory=False)
    run.next_attempt = run.attempt
    run.rollbacks.stand_again()
    return choose(run, event.at_ns)


def on_record(run: RunState, _: ev.OnRecord) -> list[act.Action]:
    """Whatever becomes of it from now on, its end has to be recorded too."""
    run.is_on_record = True
    return []


def on_launch_failed(run: RunState, event: ev.LaunchFailed) -> list[act.Action]:
    """Starting again cannot help; over as soon as nothing is left, on other hosts either."""
    run.state = State.KILLING
    run.launch_failure = event
    return [act.Kill("the launch has failed")] if event.is_on_record else []


def on_timer_while_launching(run: RunState, event: ev.TimerFired) -> list[act.Action]:
    """Told to stop, and the store, or a host, takes its time: nobody waits longer for it.

    Should the ranks be there after all, they end with the supervisor.
    """
    if event.timer == Timer.DEADLINE and not run.policy.is_supervised:
        return on_deadline_timer(run, event)
    now = run.stopping.now
    if event.timer == Timer.DEADLINE and run.stop is not None:
        asked = f"{run.stop.source}: the deadline came"
    elif event.timer == Timer.LEAVE and now is not None:
        asked = now.source
    else:
        return []
    missing = "nothing was heard of its processes yet"
    if not run.is_on_record:
        missing = "the run store does not answer"
    return over_unheard(run, event.at_ns, f"{asked}; {missing}")


def over_unheard(run: RunState, at_ns: int, words: str) -> list[act.Action]:
    """The end, before anything was heard of processes; an attempt that is on record has its own."""
    end: list[act.Action] = []
    if run.state is State.LAUNCHING and run.is_on_record:
        cause = exits.HISTORY_CAUSE[exits.ExitCause.STOPPED]
        end = [act.EndAttempt(run.attempt, cause, words, None, is_incident=False)]
    return [*end, *over_in_a_gap(run, at_ns, run.stopping.exit_code, words)]


def on_deadline_timer(run: RunState, event: ev.TimerFired) -> list[act.Action]:
    """Scripts that run by themselves were to stop, and have not begun to train: they end now."""
    if event.timer != Timer.DEADLINE or run.stop is None:
        return []
    said = act.Say("warning", f"{TOO_LATE}: ending it")
    words = f"{run.stop.source}: {TOO_LATE}"
    return [said, *over_unheard(run, event.at_ns, words)]
