"""Readers of a run's small files, of a history, of settings and of the environment."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz_mutate import mutate_json, mutate_lines
from fuzz_seeds import RUN, S, fuzz_folder, good_run, history_lines
from fuzz_target import Target, documented, put, sayable

from holdfast.agent.postmortem import Postmortem
from holdfast.compat.ml_goodput_measurement.reaccount import reaccount
from holdfast.config import sources
from holdfast.config.rank import RankEnvironment, check_launcher
from holdfast.core.exits import RankReport
from holdfast.core.history.line import encode
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.summary import Loss, RunSummary, Spent
from holdfast.core.run import rollback
from holdfast.errors import ConfigurationError
from holdfast.journal.attempts import attempts, lineage, next_number
from holdfast.journal.calibrated import Calibration, read_calibrations, write_calibration
from holdfast.journal.control import ControlInbox
from holdfast.journal.history_file import read_history
from holdfast.journal.learned_imports import FILE, learned_imports
from holdfast.journal.lease import LeaseState, acquire, view
from holdfast.journal.rollbacks import clear_settled, standing_wishes
from holdfast.journal.store import RunFolder, RunStore
from holdfast.report.evidence import evidence_of
from holdfast.runs.cache import SummaryCache, encoded
from holdfast.session.messages import FollowerSays, LeaderSays, Welcome
from holdfast.snapshot.keep import Keep, read_keep
from holdfast.standby.warm import learned_files

_FIRST = "attempts/0000"


def good(name: str) -> bytes:
    """A file of the good run."""
    return (good_run() / RUN / name).read_bytes()


def run_at(place: Path) -> RunFolder:
    """A run with nothing in it but its run.json."""
    put(place / RUN / "run.json", good("run.json"))
    return RunStore.at(place).get(RUN)


_IMPORTS = json.dumps(
    {"format": 1, "modules": [["os", "/x/os.py"], ["sys", None]], "mapped": ["/x/a.so.1"]}
).encode()


def _read_imports(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(place / RUN / FILE, data)
    found = learned_imports(folder)
    if found is not None:
        for paths in learned_files(found.modules, found.mapped):
            assert all(isinstance(path, str) for path in paths)


def _read_run(data: bytes, place: Path) -> None:
    put(place / RUN / "run.json", data)
    store = RunStore.at(place)
    for words in store.runs()[1]:
        sayable(words)
    with documented():
        folder = store.get(RUN)
        assert "/" not in folder.scratch_key
        sayable(repr(folder.identity))


def _read_attempt(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.attempt_dir(1) / "attempt.json", data)
    put(folder.attempt_dir(1) / "end.json", good("attempts/0000/end.json"))
    read_attempts(folder)


def _read_end(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.attempt_dir(0) / "attempt.json", good("attempts/0000/attempt.json"))
    put(folder.attempt_dir(0) / "end.json", data)
    read_attempts(folder)


def read_attempts(folder: RunFolder) -> None:
    """Every attempt's record and end; what is damaged is said, never raised."""
    found = attempts(folder)
    for words in found.damage:
        sayable(words)
    for record in found.records:
        assert 0 <= record.ranks <= 1_000_000
        sayable(repr(record))
    lineage(found.records)
    next_number(folder)


def _read_lease(data: bytes, place: Path) -> None:
    folder = run_at(place)
    for path in folder.lease_dir.glob("*"):
        path.unlink()
    put(folder.lease_dir / "000001.json", data)
    put(folder.lease_dir / "000001.alive", data)
    with documented():
        seen = view(folder)
        sayable(str(seen.holder))
        assert seen.state in LeaseState
    clock = iter(range(0, 1000, 5)).__next__
    with documented():
        acquire(folder, clock=clock, sleep=lambda _: None, on_wait=sayable)


def _read_request(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.control_dir / "000001-stop.json", data)
    with documented():
        taken = ControlInbox(folder, 1).take()
        for words in taken.ignored:
            sayable(words)
        for asked in taken.requests:
            sayable(repr(asked))


def _read_report(data: bytes, place: Path) -> None:
    put(place / "rank-00000.report", data)
    ended: Any = SimpleNamespace(phase=lambda _rank: None)
    found = Postmortem(place, ended, []).exit_of({"rank": 0, "code": 1, "signal": None})
    assert found.report is None or isinstance(found.report, RankReport)
    sayable(repr(found))
    sayable("".join(vars_of(found.report)) if found.report else "")


def _read_wish_of_a_script(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.attempt_dir(0) / "attempt.json", good("attempts/0000/attempt.json"))
    put(folder.ranks_dir(0) / "rank-00000.json", data)
    _read_wishes(folder)


def _read_wish_of_a_person(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.control_dir / "000001-rollback.json", data)
    _read_wishes(folder)
    clear_settled(folder)


def _read_wishes(folder: RunFolder) -> None:
    with documented():
        for wish in standing_wishes(folder):
            sayable(rollback.wish_words(wish))
            assert wish.skip_batches >= 0
            assert wish.to is None or isinstance(wish.to, str | int)  # a script may say -1


def _read_message(data: bytes, place: Path) -> None:
    """What one rank reads of another in the key-value store."""
    del place
    for kind in (FollowerSays, LeaderSays, Welcome):
        with documented(ValueError):
            message = kind.from_bytes(data)
            sayable(repr(message))
            message.to_bytes()


def _message_seeds() -> list[bytes]:
    return [
        FollowerSays(1, "b", "a", 7, "run", 2, {"pid": 3}, refused="a flipped bit").to_bytes(),
        LeaderSays("a", 7, "run", 2, 3, 4, {"pid": 3}, set_name="0000-000000000003").to_bytes(),
        Welcome("a", "b").to_bytes(),
    ]


def _wish_seeds() -> list[bytes]:
    script = {
        "type": "DeclaredFailure", "message": "loss is NaN", "where": "train.py:7",
        "traceback": "", "declared": True, "rollback_to": 500, "skip_batches": 20,
    }  # fmt: skip
    return [json.dumps(script).encode(), json.dumps({**script, "rollback_to": "best"}).encode()]


def _rollback_seeds() -> list[bytes]:
    args = {"id": "r1", "to": 500, "skip_batches": 20}
    asked = {"verb": "rollback", "args": args, "epoch": 1, "sender": "me", "sent_unix_ns": 1}
    return [json.dumps(asked).encode()]


def vars_of(report: RankReport) -> list[str]:
    """The texts of a report."""
    return [report.type, report.message, report.where, report.traceback]


def _read_keep(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.ranks_dir(0) / "keep.json", data)
    assert isinstance(read_keep(folder.ranks_dir(0) / "keep.json"), Keep | None)


def _read_incident(data: bytes, place: Path) -> None:
    folder = run_at(place)
    put(folder.incidents_dir(0) / "incident.json", data)
    found, notes = evidence_of(folder, (0,))
    for words in notes:
        sayable(words)
    for one in found:
        sayable("".join((one.words or "", one.traceback or "", *one.last_lines)))


def _read_history(data: bytes, place: Path) -> None:
    with documented():
        history = read_history(put(place / "a.jsonl", data))
        ledger = Ledger()
        ledger.add_history(history)
        for now_ns, window_ns in ((100 * S, None), (100 * S, 20 * S)):
            account = ledger.account(now_ns, window_ns)
            assert isinstance(account, Account)
            sayable(json.dumps(account.to_json()))
        for fact in history.facts:
            sayable(encode(fact))
        for kind in history.span_kinds:
            sayable(kind)


def _read_config(data: bytes, place: Path) -> None:
    path = put(place / "holdfast.toml", data)
    with documented():
        settings = sources.resolve({}, {}, str(path)).settings
        settings.save_policy()
        settings.restart_policy()
        with documented():
            RunStore.at(settings.store)
        sayable(repr(settings))


_CONFIG = """\
store = "runs"  # relative
name = "a-name"
scratch = "~/scratch"
ranks = 2
chips = 8
grace_s = 1.5
save_every_s = 60
save_every_steps = 100
keep_last = 3
max_failures = 10
status = "auto"
log_level = "info"
"""


def _mutate_config(rng: Any, data: bytes) -> bytes:
    """A line's value becomes another of TOML's, or JSON's, which often are."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    key, _, value = lines[at].partition(b" = ")
    lines[at] = key + b" = " + mutate_json(rng, value)
    return mutate_lines(rng, b"\n".join(lines)) if rng.random() < 0.3 else b"\n".join(lines)


def _read_variables(data: bytes, place: Path) -> None:
    """NAME=VALUE pairs, as an environment holds them: no NUL inside, bytes in surrogates."""
    del place
    environ = {}
    for entry in data.split(b"\0"):
        name, found, value = entry.partition(b"=")
        if found:
            environ[os.fsdecode(name)] = os.fsdecode(value)
    with documented(ConfigurationError):
        rank = RankEnvironment.from_environ(environ)
        if rank is not None:
            assert 0 <= rank.rank < rank.world_size
            assert rank.attempt >= 0
            assert rank.resume_set is None or "/" not in rank.resume_set
            rank.to_environ()
            rank.launcher_variables()
            check_launcher(rank.rank, rank.world_size, environ)
    environ.pop("HOLDFAST_CONFIG", None)
    with documented(ConfigurationError):
        sources.resolve(environ, {}, os.devnull)


def _variable_seeds() -> list[bytes]:
    known: dict[str, Any] = {
        "resume_set": "0000-000000000003", "run": "run", "rank": 1, "local_rank": 1,
        "world_size": 2, "local_world_size": 2,
    }  # fmt: skip
    others = {
        f.name: 3 if str(f.type).startswith("int") else "text" for f in fields(RankEnvironment)
    }
    rank = RankEnvironment(**others | known)
    settings = {
        "HOLDFAST_RANKS": "2", "HOLDFAST_GRACE_S": "30", "HOLDFAST_SAVE_EVERY_S": "6.5",
        "HOLDFAST_NAME": "name", "HOLDFAST_STATUS": "live", "HOLDFAST_CHIPS": "8",
    }  # fmt: skip
    both = {**rank.to_environ(), **settings}
    return [b"\0".join(f"{name}={value}".encode() for name, value in both.items())]


def _mutate_variables(rng: Any, data: bytes) -> bytes:
    entries = data.split(b"\0")
    at = rng.randrange(len(entries))
    name, _, value = entries[at].partition(b"=")
    strange = (b"", b"-1", b"none", b"1e5", b"9" * 5000, b"../x", b"\xff", b"a/b", b"nan", b"inf",
               b"1_0", b" 3 ", b"\xd9\xa3", b"18446744073709551616", value + b"0")  # fmt: skip
    if rng.random() < 0.2:
        del entries[at]
    else:
        entries[at] = name + b"=" + rng.choice(strange)
    return b"\0".join(entries)


def _summary_seeds() -> list[bytes]:
    spent = Spent(
        {"step": 10**12, "startup": 5}, 3, 1, 0, 0, (Loss(7, "killed", 9),), 0, 10**12 + 5
    )
    course, within = (100, 0), {"all": spent}
    run = RunSummary("r", "ab", "done", "", 4, 1, 3, 2, 10, None, 0, 99, course, within, ("n",),
                     {"loss": 0.5, "none": math.nan})  # fmt: skip
    return [encoded([("seen", run)])]


def _read_summaries(data: bytes, place: Path) -> None:
    """A cache that cannot be read is an empty one."""
    cache = SummaryCache(place, place)
    put(cache.file, data)
    found = SummaryCache(place, place).get("r", "seen")
    if found is not None:
        sayable(repr(found))
        assert sum(found.spent().kinds.values()) >= 0


def _read_log_entries(data: bytes, place: Path) -> object:
    with documented(ValueError):
        return reaccount(put(place / "entries.json", data), now_s=1.8e9).to_json()
    return None


def _log_entry_seeds() -> list[bytes]:
    moments = (
        {"job_start_time": 1.7e9},
        {"training_prep_start_time": 1.7e9 + 1},
        {"training_prep_end_time": 1.7e9 + 9},
        *({"step_count": n, "step_start_time": 1.7e9 + 10 + n} for n in range(12)),
        {"custom_badput_event_type": "eval", "custom_badput_event_start_time": 1.7e9 + 22},
        {"custom_badput_event_type": "eval", "custom_badput_event_end_time": 1.7e9 + 23},
        {"event_type": "save", "checkpoint_manager_blocking_duration_secs": 0.5},
        {"active_slices": 3, "total_slices": 4, "available_slices": 3,
         "elastic_slice_counts_timestamp": 1.7e9 + 24},
        {"job_start_time": 1.7e9 + 30},
        {"step_count": 9, "step_start_time": 1.7e9 + 40},
        {"job_end_time": 1.7e9 + 50},
    )  # fmt: skip
    entries = [{"job_name": "j", **moment} for moment in moments]
    wrapped = [{"jsonPayload": e, "receiveTimestamp": "2023-11-14T22:13:20.1Z"} for e in entries]
    lines = "".join(json.dumps(one) + "\n" for one in entries)
    return [lines.encode(), json.dumps(wrapped).encode()]


def _read_calibrations(data: bytes, place: Path) -> None:
    with documented(ValueError):
        for one in read_calibrations(put(place / "calibrated.json", data)).values():
            sayable(repr(one))


def _calibration_seeds() -> list[bytes]:
    path = fuzz_folder() / "calibrated.json"
    write_calibration(path, Calibration("NVIDIA L4", 1, "torch 2", {"bf16": 9}, 5, 2, 7))
    data = path.read_bytes()
    shutil.rmtree(path.parent)
    return [data]


TARGETS = [
    Target("calibrations", _read_calibrations, _calibration_seeds, mutate_json),
    Target("summaries", _read_summaries, _summary_seeds, mutate_json),
    Target("run_json", _read_run, lambda: [good("run.json")], mutate_json),
    Target("attempt", _read_attempt, lambda: [good("attempts/0001/attempt.json")], mutate_json),
    Target("attempt_end", _read_end, lambda: [good("attempts/0000/end.json")], mutate_json),
    Target("imports", _read_imports, lambda: [_IMPORTS], mutate_json),
    Target("lease", _read_lease, lambda: [good("lease/000001.json")], mutate_json),
    Target("request", _read_request,
           lambda: [good(f"control/{name}.json") for name in ("000001-save", "000002-stop")],
           mutate_json),
    Target("rank_report", _read_report, lambda: [good(f"{_FIRST}/ranks/rank-00000.json")],
           mutate_json),
    Target("wish_of_a_script", _read_wish_of_a_script, _wish_seeds, mutate_json),
    Target("wish_of_a_person", _read_wish_of_a_person, _rollback_seeds, mutate_json),
    Target("message", _read_message, _message_seeds, mutate_json),
    Target("keep", _read_keep, lambda: [good(f"{_FIRST}/ranks/keep.json")], mutate_json),
    Target("incident", _read_incident, lambda: [good(f"{_FIRST}/incidents/incident.json")],
           mutate_json),
    Target("log_entries", _read_log_entries, _log_entry_seeds, mutate_lines),
    Target("history", _read_history, lambda: [history_lines()], mutate_lines),
    Target("config", _read_config, lambda: [_CONFIG.encode()], _mutate_config),
    Target("variables", _read_variables, _variable_seeds, _mutate_variables),
]  # fmt: skip
