"""A rehearsal's script: what it says, and what it cannot say."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import ConfigurationError
from holdfast.rehearse.perform import RehearsalPlan, check, perform
from holdfast.rehearse.script import Moment, Script, ScriptLine, read_script, script_of
from holdfast.rehearse.story import Rehearsed
from holdfast.testing.gce import GceEmulator
from holdfast.testing.registry import EMULATORS

TOML = """
start = ["fail html 3"]
[[event]]
at = 2
do = "maintenance-event NONE"
[[event]]
do = "set 'a key' value"
"""
MEANT = Script(
    (("fail", "html", "3"),),
    (ScriptLine(0.0, ("set", "a key", "value")), ScriptLine(2.0, ("maintenance-event", "NONE"))),
)


def test_toml_and_json_say_the_same(tmp_path):
    (tmp_path / "s.toml").write_text(TOML)
    events = [{"at": 2, "do": "maintenance-event NONE"}, {"do": "set 'a key' value"}]
    (tmp_path / "s.json").write_text(json.dumps({"start": ["fail html 3"], "event": events}))
    assert read_script(tmp_path / "s.toml") == MEANT == read_script(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "no table"),
        ({"events": []}, "'events'"),
        ({"start": "fail html"}, "lists"),
        ({"start": [3]}, "3 is nothing"),
        ({"event": [{"at": 1}]}, "no event"),
        ({"event": [{"at": -1, "do": "x"}]}, "-1 is no number"),
        ({"event": [{"at": True, "do": "x"}]}, "True is no number"),
        ({"event": [{"do": "'"}]}, "quotation"),
    ],
)
def test_what_cannot_be_meant(told, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        script_of(told)
    (tmp_path / "s.json").write_text(json.dumps(told))
    with pytest.raises(ConfigurationError, match="is not valid"):
        read_script(tmp_path / "s.json")


@pytest.mark.parametrize("data", [b"\xff", b" " * 70_000, b"= 3"])
def test_files_that_are_none(data, tmp_path):
    (tmp_path / "s.toml").write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"s\.toml"):
        read_script(tmp_path / "s.toml")
    with pytest.raises(ConfigurationError, match="No such file"):
        read_script(tmp_path / "gone")


def test_faults_alone_leave_the_usual_event():
    faults = script_of({"event": [{"at": 1, "do": "fail garbage"}]})
    assert [line.words for line in faults.or_usual(("preempted",)).lines] == [
        ("preempted",),
        ("fail", "garbage"),
    ]
    assert MEANT.or_usual(("preempted",)) is MEANT


def test_moments():
    assert Moment.of("20") == Moment(20, 0.0)
    assert Moment.of("1.5s") == Moment(1, 1.5)
    for text in ("", "0", "-1", "x", "xs", "-1s", "nans", "1e9s"):
        with pytest.raises(ConfigurationError, match="--after"):
            Moment.of(text)


def test_every_emulator_of_the_registry_can_do_its_events(tmp_path):
    for row in EMULATORS.values():
        with row.start(tmp_path) as emulator:
            events = [row.maintenance, row.preemption, row.dated.format_map({"at": "x", "in": "5"})]
            check(Script(tuple(tuple(one.split()) for one in events if one)), emulator)


@pytest.mark.parametrize("words", [("boo",), ("preempted", "TRUE", "FALSE"), ("fail",)])
def test_what_an_emulator_cannot_do_is_found_before_anything_starts(words):
    with GceEmulator() as gce, pytest.raises(ConfigurationError, match=f"says '{words[0]}"):
        check(Script((words,)), gce)


def test_a_fault_that_there_is_not_is_found_before_anything_starts(tmp_path):
    script = Script((("fail", "nonsense"),))
    plan = RehearsalPlan(Rehearsed.MAINTENANCE, Moment(), script, None, 0, 1, 60.0, tmp_path)
    with GceEmulator() as gce, pytest.raises(ConfigurationError, match="'nonsense' is no fault"):
        perform(plan, None, gce, print)
