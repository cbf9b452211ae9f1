"""A random schedule of faults: a scenario script (tests/scenarios/script.py), made from a seed.

Only what can happen is drawn. Words in shared memory come late, and all but the newest may never be
seen; what the reaper, the store's worker and the seals have to tell waits while the supervisor's
loop does not come round, and is then read source by source, not in order of time. None of it comes
twice, but notices, requests and wishes do, and every lookup of a page reads again what was read.
"""

from __future__ import annotations

import random

Lines = tuple[str, ...]

STEPS = ("2ms", "10ms", "25ms", "60ms", "150ms")
TIMES = ("0ms", "1ms", "15ms", "40ms", "120ms", "400ms")
WAITS = ("1ms", "7ms", "20ms", "45ms", "80ms", "130ms", "200ms", "350ms", "700ms", "1500ms", "4s")
GOALS = (
    "state launching", "state running", "state killing", "state choosing", "state waiting",
    "state flushing", "phase collecting", "phase writing", "phase committing", "phase over",
    "joined", "attempt 1", "attempt 2",
)  # fmt: skip
FAILURES = ("ValueError train.py:41", "OSError train.py:9")


def schedule(seed: int) -> Lines:
    """The commands that follow from a seed."""
    streams = (
        random.Random(seed),
        random.Random(f"store {seed}"),
        random.Random(f"copy {seed}"),
        random.Random(f"link {seed}"),
        random.Random(f"hosts {seed}"),
        random.Random(f"more {seed}"),
        random.Random(f"agents {seed}"),
        random.Random(f"peers {seed}"),
        random.Random(f"elastic {seed}"),
        random.Random(f"chips {seed}"),
        random.Random(f"ends {seed}"),
    )
    return _Draw(*streams).lines()


class _Draw:
    def __init__(
        self,
        rng: random.Random,
        of_store: random.Random,
        of_copies: random.Random,
        of_link: random.Random,
        of_hosts: random.Random,
        of_more: random.Random,
        of_agents: random.Random,
        of_peers: random.Random,
        of_elastic: random.Random,
        of_chips: random.Random,
        of_ends: random.Random,
    ) -> None:
        self._rng = rng
        # Streams of their own, so that what follows from a seed stays as it was.
        self._of_store, self._of_copies, self._of_link = of_store, of_copies, of_link
        self._of_hosts, self._of_more = of_hosts, of_more
        self._hosts = of_hosts.choices((1, 2, 3), (6, 3, 1))[0]
        self._ranks = rng.choices((1, 2, 3, 4), (4, 6, 3, 1))[0]
        if self._hosts > 1:
            self._ranks = self._hosts * of_hosts.choice((1, 1, 2))
        self._until = rng.choice((1, 2, 4, 7, 12, 20))
        self._is_bare = of_more.random() < 0.15  # nobody supervises it
        self._hangs = rng.random() < 0.3 and not self._is_bare
        self._of_agents, self._of_peers = of_agents, of_peers
        self._has_agents = of_agents.random() < 0.5 and self._hosts > 1 and not self._is_bare
        self._of_elastic, self._of_chips = of_elastic, of_chips
        self._is_elastic = of_elastic.random() < 0.5 and self._has_agents
        if self._is_elastic:  # time enough for a host to come back
            self._until = of_elastic.choice((20, 60, 150, 400))
        self._of_ends = of_ends
        ends_early = of_ends.random() < 0.15 and self._until > 1
        self._ends = of_ends.randint(1, self._until - 1) if ends_early else 0

    def lines(self) -> Lines:
        """The start, what happens, and an end: in peace, or after a notice."""
        found = [f"start {' '.join(self._start())}"]
        for _ in range(1 + min(int(self._rng.expovariate(0.4)), 9)):
            found += self._moment()
            found += self._thing()
            found += self._elsewhere()
            found += self._more()
            found += self._fewer_hosts()
        found += (
            ["run until over within 60s", "start again", "heal"] if self._maybe(0.2) else ["heal"]
        )
        if self._is_bare:  # who waits for a rank that is gone, waits for ever
            found.append("run until over within 60s")
        found += ["sigterm grace=20s"] if self._maybe(0.3) or self._is_bare else []
        return (*found, "run until over")

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _start(self) -> list[str]:
        rng, one = self._rng, self._rng.choice
        speeds = rng.sample(STEPS, rng.choice((1, 1, 2)))
        words = [f"ranks={self._ranks}", f"until={self._until}", f"step={','.join(speeds)}"]
        words += [f"ends={self._ends}"] if self._ends else []
        words += [f"hosts={self._hosts}"] if self._hosts > 1 else []
        if self._has_agents:
            spares = self._of_agents.choice((0, 0, 1, 2))
            few = self._is_elastic and self._of_elastic.random() < 0.7  # no spare for a lost host
            words.append(f"agents=yes spares={0 if few else spares}")
            if self._of_chips.random() < 0.5:  # hosts that are not alike, and some do not say
                each = [f"{self._of_chips.choice((0, 1, 4, 8))}" for _ in range(self._hosts + 2)]
                words.append(f"chips={','.join(each)}")
        for key in ("import", "restore", "copy", "write", "leave"):
            words.append(f"{key}={one(TIMES)}")
        words.append(f"save={one(('never', '1', '2', '3', '5', '0.3s'))}")
        words.append(f"looks={one(('2ms,50ms', '10ms,50ms', '25ms,70ms', '60ms,200ms'))}")
        if self._maybe(0.6):
            words.append(f"buffers={one((1, 2, 2, 3, 3, 3))}")
            words.append(f"in_memory={one(('never', '1', '1', '2', '4', 'optimal'))}")
            words += [f"seal={one(TIMES)}", f"flush={one(TIMES)}"]
            if self._maybe(0.3):
                words.append(f"seals={','.join(rng.sample(TIMES, 3))}")
            if self._hosts > 1 and self._of_peers.random() < 0.7:
                words.append(f"peers={self._of_peers.choice(TIMES)}")
            if self._of_copies.random() < 0.5:  # copies that end after their boundary
                words.append(f"later={','.join(self._of_copies.sample(TIMES, 3))}")
            if self._of_copies.random() < 0.2:
                words.append(f"failing={self._of_copies.choice((1, 2, 3, 5))}")
        for key, chance in (("store", 0.4), ("spawn", 0.2), ("reap", 0.3), ("bell", 0.1)):
            if self._maybe(chance):
                words.append(f"{key}={','.join(rng.sample(TIMES, rng.choice((1, 2, 3))))}")
        if self._maybe(0.4):
            words.append(f"words={','.join(rng.sample(TIMES, rng.choice((1, 2, 3))))}")
        if self._maybe(0.3):
            words.append("together=no")
            if self._ends and self._of_ends.random() < 0.4:
                words.append("apart=1")
        if self._maybe(0.5):
            words.append(f"budget={one((1, 2, 4))}")
        if self._maybe(0.05):
            words += ["session=no", f"plain={one(('50ms', '600ms', '5s'))}"]
        if self._maybe(0.1):
            words.append(f"on_sigterm={one(('exit-143', 'exit-0', 'exit-1', 'ignore'))}")
        if self._maybe(0.15):
            step = rng.randint(1, self._until)
            words += [f"pause={step}:{one(WAITS)}", f"poll={one(('0', '5ms', '30ms'))}"]
        if self._maybe(0.1):
            words.append(f"span={rng.randint(1, self._until)}:custom:{one(WAITS)}")
        if self._of_store.random() < 0.5:
            words.append(f"keep={self._of_store.choice((1, 1, 2, 3))}")
        if self._of_store.random() < 0.3:
            words.append(f"look={','.join(self._of_store.sample(TIMES, 3))}")
        if self._of_link.random() < 0.3:
            takes = self._of_link.sample((*TIMES, "lost", "lost"), 4)
            words.append(f"link={','.join(takes)}")
        if self._hangs:
            words.append(f"hang={one(('1s', '2s', '5s'))}")
            words += ["ready=yes"] if self._maybe(0.3) else []
        if self._is_elastic:
            least = self._of_elastic.choice((1, self._hosts - 1, self._hosts - 1, self._hosts))
            back, stays = (self._of_elastic.choice(times) for times in (BACK, STAYS))
            words.append(f"elastic={least}:{back}:{stays}")
            words.append(f"step={self._of_elastic.choice(STEPS[2:])}")
            words = [word for word in words if word.partition("=")[0] not in OF_MEMORY]
        if self._is_bare:
            return [word for word in words if word.partition("=")[0] not in SUPERVISED] + BARE
        return words + self._more_words(words)

    def _more_words(self, words: list[str]) -> list[str]:
        """Settings that are seldom other than usual, and a link on which things come twice."""
        of_more = self._of_more
        found = [of_more.choice(of) for chance, of in SELDOM if of_more.random() < chance]
        links = [one for one in words if one.startswith("link=")]
        return found + [f"{one},twice" for one in links if of_more.random() < 0.5]

    def _moment(self) -> list[str]:
        """When the next thing happens: at some time, or in the middle of something."""
        kind = self._rng.random()
        if kind < 0.45:
            return [f"run for {self._rng.choice(WAITS)}"]
        if kind < 0.65:
            return [f"run until step {self._rng.randint(1, self._until)} within 2s"]
        if kind < 0.95:
            found = [f"run until {self._rng.choice(GOALS)} within 2s"]
            return found + ([f"run for {self._rng.choice(WAITS[:5])}"] if self._maybe(0.4) else [])
        return []

    def _thing(self) -> list[str]:
        rng, one = self._rng, self._rng.choice
        rank = rng.randrange(self._ranks)
        step = rng.randint(1, self._until)
        kind = rng.choices(KINDS, WEIGHTS)[0]
        if self._is_bare and kind in SUPERVISED_KINDS:
            return ["save"]
        match kind:
            case "kill":
                return [f"kill rank {rank}"]
            case "exit":
                return [f"rank {rank} exits {one((0, 0, 1, 75, 78, 143))}"]
            case "fail":
                when = (
                    f" at step {step} in {one((1, 1, 2, 3))} attempts" if self._maybe(0.6) else ""
                )
                return [f"rank {rank} fails {one(FAILURES)}{when}"]
            case "give up":
                to = rng.randint(0, step)
                return [f"rank {rank} gives up at step {step} to {to} in 1 attempts"]
            case "hang" if self._hangs:
                where = " on the device" if self._maybe(0.3) else ""
                return [f"rank {rank} hangs in step {step} 1 times{where}"]
            case "stop rank" if self._hangs:
                return [f"stop rank {rank}", f"run for {one(WAITS)}", f"continue rank {rank}"]
            case "sigterm":
                return [f"sigterm grace={one(('0s', '200ms', '2s', '30s'))}"] * one((1, 1, 2))
            case "notice":
                return self._notices()
            case "rank sigterm":
                return [f"rank {rank} gets SIGTERM"]
            case "ctrl-c":
                return ["ctrl-c"] * one((1, 1, 1, 2))
            case "save":
                return ["save"] * one((1, 1, 2))
            case "roll back":
                skip = f" skip {rng.randint(1, 3)}" if self._maybe(0.3) else ""
                return [f"rollback to {rng.randint(0, self._until)}{skip}"] * one((1, 1, 2))
            case "stall":
                return [f"supervisor stalls for {one(WAITS)}"]
            case "store":
                state = one(("full", "away", "mute", "full", "away", "mute", "hung"))
                return [f"store {state}", *self._moment(), "store ok"]
            case "seals":
                return ["seals fail", *self._moment(), "seals work"]
            case "supervisor":
                alone = " alone" if self._maybe(0.3) else ""
                return [f"kill supervisor{alone}", *self._gap(), "start again"]
            case "host":
                return ["lose host", *self._gap(), "start elsewhere"]
            case "cut off":
                return [f"start elsewhere noticed in {one(WAITS)}"]
            case "rare":
                rare = one(RARE)
                # On a host that was lost, what survives SIGKILL keeps it from coming back.
                return ["save" if self._has_agents and rare == "host stuck" else rare]
            case _:  # a hang that nobody watches for would be no story
                return [ONCE.get(kind, "save")]

    def _notices(self) -> list[str]:
        """What a cloud announces; it may say so twice, differently, or take it back."""
        one = self._rng.choice
        words = f"notice {one(('gce', 'aws'))}: {one(ACTIONS)}"
        when = one((" in 0s", " in 300ms", " in 5s", " in 60s", " lead 2s", " lead 600s", ""))
        name = one(("", " as e-1"))
        found = [f"{words}{when}{name}"]
        if self._maybe(0.4):
            found += [*self._moment(), f"{words}{name} {one(('started', 'withdrawn'))}"]
        return found

    def _elsewhere(self) -> list[str]:
        """What befalls a host that is not the controller's, now and then."""
        of_hosts = self._of_hosts
        if self._hosts == 1 or of_hosts.random() > 0.4:
            return []
        number = of_hosts.randrange(1, self._hosts)
        noticed, replaced = of_hosts.choice(WAITS), of_hosts.choice(WAITS)
        if self._has_agents and self._of_agents.random() < 0.5:  # found out by its silence
            noticed, replaced = "60s", self._of_agents.choice(("20ms", "4s", "30s"))
        found = [f"host {number} is lost, noticed in {noticed}, replaced in {replaced}"]
        if of_hosts.random() < 0.3:
            found = [f"host {number} stalls for {of_hosts.choice(WAITS)}"]
        return [f"run for {of_hosts.choice(WAITS)}", *found] if of_hosts.random() < 0.5 else found

    def _fewer_hosts(self) -> list[str]:
        """An elastic run loses a host; it goes on without it, and is stopped short of that or not.

        Something else follows when it trains on, or when the host is back, or in between.
        """
        if not self._is_elastic or self._of_elastic.random() > 0.5:
            return []
        one, number = self._of_elastic.choice, self._of_elastic.randrange(1, self._hosts)
        noticed, replaced = one(("1ms", "45ms", "60s")), one(("80ms", "3s", "15s", "200s"))
        found = [f"host {number} is lost, noticed in {noticed}, replaced in {replaced}"]
        if one((True, True, False)):
            found.append(f"run until hosts {self._hosts - 1} within {one(('1s', '15s', '80s'))}")
        if one((True, False)):
            found.append(f"run until hosts {self._hosts} within {one(('500ms', '5s', '30s'))}")
        return found + ([f"run for {one(WAITS)}"] if one((True, False)) else [])

    def _more(self) -> list[str]:
        """What else may happen, beside all that."""
        of_more = self._of_more
        if of_more.random() > 0.2:
            return []
        wait = f"run for {of_more.choice(WAITS)}"
        if self._hosts > 1 and of_more.random() < 0.7:
            number, away = of_more.randrange(1, self._hosts), of_more.choice(WAITS)
            if self._has_agents and self._of_agents.random() < 0.5:  # long enough to be lost
                away = self._of_agents.choice(("9s", "11s", "14s", "25s"))
            return [f"host {number} is cut off for {away}", wait]
        if self._is_bare or of_more.random() < 0.7:
            return []
        return [f"memory vanishes, made again in {of_more.choice(WAITS)}", wait]

    def _gap(self) -> list[str]:
        return [f"run for {self._rng.choice(WAITS)}"] if self._maybe(0.5) else []


# Of what a run that nobody supervises has not; and that nobody does.
OF_MEMORY = ("buffers", "in_memory", "seal", "flush", "seals", "later", "failing", "peers")
SUPERVISED = (*OF_MEMORY, "budget", "session", "plain", "on_sigterm", "spawn", "reap")
BACK = ("1s", "10s", "60s", "500s")  # after so long a lost host is expected
STAYS = ("10ms", "300ms", "2s")  # before it is taken in
SUPERVISED_KINDS = ("seals", "reaper", "host busy", "bad", "rare")
BARE = ["supervised=no"]
SELDOM = (
    (0.1, ("hold=0s", "hold=3s")), (0.08, ("crash_loop=2", "crash_loop=3")),
    (0.08, ("store=1s,5s,10ms",)), (0.15, ("on_notice=stay", "on_notice=release")),
    (0.08, ("migration_ends=yes",)), (0.01, ("command=missing",)),
)  # fmt: skip
ACTIONS = (
    "terminate", "terminate", "reboot", "time limit", "live migration", "drain", "rebalance",
)  # fmt: skip
ONCE = {
    "reaper": "reaper killed", "suspend": "suspend for 7s", "host busy": "host busy",
    "bad": "bad sets 1",
}  # fmt: skip
RARE = ("sigquit", "lease lost", "memory bad", "bad sets all", "host stuck", "stacks never come",
        "store fenced", "suspend for 1s")  # fmt: skip
CHANCES = {
    "kill": 6, "exit": 4, "fail": 5, "give up": 3, "hang": 4, "stop rank": 3, "sigterm": 5,
    "notice": 4, "rank sigterm": 2, "ctrl-c": 2, "save": 5, "roll back": 4, "stall": 6, "store": 4,
    "seals": 2, "supervisor": 4, "host": 3, "cut off": 2, "reaper": 2, "suspend": 1, "host busy": 1,
    "bad": 2, "rare": 3,
}  # fmt: skip
KINDS, WEIGHTS = tuple(CHANCES), tuple(CHANCES.values())
