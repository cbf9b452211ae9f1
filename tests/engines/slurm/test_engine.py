"""What Slurm's programs are asked, and what is made of their answers; no program is started."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.hosts.engine import EngineWait, Submission
from holdfast.engines.protocol import EngineError, Ordered
from holdfast.engines.registry import engine_here
from holdfast.engines.slurm import OPTIONS, end_job, make, waits
from holdfast.engines.slurm.engine import SlurmCluster
from holdfast.errors import ConfigurationError

SAID = Path(__file__).with_name("said")
LM = Submission("slurm", "lm", "0123456789ab", "/shared/runs", 3, 1, ("python", "train.py"))
ORDER = Ordered(LM, "1", "job 1 of Slurm", 0)


def said(name: str) -> str:
    return (SAID / f"{name}.txt").read_text("utf-8")


class Programs:
    """Answers by the beginning of a command line; the longest that fits."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.scripts: list[str] = []
        self.environments: list[dict[str, str]] = []
        self.answers: dict[str, str | Exception | int] = {
            "scontrol --all --oneliner show partition": said("partitions"),
            "scontrol --oneliner show job": said("job-running"),
            "scontrol --oneliner show node": said("nodes"),
            "scontrol show hostnames": "h0\nh1\nh2\nh3\n",
            "scontrol show config": said("config"),
            "sbatch": "17\n",
            "squeue": said("queue"),
        }

    def run(self, words: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
        line = " ".join([Path(words[0]).name, *words[1:]])
        self.asked.append(line)
        self.scripts.append(how["input"])
        self.environments.append(how["env"])
        fits = [begin for begin in self.answers if line.startswith(begin)]
        answer = self.answers[max(fits, key=len)] if fits else ""
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(words, 0, answer, "")

    def fails(self, begin: str, complaint: str) -> None:
        self.answers[begin] = subprocess.CalledProcessError(1, begin, stderr=complaint)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs()

    def run(words: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
        try:
            return found.run(words, **how)
        except subprocess.CalledProcessError as error:
            return subprocess.CompletedProcess(words, 1, "", error.stderr)

    monkeypatch.setattr(subprocess, "run", run)
    for name in ("sbatch", "scontrol", "squeue", "scancel"):
        (tmp_path / name).touch(mode=0o755)
    return found


@pytest.fixture
def slurm(programs: Programs, tmp_path: Path) -> SlurmCluster:
    return make({}, {"PATH": str(tmp_path), "SLURM_CONF": "/c", "SLURM_NTASKS": "9", "USER": "ann"})


def with_options(**options: str) -> Submission:
    return Submission("slurm", "lm", "id", "/runs", 3, 1, ("true",), options=tuple(options.items()))


def test_a_job_is_submitted_with_the_callers_environment_and_not_with_another_jobs_size(
    slurm: SlurmCluster, programs: Programs
) -> None:
    ordered = slurm.submit(LM)
    assert (ordered.job, ordered.words) == ("17", "job 17 of Slurm")
    assert programs.asked[-1] == "sbatch --parsable"
    assert "--grace 25" in programs.scripts[-1]
    passed_on = programs.environments[-1]
    assert passed_on.keys() == {"PATH", "SLURM_CONF", "USER"}
    assert programs.environments[0]["TZ"] == "UTC"


def test_variables_of_sbatch_do_not_count_for_more_than_the_script(
    programs: Programs, tmp_path: Path
) -> None:
    own = {"PATH": str(tmp_path), "SBATCH_SIGNAL": "B:USR1", "SBATCH_NO_REQUEUE": "1"}
    own |= {"SBATCH_TIMELIMIT": "5", "SBATCH_PARTITION": "low", "SBATCH_WCKEY": "w"}
    make({}, own).submit(with_options(time="10"))
    assert programs.environments[-1].keys() == {"PATH", "SBATCH_PARTITION", "SBATCH_WCKEY"}
    make({}, own).submit(with_options(sbatch="-p=high"))
    assert programs.environments[-1].keys() == {"PATH", "SBATCH_TIMELIMIT", "SBATCH_WCKEY"}
    with pytest.raises(ConfigurationError, match="time=2 is over before the run has begun"):
        make({}, own | {"SBATCH_TIMELIMIT": "2"}).check(LM)
    own["SBATCH_PARTITION"] = "nowhere"
    with pytest.raises(ConfigurationError, match="there is no partition 'nowhere'"):
        make({}, own).check(LM)


@pytest.mark.parametrize("answer", ["", "no\n", "1" * 13])
def test_a_number_that_is_none(slurm: SlurmCluster, programs: Programs, answer: str) -> None:
    programs.answers["sbatch"] = answer
    with pytest.raises(EngineError, match="instead of a job's number"):
        slurm.submit(LM)


def test_of_several_clusters_the_jobs_number_counts(
    slurm: SlurmCluster, programs: Programs
) -> None:
    programs.answers["sbatch"] = "17;east\n"
    ordered = slurm.submit(LM)
    assert (ordered.job, ordered.words) == ("17", "job 17 of Slurm (cluster east)")


def test_a_job_of_that_number_on_another_cluster_is_left_alone(
    slurm: SlurmCluster, programs: Programs
) -> None:
    other = said("job-running").replace(LM.run_id, "fedcba987654")
    programs.answers["scontrol --oneliner show job"] = other
    for ask in (slurm.standing, slurm.release, lambda one: slurm.replace(one, "h1", "")):
        with pytest.raises(EngineError, match=r"job 1 is 'lm' here, .* SLURM_CLUSTERS"):
            ask(ORDER)
    assert not [line for line in programs.asked if line.startswith(("scancel", "scontrol update"))]
    # A site may put words of its own into the comment.
    programs.answers["scontrol --oneliner show job"] = other.replace("holdfast:fedcba987654", "x")
    assert not slurm.standing(ORDER).is_over


def test_variables_that_hide_jobs_are_not_passed_on(programs: Programs, tmp_path: Path) -> None:
    """With SQUEUE_STATES=RUNNING a job that waits is not told, with SCANCEL_STATE not ended."""
    own = {"PATH": str(tmp_path), "SQUEUE_STATES": "RUNNING", "SCANCEL_STATE": "PENDING"}
    own |= {"SCONTROL_ALL": "1", "SRUN_CPUS_PER_TASK": "64", "SLURM_CLUSTERS": "west"}
    cluster = make({}, own)
    cluster.find(LM.run_id)
    cluster.release(ORDER)
    assert {*programs.environments[0]} == {"PATH", "SRUN_CPUS_PER_TASK", "SLURM_CLUSTERS", "TZ",
                                           "LC_ALL"}  # fmt: skip
    assert programs.environments[-1] == programs.environments[0]
    cluster.submit(LM)
    assert "SRUN_CPUS_PER_TASK" not in programs.environments[-1]


def test_of_an_arrays_tasks_the_one_that_asks_is_told_of(
    programs: Programs, tmp_path: Path
) -> None:
    """Slurm 22.05 tells of all tasks under the number of the one that has the array's."""
    first = said("job-running").strip().replace("JobId=1 ", "JobId=2 ArrayJobId=1 ArrayTaskId=0 ")
    last = said("job-running").replace("JobId=1 ", "JobId=1 ArrayJobId=1 ArrayTaskId=1 ")
    first = first.replace("StartTime=2026-11-27T01:50:38", "StartTime=2026-11-27T01:59:38")
    programs.answers["scontrol --oneliner show job"] = f"{first}\n{last}"
    (found,) = waits({"PATH": str(tmp_path), "SLURM_JOB_ID": "1"})
    assert found.end_unix_ns - found.start_unix_ns == 1_000_000_000


def test_the_program_on_the_nodes_may_have_blanks_in_its_path(
    slurm: SlurmCluster, programs: Programs
) -> None:
    slurm.submit(with_options(program="'/opt/my tools/python' -m holdfast"))
    assert "\n    '/opt/my tools/python' -m holdfast run --name lm" in programs.scripts[-1]


def test_no_slurm_is_said_in_a_sentence(programs: Programs, tmp_path: Path) -> None:
    nowhere = make({}, {"PATH": str(tmp_path / "none")})
    with pytest.raises(ConfigurationError, match="sbatch is not in PATH"):
        nowhere.check(LM)
    assert "#SBATCH --nodes=4" in nowhere.preview(LM)
    with pytest.raises(EngineError, match="squeue is not in PATH"):
        nowhere.find("id")


def test_a_controller_that_is_away_is_said_in_a_sentence(
    slurm: SlurmCluster, programs: Programs
) -> None:
    away = "slurm_load_partitions error: Unable to contact slurm controller (connect failure)"
    programs.fails("scontrol --all --oneliner show partition", away)
    with pytest.raises(EngineError, match="no controller of Slurm answers here; scontrol says"):
        slurm.check(LM)
    programs.answers["squeue"] = subprocess.TimeoutExpired("squeue", 60)
    with pytest.raises(EngineError, match="has not answered"):
        slurm.find("id")


def test_a_slurm_that_is_not_set_up_is_said_in_a_sentence(
    slurm: SlurmCluster, programs: Programs
) -> None:
    """What scontrol 22.05 prints on a machine that has its package, and no cluster."""
    said = (
        "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "scontrol: error: fetch_config: DNS SRV lookup failed\n"
        "scontrol: error: _establish_config_source: failed to fetch config\n"
        "scontrol: fatal: Could not establish a configuration source"
    )
    programs.fails("scontrol --all --oneliner show partition", said)
    with pytest.raises(EngineError, match=r"^Slurm is installed here and not set up: it finds no"):
        slurm.check(LM)


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid qos specification",
            "--option qos: Slurm does not let you use that quality of service here; sbatch says "
            "'Batch job submission failed: Invalid qos specification'",
        ),
        (
            "sbatch: unrecognized option '--exclusve'\nTry \"sbatch --help\" for more information",
            '--option sbatch: there is no such option; sbatch says "unrecognized option',
        ),
        ("sbatch: error: Something new", "Slurm has refused `sbatch --parsable`; sbatch says 'Som"),
        ("", "Slurm has refused `sbatch --parsable`, with code 1"),
    ],
)
def test_what_slurm_says_stands_after_a_sentence_of_ours(
    slurm: SlurmCluster, programs: Programs, complaint: str, words: str
) -> None:
    programs.fails("sbatch", complaint)
    with pytest.raises(EngineError) as refused:
        slurm.submit(LM)
    assert str(refused.value).startswith(words)


def test_a_folder_for_outputs_must_be_there(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.check(with_options(output=str(tmp_path)))
    with pytest.raises(ConfigurationError, match="no such folder"):
        slurm.check(with_options(output=str(tmp_path / "none")))


def test_a_job_that_slurm_has_forgotten_is_over(slurm: SlurmCluster, programs: Programs) -> None:
    programs.fails(
        "scontrol --oneliner show job", "slurm_load_jobs error: Invalid job id specified"
    )
    assert slurm.standing(ORDER).is_over
    assert "is over already" in slurm.release(ORDER)
    assert not [line for line in programs.asked if line.startswith("scancel")]


def test_a_release_is_one_scancel(slurm: SlurmCluster, programs: Programs) -> None:
    assert slurm.find(LM.run_id) == "job 1 of Slurm"
    assert slurm.release(ORDER).startswith("job 1 of Slurm is cancelled")
    assert programs.asked[-1] == "scancel 1"


def test_a_bad_node_is_drained_as_far_as_the_user_may(
    slurm: SlurmCluster, programs: Programs
) -> None:
    assert slurm.replace(ORDER, "h1", "two\nlines").startswith("h1 is drained")
    assert programs.asked[-1] == "scontrol update nodename=h1 state=drain reason=two lines"
    assert "a spare takes its part" in slurm.replace(ORDER, "h1", "")
    alone = replace(ORDER, submission=replace(LM, spares=0))
    assert "the run has no spare, so it saves once and trains on" in slurm.replace(alone, "h1", "")
    with pytest.raises(ConfigurationError, match="'h9' is no node of job 1; it has h0, h1, h2, h3"):
        slurm.replace(ORDER, "h9", "")
    programs.fails("scontrol update", "slurm_update error: Invalid user id")
    with pytest.raises(EngineError, match="does not let you drain h1: its operators may"):
        slurm.replace(ORDER, "h1", "disk")


def test_from_within_a_job(programs: Programs, tmp_path: Path) -> None:
    inside = {"PATH": str(tmp_path), "SLURM_JOB_ID": "1"}
    assert engine_here(inside) == "slurm"
    (found,) = waits(inside)
    assert isinstance(found, EngineWait)
    assert found.kind == "queue"
    with pytest.raises(EngineError, match="no job of Slurm"):
        waits({"PATH": str(tmp_path), "SLURM_JOB_ID": "1;id"})


@pytest.mark.parametrize(
    ("state", "restarts", "again", "does"),
    [
        ("RUNNING", "2", False, "scancel 1"),
        ("RUNNING", "2", True, "scontrol requeue 1"),
        ("RUNNING", "3", True, ""),  # that is a later start
        ("COMPLETED", "2", False, ""),
        ("PENDING", "2", True, ""),
    ],
)
def test_a_job_without_its_script_is_ended_once(
    programs: Programs, tmp_path: Path, state: str, restarts: str, again: bool, does: str
) -> None:
    programs.answers["scontrol --oneliner show job"] = (
        f"JobId=1 JobState={state} Reason=None Restarts={restarts} NodeList=h[0-1]"
    )
    inside = {"PATH": str(tmp_path), "SLURM_JOB_ID": "1", "SLURM_RESTART_COUNT": "2"}
    assert bool(end_job(inside, again=again)) is bool(does)
    assert programs.asked[1:] == [does][: bool(does)]


def test_every_option_says_what_it_is() -> None:
    assert len({one.name for one in OPTIONS}) == len(OPTIONS)
    assert all(one.help for one in OPTIONS)
