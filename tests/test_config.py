"""Settings: who wins, what is refused, what the reference says; and what a rank is told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import config
from holdfast.config import rank_environment, resolve, run_store, session_settings
from holdfast.config.metadata_servers import keep_from_proxy
from holdfast.config.rank import (
    OWNER_VARIABLE,
    RankEnvironment,
    check_launcher,
    not_of_a_rank,
)
from holdfast.config.settings import TABLE, Settings
from holdfast.config.sources import ValueSource
from holdfast.core.hang import deadline as hang
from holdfast.errors import ConfigurationError

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# Sources


def test_each_source_beats_the_weaker_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def now(flags: dict[str, object] | None = None) -> tuple[int, ValueSource, str]:
        found = resolve(flags)
        return found.settings.local_ranks, *found.origins["ranks"]

    assert now() == (1, ValueSource.DEFAULT, "default")
    (tmp_path / "holdfast.toml").write_text("ranks = 2\ngrace_s = 1.5\n")
    assert now() == (2, ValueSource.FILE, "holdfast.toml")
    monkeypatch.setenv("HOLDFAST_RANKS", "3")
    assert now() == (3, ValueSource.ENVIRONMENT, "HOLDFAST_RANKS")
    assert now({"ranks": 4}) == (4, ValueSource.FLAG, "--ranks")
    assert now({"ranks": None}) == (3, ValueSource.ENVIRONMENT, "HOLDFAST_RANKS")
    monkeypatch.setenv("HOLDFAST_RANKS", "")
    assert now() == (2, ValueSource.FILE, "holdfast.toml")
    assert resolve().settings.grace_s == 1.5


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_strangers_file_in_the_working_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", "")  # to be put back
    file, script = tmp_path / "holdfast.toml", tmp_path / "train.py"
    file.write_text("ranks = 2\n")
    script.touch()
    os.chown(file, 65534, -1)
    with pytest.raises(ConfigurationError) as refused:
        resolve()
    assert str(refused.value).startswith("holdfast.toml in the working folder belongs to nobody, ")
    assert "name the file (--config, HOLDFAST_CONFIG) if you trust it" in str(refused.value)
    assert resolve(config_file="holdfast.toml").settings.ranks == 2  # who names it has chosen
    command = ["holdfast", "run", "--", "python3", "-u", "train.py"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(ConfigurationError):
        resolve()
    os.chown(script, 65534, -1)  # whose code is run, whose settings may be taken
    assert resolve().settings.ranks == 2
    config.pass_on_file()  # to processes beside the run, which are none of that owner's
    assert os.environ["HOLDFAST_CONFIG"] == str(file)
    monkeypatch.setenv("HOLDFAST_CONFIG", "")
    monkeypatch.setattr(sys, "argv", ["holdfast", "run", "--", "train.py"])
    with pytest.raises(ConfigurationError):  # a program of that name is looked for in PATH
        resolve()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_strangers_link_to_a_file_of_ours_is_refused(tmp_path: Path) -> None:
    ours = tmp_path / "ours.toml"
    ours.write_text("ranks = 2\n")
    (tmp_path / "holdfast.toml").symlink_to(ours)
    assert resolve().settings.ranks == 2
    os.chown(tmp_path / "holdfast.toml", 65534, -1, follow_symlinks=False)
    with pytest.raises(ConfigurationError, match="belongs to nobody"):
        resolve()


def test_a_pipe_that_nobody_named_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "holdfast.toml")
    with pytest.raises(ConfigurationError, match="is no file"):
        resolve()


def test_the_file_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sub" / "big.toml"
    file.parent.mkdir()
    file.write_text('store = "runs"\nscratch = "/fast"\n')
    assert resolve(config_file=str(file)).settings.store == str(file.parent / "runs")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    assert resolve().settings.scratch == "/fast"
    assert resolve().origins["store"].where == str(file)
    with pytest.raises(ConfigurationError, match="there is no configuration file elsewhere"):
        resolve(config_file="elsewhere.toml")


@pytest.mark.parametrize("place", ["~/s", "file:///s", "gs://b/s"])
def test_a_store_in_the_file_that_is_not_relative_stays(place: str) -> None:
    Path("holdfast.toml").write_text(f'store = "{place}"')
    assert resolve().settings.store == os.path.expanduser(place)  # noqa: PTH111


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("rank = 2", "holdfast.toml: 'rank' is not a setting; did you mean ranks?"),
        ("qqqq = 2", "'qqqq' is not a setting; see `holdfast config`"),
        ("ranks = ", "holdfast.toml is not TOML"),
        ('ranks = "two"', r"ranks = 'two' \(holdfast.toml\) is not valid: give a whole number"),
        ("ranks = 0", "give a whole number, 1 or more"),
        ("ranks = true", "is not valid"),
        ("ranks = 1.5", "is not valid"),
        ("grace_s = -1", r"grace_s = -1 .* give seconds"),
        ("grace_s = nan", "give seconds"),
        ("save_every_s = 0", "give seconds, more than 0"),
        ("grace_s = [1]", "give seconds"),
        ('status = "loud"', "give auto or live or plain or off"),
        ('name = ""', "give text"),
        ('name = "a\\u001b"', "give text"),
        ("store = 5", "give a folder"),
        ("[run]\nranks = 2", "'run' is not a setting"),
    ],
)
def test_a_file_that_cannot_be_meant(content: str, words: str) -> None:
    Path("holdfast.toml").write_text(content)
    with pytest.raises(ConfigurationError, match=words) as caught:
        resolve()
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 78


def test_a_file_that_cannot_be_read() -> None:
    Path("holdfast.toml").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigurationError, match=r"holdfast.toml cannot be read"):
        resolve()


def test_bad_variables_and_flags_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_GRACE_S", "soon")
    with pytest.raises(ConfigurationError, match=r"grace_s = 'soon' \(HOLDFAST_GRACE_S\)"):
        resolve()
    monkeypatch.delenv("HOLDFAST_GRACE_S")
    with pytest.raises(ConfigurationError, match=r"max_failures = 0 \(--max-failures\)"):
        resolve({"grace_s": 1, "max_failures": 0})


def test_a_misspelled_variable_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.strange_variables() == ()
    monkeypatch.setenv("HOLDFAST_STOER", "/x")
    monkeypatch.setenv("HOLDFAST_STORE", "/x")
    assert config.strange_variables() == (
        "HOLDFAST_STOER is not a variable of ours; did you mean HOLDFAST_STORE?",
    )


def test_what_a_session_and_a_command_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert session_settings().chips == 1
    assert session_settings().chips_of(4) == 4
    monkeypatch.setenv("HOLDFAST_CHIPS", "8")
    monkeypatch.setenv("HOLDFAST_STORE", "/s")
    assert session_settings().chips == 8
    assert session_settings().chips_of(4) == 8
    assert run_store(None) == "/s"
    assert run_store("/t") == "/t"
    assert Settings(ranks=3).total_chips == 3


@pytest.mark.parametrize(
    ("environ", "world"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4, "WORLD_SIZE")),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, "WORLD_SIZE")),
        ({"WORLD_SIZE": "1", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, (0, 1, "WORLD_SI")),
        ({"WORLD_SIZE": "", "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}, (1, 2, "JAX_NUM_PR")),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}, (0, 8, "SLURM_STEP_NUM_TASKS")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # a batch script is no rank
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, (2, 3, "OMPI_COMM_WORLD")),
    ],
)
def test_what_launchers_say(
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    world: tuple[int, int, str] | None,
) -> None:
    for rank, size in config._LAUNCHERS:
        monkeypatch.delenv(rank, raising=False)
        monkeypatch.delenv(size, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    told = config.launcher_world()
    assert (told is None) == (world is None)
    if told is not None and world is not None:
        assert told[:2] == world[:2]
        assert told[2].startswith(world[2])


@pytest.mark.parametrize("rank", ["", "4", "-1", "two"])
def test_a_rank_that_is_none(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(ConfigurationError, match=r"set RANK to this process's number, 0 to 3"):
        config.launcher_world()


def test_jax_keeps_off_sigterm_unless_the_user_wants_it_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAX_ENABLE_PREEMPTION_SERVICE", "true")
    assert not config.decline_jax_preemption()
    monkeypatch.setenv("JAX_ENABLE_PREEMPTION_SERVICE", "")
    assert config.decline_jax_preemption()
    assert os.environ["JAX_ENABLE_PREEMPTION_SERVICE"] == "false"


@pytest.mark.parametrize(
    ("environ", "name", "begins"),
    [
        ({}, "NO_PROXY", None),
        ({"HTTPS_PROXY": "p"}, "NO_PROXY", None),
        ({"HTTP_PROXY": "p"}, "NO_PROXY", "169.254.169.254,"),
        ({"all_proxy": "p", "no_proxy": "a, b"}, "no_proxy", "a,b,169.254.169.254,"),
        ({"http_proxy": "p", "NO_PROXY": "*"}, "NO_PROXY", "*"),
    ],
)
def test_a_metadata_server_is_asked_without_a_proxy(
    environ: dict[str, str], name: str, begins: str | None
) -> None:
    environ = dict(environ)
    keep_from_proxy(environ)
    once = dict(environ)
    keep_from_proxy(environ)
    assert environ == once
    assert environ.get(name, "")[: len(begins or "")] == (begins or "")
    assert (name in environ) == (begins is not None)


@pytest.mark.parametrize(("text", "answer"), [("", False), ("0", False), ("1", True)])
def test_debugging(monkeypatch: pytest.MonkeyPatch, text: str, answer: bool) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", text)
    assert config.debugging() is answer


# The table


def test_every_default_is_a_value_that_may_be_given() -> None:
    for row in TABLE:
        if row.default is not None:
            assert row.kind.parse(row.default) == row.default
            assert row.kind.parse(str(row.default)) == row.default
        assert row.default_words, row.name
        assert row.doc.endswith("."), row.name


def test_flags_and_variables_are_unique() -> None:
    assert len({row.flag for row in TABLE}) == len({row.variable for row in TABLE}) == len(TABLE)
    assert [row.name for row in TABLE] == [f.name for f in fields(Settings)]


def test_the_reference_has_the_table() -> None:
    lines = ["| key | flag | variable | value | default | meaning |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | `{row.flag}` | `{row.variable}` | {row.kind.words} "
        f"| {row.default_words} | {row.doc} |"
        for row in TABLE
    ]
    table = "\n".join(lines) + "\n"
    assert table in REFERENCE.read_text(), f"put this into {REFERENCE}:\n\n{table}"


# What a rank is told

RANK = RankEnvironment(
    run="r",
    run_id="0123abcd",
    store="/s",
    attempt=7,
    incarnation="ab-7-1",
    journal="/var/tmp/holdfast-0/r/rank-00001.hfj",
    resume_set="0006-000000041000",
    resume_step=41_000,
    resume_parent=6,
    skip_batches=20,
    ended_until=100,
    resume_from="/dev/shm/holdfast-0/r/ram/buffer-1",
    gate="/var/tmp/holdfast-0/r/attempt-0001/gate",
    ram="/dev/shm/holdfast-0/r/ram",
    ram_buffers=3,
    imports="/var/tmp/imports-rank-00000.json",
    chips=8,
    rank=1,
    local_rank=1,
    world_size=2,
    local_world_size=2,
    master_addr="127.0.0.1",
    master_port=29_500,
    coordinator_port=29_501,
    cache="/var/tmp/holdfast-0/run-1/cache",
)
WORDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1)


@pytest.mark.parametrize(
    ("given", "buffers"), [("auto", 3), ("off", 0), ("1", 1), (2, 2), ("3", 3)]
)
def test_how_many_snapshots_are_held_in_memory(given: object, buffers: int) -> None:
    assert config.resolve({"memory": given}).settings.memory_buffers == buffers


@pytest.mark.parametrize("given", ["0", 4, "many", True, 1.5, ""])
def test_a_number_of_snapshots_that_cannot_be_meant(given: object) -> None:
    with pytest.raises(ConfigurationError, match="how many snapshots, 1 to 3"):
        config.resolve({"memory": given})


def test_a_rank_reads_what_the_agent_wrote() -> None:
    assert RankEnvironment.from_environ(RANK.to_environ()) == RANK
    assert RankEnvironment.from_environ({"PATH": "/bin", "RANK": "0"}) is None
    scratch = replace(RANK, resume_set=None, resume_step=0, resume_parent=None)
    environ = scratch.to_environ()
    assert environ["HOLDFAST_RESUME"] == "none"
    assert RankEnvironment.from_environ(environ) == scratch


@given(WORDS, WORDS, st.integers(0, 2**40), st.none() | st.integers(0, 9999))
def test_every_value_survives(run: str, journal: str, step: int, parent: int | None) -> None:
    told = replace(RANK, run=run, journal=journal, resume_step=step, resume_parent=parent)
    assert RankEnvironment.from_environ(told.to_environ()) == told


def test_frameworks_are_told_by_their_own_variables() -> None:
    environ = RANK.launcher_variables()
    assert not environ.keys() & RANK.to_environ().keys()
    assert environ["RANK"] == environ["LOCAL_RANK"] == environ["JAX_PROCESS_ID"] == "1"
    assert environ["WORLD_SIZE"] == environ["LOCAL_WORLD_SIZE"] == environ["JAX_NUM_PROCESSES"]
    assert environ["MASTER_ADDR"] == "127.0.0.1"
    assert environ["MASTER_PORT"] == "29500"
    assert environ["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:29501"


def test_a_broken_contract_is_named() -> None:
    environ = RANK.to_environ()
    for variable in ("HOLDFAST_RUN", "HOLDFAST_RANK", "HOLDFAST_RESUME", "HOLDFAST_MASTER_PORT"):
        with pytest.raises(ConfigurationError, match=f"variable {variable} is ''"):
            RankEnvironment.from_environ({k: v for k, v in environ.items() if k != variable})
    with pytest.raises(ConfigurationError, match="variable HOLDFAST_ATTEMPT is 'x'"):
        RankEnvironment.from_environ(environ | {"HOLDFAST_ATTEMPT": "x"})


@pytest.mark.parametrize(
    "environ",
    [{}, {"RANK": "1"}, {"RANK": "1", "WORLD_SIZE": "2"}, {"RANK": "", "WORLD_SIZE": ""}],
)
def test_frameworks_are_told_of_the_runs_ranks(environ: dict[str, str]) -> None:
    check_launcher(1, 2, environ)


@pytest.mark.parametrize("environ", [{"RANK": "0"}, {"WORLD_SIZE": "4"}, {"RANK": "one"}])
def test_a_launcher_between_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"rank 1 of the run's 2, and .* say rank"):
        check_launcher(1, 2, environ)


def test_a_run_in_a_rank_has_ranks_of_its_own() -> None:
    theirs = {"WORLD_SIZE": "8", "PATH": "/bin"}
    assert not_of_a_rank(theirs) == theirs
    inside = RANK.to_environ() | RANK.launcher_variables() | {"PATH": "/bin"}
    assert not_of_a_rank(inside) == RANK.to_environ() | {"PATH": "/bin"}


def test_the_contract_is_not_taken_for_a_misspelling(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in RANK.to_environ().items():
        monkeypatch.setenv(name, value)
    assert config.strange_variables() == ()
    assert rank_environment() == RANK


CHILD = "from holdfast import config; print(config.inside_claimed())"


@pytest.mark.real
def test_a_child_of_the_claimed_process_knows_that_it_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_child(environ: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CHILD], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    monkeypatch.setenv(OWNER_VARIABLE, "")
    assert not config.inside_claimed()
    assert in_child(config.inherited_environment()) == "False"
    config.claim_rank()
    assert not config.inside_claimed()
    assert in_child(config.inherited_environment()) == "True"
    # A supervisor inside a rank starts its own ranks afresh.
    assert in_child(config.inherited_environment() | RANK.to_environ()) == "False"


@pytest.mark.real
def test_config_is_light() -> None:
    heavy = ["numpy", "click", "rich", "tomllib", "difflib", "json", "socket", "subprocess"]
    program = (
        "import sys, holdfast.config as c; c.session_settings(); "
        f"print(sorted(set({heavy}) & sys.modules.keys()))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (out.stdout.strip(), out.stderr) == ("[]", "")


def test_policies_follow_the_settings() -> None:
    from holdfast.core.run import restart
    from holdfast.core.save import policy as saves

    assert isinstance(Settings().save_policy(), saves.Optimal)
    assert Settings(save_every_s=1.5).save_policy() == saves.EverySeconds(1.5)
    assert Settings(save_every_steps=7).save_policy() == saves.EverySteps(7)
    assert Settings().snapshot_policy() == saves.IN_MEMORY
    assert Settings(snapshot_every_steps=2).snapshot_policy() == saves.EverySteps(2)
    both = Settings(save_every_s=10, save_every_steps=7).save_policy()
    view = saves.SaveView(now_ns=0, step=8, last_committed_step=0, last_committed_ns=0)
    assert both.decide(view)[0]
    assert not both.decide(view._replace(step=3))[0]
    failed = [
        restart.Failure(
            n, restart.ExitCause.KILLED, str(n), completed_before=5, completed_after=5, at_ns=n
        )
        for n in range(4)
    ]
    last, enough = Settings(max_failures=4), Settings(max_failures=5)
    assert isinstance(last.restart_policy().decide(failed, 9)[0], restart.GiveUp)
    assert isinstance(enough.restart_policy().decide(failed, 9)[0], restart.Restart)
    assert Settings().restart_policy() == restart.DEFAULT


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        (None, hang.HangPolicy()),
        ("auto", hang.HangPolicy()),
        ("off", hang.OFF),
        ("90", hang.HangPolicy(step_ns=90_000_000_000)),
        (0.5, hang.HangPolicy(step_ns=500_000_000)),
        ("auto:20", hang.HangPolicy(floor_ns=20_000_000_000)),
        ("auto:0.5", hang.HangPolicy(floor_ns=500_000_000)),
    ],
)
def test_when_a_run_counts_as_hung(given: object, policy: hang.HangPolicy) -> None:
    assert resolve({"hang": given}).settings.hang_policy() == policy


@pytest.mark.parametrize("given", ["on", "0", "-1", "", True, "1m", "auto:", "auto:0", "off:3"])
def test_a_deadline_that_cannot_be_meant(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"\(--hang\) is not valid: give auto, auto:"):
        resolve({"hang": given})


def test_no_secret_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.config import without_secrets

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abc/DEF+123")
    assert without_secrets("the key abc/DEF+123 is bad") == "the key *** is bad"
