"""Kubernetes as an engine, asked of an emulated cluster: orders, hosts, waits, and refusals."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.hosts.engine import EngineHost, EngineWait, HostStage
from holdfast.engines.kubernetes import kubeconfig
from holdfast.engines.kubernetes.api import MOST_ASKS
from holdfast.engines.kubernetes.engine import KubernetesEngine, waits_here
from holdfast.engines.kubernetes.kubeconfig import ClusterAccess
from holdfast.engines.kubernetes.standing import index_of, moment_ns, standing_of
from holdfast.engines.protocol import EngineError, Ordered
from holdfast.errors import ConfigurationError, HoldfastError, RunHeld
from holdfast.testing.kubernetes_jobs import JOB_SETS, JOBS, PODS

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from asked_cluster import NOW_S, RUN_ID, Asked, S, Unplugged, engine_of, names, submission

sys.path.pop(0)

JOBSET_API = "/apis/jobset.x-k8s.io/v1alpha2"


@pytest.fixture
def cluster() -> Iterator[Unplugged]:
    with Unplugged() as emulator:
        yield emulator


def taken(cluster: Unplugged, **options: str) -> tuple[KubernetesEngine, Ordered]:
    engine, wanted = engine_of(cluster, **options), submission(**options)
    engine.check(wanted)
    return engine, engine.submit(wanted)


def at_work(cluster: Unplugged, **options: str) -> tuple[KubernetesEngine, Ordered]:
    engine, order = taken(cluster, **options)
    for name in names(cluster):
        cluster.do("schedule", name)
        cluster.do("start", name)
    return engine, order


@pytest.mark.parametrize("kind", ["jobset", "job"])
def test_hosts_come_and_are_given_back(cluster: Unplugged, kind: str) -> None:
    engine, order = taken(cluster, kind=kind)
    assert order.words == f"{'JobSet' if kind == 'jobset' else 'Job'} lm in ml"
    assert engine.find(RUN_ID).endswith("lm")
    assert engine.find("0" * 12) == ""
    first, second = names(cluster)
    coming = [(one.index, one.stage) for one in engine.standing(order).hosts]
    assert coming == [(0, HostStage.COMING), (1, HostStage.COMING)]
    cluster.do("schedule", first)
    cluster.do("start", first)
    standing = engine.standing(order)
    assert standing.state == "1 of 2 pods run"
    assert standing.hosts == (
        EngineHost(first, HostStage.READY, 0), EngineHost(second, HostStage.COMING, 1))  # fmt: skip
    assert engine.release(order) == f"{order.words} is deleted"
    assert [one["metadata"].get("deletionTimestamp", "") for one in cluster.pods()] != [""]
    cluster.do("end", first, "75")
    standing = engine.standing(order)
    assert (standing.state, standing.is_over, names(cluster)) == ("deleted", True, [])
    assert engine.release(order) == f"{order.words} was not there"
    assert engine.find(RUN_ID) == ""


@pytest.mark.parametrize(
    ("code", "state", "is_made_again"),
    [
        ("75", "1 of 2 pods run", True),
        ("69", "1 of 2 pods run", True),
        ("137", "1 of 2 pods run", True),
        ("1", "failed: PodFailurePolicy", False),
        ("78", "failed: PodFailurePolicy", False),
    ],
)
def test_each_end_of_a_pod_has_its_answer(
    cluster: Unplugged, code: str, state: str, is_made_again: bool
) -> None:
    engine, order = at_work(cluster)
    cluster.do("end", names(cluster)[0], code)
    standing = engine.standing(order)
    assert (standing.state, standing.is_over) == (state, not is_made_again)
    assert (standing.hosts[0].stage is HostStage.COMING) == is_made_again
    assert len(names(cluster)) == 2 + is_made_again


def test_a_disruption_makes_all_slices_again_and_a_bug_none(cluster: Unplugged) -> None:
    slices = {"hosts": 8, "topology": "4x4", "accelerator": "tpu-v6e-slice"}
    engine, order = at_work(cluster, **slices)
    assert [one.index for one in engine.standing(order).hosts] == list(range(8))
    for _ in range(3):
        before = names(cluster)
        cluster.do("evict", before[5], "PreemptionByScheduler")
        host = engine.standing(order).hosts[5]
        assert (host.stage, host.deadline_unix_ns) == (HostStage.DRAINING, (NOW_S + 60) * S)
        assert "PreemptionByScheduler" in host.reason
        cluster.do("end", before[5], "75")
        for name in set(before) & set(names(cluster)):
            cluster.do("end", name, "75")
        assert len(names(cluster)) == 8
        assert not set(before) & set(names(cluster))
    cluster.do("end", names(cluster)[0], "1")
    assert engine.standing(order).state == "failed: MaxFailedIndexesExceeded"


def test_a_pod_is_replaced_by_evicting_it(cluster: Unplugged) -> None:
    engine, order = at_work(cluster)
    first, second = names(cluster)
    assert "is evicted" in engine.replace(order, second, "slow")
    host = engine.standing(order).hosts[1]
    assert (host.name, host.stage) == (second, HostStage.DRAINING)
    cluster.do("end", second, "75")
    assert engine.standing(order).hosts[1].name not in (first, second)
    with pytest.raises(ConfigurationError, match=f"has no pod 'lm-7'; it has {first}"):
        engine.replace(order, "lm-7", "slow")


def test_what_is_wrong_with_a_pod_is_said(cluster: Unplugged) -> None:
    engine, order = taken(cluster)
    first, second = names(cluster)
    cluster.do("unschedulable", first, "0/3 nodes are available: 3 Insufficient memory.")
    standing = engine.standing(order)
    words = "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."
    assert standing.state == f"0 of 2 pods run; {words}"
    assert standing.since_unix_ns == NOW_S * S
    cluster.do("schedule", first)
    cluster.do("wait", first, "ImagePullBackOff", 'Back-off pulling image "example/lm:1"')
    assert "ImagePullBackOff: Back-off pulling" in engine.standing(order).hosts[0].reason
    cluster.do("wait", first, "ContainerCreating")
    assert engine.standing(order).hosts[0].reason == ""
    lacks = 'exec: "holdfast": executable file not found in $PATH'
    no_holdfast = "its image has no `holdfast`"
    for code, reason, said, expected in (
        ("128", "StartError", lacks, no_holdfast), ("127", "Error", "", no_holdfast),
        ("137", "OOMKilled", "", "it needed more memory than its limit"),
        ("137", "Error", "", "it was killed"), ("3", "Error", "", "exit code 3"),
    ):  # fmt: skip
        cluster.do("end", second, code, reason, said)
        pods = [one for one in cluster.pods() if one["metadata"]["name"] == second]
        (host,) = standing_of({"spec": {}}, pods).hosts
        assert expected in host.reason


def test_a_queue_says_what_it_waits_for_and_since_when(cluster: Unplugged) -> None:
    cluster.do("queue")
    engine, order = taken(cluster, queue="team")
    standing = engine.standing(order)
    assert standing.state == "suspended: a queue starts it, or nobody does"
    uid = cluster.objects[f"{JOB_SETS}/lm"]["metadata"]["uid"]
    pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending",
               "lastTransitionTime": "2027-01-15T07:00:00Z",
               "message": "couldn't assign flavors to pod set hosts"}  # fmt: skip
    cluster.objects["/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads/lm"] = {
        "metadata": {"name": "lm", "ownerReferences": [{"uid": uid}]},
        "status": {"conditions": [pending]},
    }
    standing = engine.standing(order)
    assert standing.state == f"queued by Kueue: {pending['message']}"
    assert standing.since_unix_ns == moment_ns("2027-01-15T07:00:00+00:00")
    assert standing.hosts == ()
    cluster.do("admit", "lm")
    assert engine.standing(order).state == "0 of 2 pods run"


def test_pods_that_a_quota_forbids_are_said(cluster: Unplugged) -> None:
    cluster.do("limit", "pods", "exceeded quota: small, requested: limits.memory=64Gi")
    engine, order = taken(cluster)
    assert engine.standing(order).state == (
        "no pod can be made: Error creating: exceeded quota: small, requested: limits.memory=64Gi"
    )


def test_a_run_of_a_name_that_is_over_gives_it_to_the_next(cluster: Unplugged) -> None:
    engine, first = at_work(cluster)
    with pytest.raises(RunHeld, match="JobSet lm is there already: `holdfast release`"):
        engine.submit(submission())
    for name in names(cluster):
        cluster.do("end", name, "0")
    assert engine.standing(first).state == "done"
    next_run = engine.submit(replace(submission(), run_id="ba0987654321"))
    assert engine.standing(next_run).state == "0 of 2 pods run"
    assert engine.standing(first).state == "deleted"
    assert engine.release(first).endswith("was not there")
    assert engine.find("ba0987654321") == "JobSet lm"


def test_what_others_have_made_is_left_alone(cluster: Unplugged) -> None:
    cluster.objects[f"{JOB_SETS}/lm"] = {"metadata": {"name": "lm", "uid": "1"}, "spec": {}}
    with pytest.raises(RunHeld, match="that Holdfast has not made: say -o object=NAME"):
        engine_of(cluster).submit(submission())


def test_what_goes_with_it_is_applied_again_and_the_run_s_own_is_deleted(
    cluster: Unplugged,
) -> None:
    engine, order = taken(cluster, **{"with": "access,prepull"})
    kinds = [one["kind"] for one in cluster.objects.values() if "uid" in one["metadata"]]
    assert {"ServiceAccount", "RoleBinding", "ClusterRoleBinding", "DaemonSet"} <= set(kinds)
    pod = cluster.pods()[0]
    assert pod["spec"]["serviceAccountName"] == "holdfast"
    engine.release(order)
    left = {one["kind"] for one in cluster.objects.values() if "uid" in one["metadata"]}
    assert "DaemonSet" not in left
    assert "ServiceAccount" in left
    engine.submit(submission(**{"with": "access,prepull"}))
    patches = [one for one in cluster.requests if one.method == "PATCH"]
    assert len(patches) == 12


def refusal(cluster: Unplugged, *, namespace: str = "ml", **options: str) -> str:
    engine, wanted = engine_of(cluster, namespace=namespace, **options), submission(**options)
    with pytest.raises(HoldfastError) as error:
        (engine.check(wanted), engine.submit(wanted))
    assert "\n" not in str(error.value)
    assert names(cluster) == []
    return str(error.value)


def test_each_refusal_is_one_sentence_that_says_what_to_do(cluster: Unplugged) -> None:
    assert "has no namespace 'team': say" in (
        refusal(cluster, namespace="team").replace(" (the context lab of ~/.kube/config)", "")
    )
    cluster.do("deny", "get", "namespaces")  # then the order itself is told
    assert "has no namespace 'team'" in refusal(cluster, namespace="team")
    cluster.do("deny", "create", "jobsets")
    assert 'User "ada" cannot create resource "jobsets"' in refusal(cluster)
    assert 'in the namespace "ml"' in refusal(cluster)
    cluster.denied.clear()
    cluster.do("limit", "jobsets", "jobs, requested: count/jobsets=1, used: 4, limited: 4")
    words = refusal(cluster)
    assert "exceeded quota: jobs, requested: count/jobsets=1" in words
    assert words.endswith("ask for less, or for a larger quota")
    cluster.quota.clear()
    cluster.do("lack", JOBSET_API)
    assert "has no JobSet" in refusal(cluster)
    assert "say -o kind=job" in refusal(cluster)
    cluster.do("rotate", "another")
    words = refusal(cluster, kind="job")
    assert "does not know who asks (the context lab of ~/.kube/config): log in again" in words
    cluster.do("rotate", "")
    taken(cluster, kind="job")


def test_an_order_counts_only_in_the_cluster_that_took_it(cluster: Unplugged) -> None:
    _, order = at_work(cluster)
    with Unplugged() as other:
        other.url = "http://other.test:6443"
        at_work(other)
        for ask in (engine_of(other).release, engine_of(other).standing):
            with pytest.raises(EngineError, match=r"was asked of http://cluster\.test:6443"):
                ask(order)
        assert len(names(other)) == 2


def test_a_cluster_that_is_too_busy_is_asked_again_as_late_as_it_says(cluster: Unplugged) -> None:
    asked = Asked(cluster)
    cluster.do("throttle", 3)
    assert len(asked.items(PODS)) == 1  # the emulator's own
    assert asked.pauses == [1, 1, 1]
    cluster.do("throttle", 100)
    with pytest.raises(EngineError, match=r"refuses \(429\): Too many requests"):
        asked.get(PODS)
    assert len(asked.pauses) == 3 + MOST_ASKS


@pytest.mark.parametrize("later", ["", "soon", "-1", "0.5", "²", "21", "9" * 5000])
def test_a_cluster_that_is_busy_for_longer_or_names_no_time_is_told(
    cluster: Unplugged, later: str
) -> None:
    asked = Asked(cluster)
    cluster.do("throttle", 2, later)
    with pytest.raises(EngineError, match=r"refuses \(429\): Too many requests"):
        asked.get(PODS)
    assert (asked.pauses, cluster.busy) == ([], 1)


def test_a_list_is_read_page_by_page_and_anew_where_its_version_is_forgotten(
    cluster: Unplugged,
) -> None:
    engine, order = taken(cluster, hosts=25)  # type: ignore[arg-type]
    cluster.page = 10
    asked = Asked(cluster)
    assert len(asked.items(PODS)) == 26  # with the emulator's own
    forgotten = iter([True, False])
    listed = cluster._list

    def forget(request):
        if "continue" in request.query and next(forgotten, False):
            cluster.do("compact")
        return listed(request)

    cluster._list = forget
    before = len(cluster.requests)
    assert len(engine.standing(order).hosts) == 25
    lists = [one for one in cluster.requests[before:] if one.path == PODS]
    assert len(lists) == 5  # one page, one that is refused, and three
    cluster._list = lambda request: (cluster.do("compact"), listed(request))[1]
    with pytest.raises(EngineError, match="faster than it can be read"):
        engine.standing(order)


def test_a_start_tells_what_it_has_waited_for(cluster: Unplugged) -> None:
    cluster.do("queue")
    _, _ = taken(cluster)
    cluster.now_s += 100
    cluster.do("admit", "lm")
    first, second = names(cluster)
    cluster.do("event", first, "TriggeredScaleUp", "5")
    cluster.now_s += 60
    cluster.do("schedule", first)
    ours = "spec.containers{holdfast}"
    cluster.do("event", first, "Pulling", "1", ours)
    cluster.do("event", first, "Pulled", "31", ours)
    cluster.do("event", first, "Pulled", "40", "spec.containers{istio}")
    cluster.now_s += 33
    cluster.do("start", first)
    told = waits_here(Asked(cluster), {"POD_NAME": first, "POD_NAMESPACE": "ml"})
    at = [0, 105, 160, 161, 191, 193]
    assert told == tuple(
        EngineWait(kind, (NOW_S + start) * S, (NOW_S + end) * S)
        for kind, start, end in (
            ("queue", at[0], at[1]), ("provision", at[1], at[2]), ("pull", at[3], at[4]),
            ("boot", at[4], at[5]),
        )
    )  # fmt: skip
    cluster.do("deny", "list", "events")
    told = waits_here(Asked(cluster), {"POD_NAME": first})
    assert [one.kind for one in told] == ["queue", "boot"]
    assert waits_here(Asked(cluster), {}) == ()
    assert waits_here(Asked(cluster), {"POD_NAME": "gone"}) == ()
    # A pod that is made again has waited since it was made.
    cluster.denied.clear()
    cluster.now_s += 3600
    cluster.do("end", first, "75")
    again = names(cluster)[1] if names(cluster)[0] == first else names(cluster)[0]
    cluster.now_s += 7
    cluster.do("schedule", again)
    cluster.do("start", again)
    (wait,) = waits_here(Asked(cluster), {"POD_NAME": again})
    assert (wait.kind, wait.end_unix_ns - wait.start_unix_ns) == ("queue", 7 * S)
    assert second in names(cluster)


RUBBISH = [None, 3, "x", [], {}, {"metadata": 3}, {"status": {"conditions": [3, {"type": []}]}},
           {"spec": {"replicatedJobs": [{"replicas": "2"}]}, "status": []},
           {"metadata": {"creationTimestamp": "soon", "labels": {"a": 1}}}]  # fmt: skip


@pytest.mark.parametrize("pod", [one for one in RUBBISH if isinstance(one, dict)])
@pytest.mark.parametrize("top", [one for one in RUBBISH if isinstance(one, dict)])
def test_whatever_is_missing_is_not_known(top: dict, pod: dict) -> None:
    standing = standing_of(top, [pod], [pod], [pod])
    assert [one.index for one in standing.hosts] == [None]
    assert index_of(pod, 1) is None


def test_words_of_the_cluster_are_safe_on_a_terminal(cluster: Unplugged) -> None:
    engine, order = taken(cluster)
    cluster.do("unschedulable", names(cluster)[0], "\x1b[31m0 nodes\u202e" + "x" * 999)
    standing = engine.standing(order)
    event = {"reason": "FailedCreate", "message": "\x1b[31mno\u202e"}
    refused = standing_of({"spec": {}}, (), [event]).state
    for words in (standing.state, standing.hosts[0].reason, refused):
        assert "\x1b" not in words
        assert "\u202e" not in words
        assert len(words) < 300


def test_a_job_is_found_whichever_kind_is_asked_for(cluster: Unplugged) -> None:
    cluster.do("lack", JOBSET_API)
    taken(cluster, kind="job")
    assert f"{JOBS}/lm" in cluster.objects
    assert (
        engine_of(cluster).find(RUN_ID) == engine_of(cluster, kind="job").find(RUN_ID) == "Job lm"
    )


def test_pods_of_others_with_the_same_labels_are_no_hosts(cluster: Unplugged) -> None:
    engine, order = taken(cluster)
    labels = {"app.kubernetes.io/instance": "lm"}  # as of a chart that is called so
    cluster.objects[f"{PODS}/other"] = {
        "metadata": {"name": "other", "labels": labels}, "status": {}}  # fmt: skip
    assert [one.name for one in engine.standing(order).hosts] == names(cluster)


def test_what_is_left_beside_a_run_that_was_given_back_is_said(cluster: Unplugged) -> None:
    engine, order = taken(cluster, **{"with": "prepull"})
    cluster.do("deny", "delete", "daemonsets")
    gone, _, left = engine.release(order).partition(", and ")
    assert gone == "JobSet lm in ml is deleted"
    assert left.startswith("the DaemonSet lm-prepull is still there")
    assert "(403)" in left


def test_a_token_that_has_expired_is_asked_for_anew(cluster: Unplugged) -> None:
    """A plugin's, or a service account's in its file, is good for an hour, and a run for longer."""
    words = "a plugin"

    def renew() -> ClusterAccess:
        headers = {"Authorization": f"Bearer {tokens.pop(0)}"}
        return ClusterAccess(cluster.url, "ml", words, headers)

    tokens = ["first", "second", "second", "second"]
    asked = Asked(cluster, renew=renew)
    for token in ("first", "second"):
        cluster.do("rotate", token)
        assert len(asked.items(PODS)) == len(asked.items(PODS)) == 1
    cluster.do("rotate", "third")
    with pytest.raises(EngineError, match="does not know who asks"):
        asked.items(PODS)
    assert len(tokens) == 1

    def fails() -> ClusterAccess:
        raise ConfigurationError("~/.kube/config is no kubeconfig")

    with pytest.raises(EngineError, match="does not know who asks"):
        Asked(cluster, renew=fails).items(PODS)
    elsewhere = ClusterAccess("http://other.test:6443", "ml", words, {"Authorization": "Bearer x"})
    with pytest.raises(EngineError, match="does not know who asks"):
        Asked(cluster, renew=lambda: elsewhere).items(PODS)
    assert "Bearer x" not in [one.headers.get("authorization") for one in cluster.requests]


def test_a_plugin_that_wants_to_know_the_cluster_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`provideClusterInfo`: without it, client-go's own helper for plugins refuses."""
    told: list[dict[str, Any]] = []

    def run(words: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
        told.append(json.loads(how["env"]["KUBERNETES_EXEC_INFO"])["spec"])
        return subprocess.CompletedProcess(words, 0, b'{"status": {"token": "t"}}', b"")

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / "ca.pem").write_text("PEM")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "lab"}}
    about = {"server": "http://k:1", "certificate-authority": "ca.pem", "extensions": [extension]}
    plugin: dict[str, object] = {"command": "plugin", "provideClusterInfo": True}
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": about}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    for wants_it in (True, False):
        plugin["provideClusterInfo"] = wants_it
        (tmp_path / "config").write_text(json.dumps(config))
        access = kubeconfig.of_config([tmp_path / "config"], "", "", {})
        assert access.headers == {"Authorization": "Bearer t"}
    authority = base64.b64encode(b"PEM").decode()
    known = {"server": "http://k:1", "certificate-authority-data": authority}
    assert told == [
        {"interactive": False, "cluster": known | {"config": {"audience": "lab"}}},
        {"interactive": False},
    ]


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ("gke-gcloud-auth-plugin", "names no command"),
        ({"args": ["x"]}, "names no command"),
        (
            {"command": "true", "env": [{"value": "x"}]},
            "the credential plugin 'true' gives nothing",
        ),
        ({"command": "true", "env": 3}, "the credential plugin 'true' gives nothing"),
    ],
)
def test_a_plugin_that_is_none_is_one_sentence(tmp_path: Path, plugin: object, words: str) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    with pytest.raises(HoldfastError, match=words):
        kubeconfig.of_config([path], "", "", {})


def test_a_client_s_key_lies_in_no_folder() -> None:
    user = {"client-key-data": base64.b64encode(b"a key").decode()}
    with kubeconfig._as_file(user, "client-key", Path("/none")) as path:
        assert Path(path).read_bytes() == b"a key"
        assert str(Path(path).readlink()).startswith("/memfd:")
    assert not Path(path).exists()
