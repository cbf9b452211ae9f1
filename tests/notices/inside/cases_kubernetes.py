"""A pod's cluster: watches that end, are forgotten or forbidden, tokens that change, TLS."""

from __future__ import annotations

import ssl
import subprocess
import time

import pytest

from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.notices import kubernetes as source
from holdfast.testing.kubernetes import NODE, NODES, POD, PODS, KubernetesEmulator

S = 10**9
IMPENDING = "cloud.google.com/impending-node-termination"
AT, ACTIVE = (
    f"cloud.google.com/{name}" for name in ("scheduled-maintenance-time", "active-node-maintenance")
)
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def account(tmp_path):
    folder = tmp_path / ACCOUNT
    folder.mkdir(parents=True)
    (folder / "token").write_text("first\n")
    (folder / "namespace").write_text("ml")
    return folder


@pytest.fixture
def cluster():
    with KubernetesEmulator() as emulator:
        yield emulator


@pytest.fixture
def watching(cluster, account, listening, tmp_path):
    """`watching()`: listens, and the watches are open."""

    def begin(folders=frozenset({PODS, NODES}), **more):
        option = f"kubernetes:{cluster.url}"
        watching = listening(
            option, environment={"HOSTNAME": POD}, root=tmp_path, naps=True, **more
        )
        watching.until(lambda: set(cluster.watching) >= folders)
        return watching

    return begin


def test_what_the_node_and_the_pod_announce_is_told_once(cluster, watching):
    watching = watching()
    cluster.do("taint", "example.com/of-no-interest")
    cluster.do("taint", IMPENDING)
    (told,) = watching.heard(1)
    assert (told.action, told.lead_ns) == (NoticeAction.TERMINATE, 30 * S)
    cluster.do("taint", IMPENDING, "-")
    assert watching.heard(2)[1].state is NoticeState.WITHDRAWN
    cluster.do("label", AT, str(int(time.time()) + 3600))
    told = watching.heard(3)[2]
    assert watching.leaves(told, 3600)
    cluster.do("label", ACTIVE, "ONGOING")
    on = watching.heard(4)[3]
    assert (on.key, on.state, on.deadline_ns) == (told.key, NoticeState.STARTED, None)
    cluster.do("delete-pod", "60", "PreemptionByScheduler")
    told = watching.heard(5)[4]
    assert watching.leaves(told, 60)
    assert told.words == "the pod is deleted: PreemptionByScheduler"
    cluster.do("remove-pod")
    on = watching.heard(6)[5]
    assert (on.key, on.state) == (told.key, NoticeState.STARTED)
    assert (len(watching.notices), watching.said) == (6, [])


def test_a_watch_goes_on_from_where_it_ended_and_from_the_start_where_that_is_forgotten(
    cluster, watching
):
    def lists():
        return sum("watch" not in request.query for request in cluster.requests)

    watching = watching()
    listed = lists()
    asked = len(cluster.requests)
    cluster.do("bookmark")
    cluster.do("end")
    watching.until(lambda: len(cluster.requests) >= asked + 2)
    cluster.do("taint", IMPENDING)
    watching.heard(1)
    assert lists() == listed
    cluster.do("compact")
    watching.until(lambda: lists() >= listed + 2)
    cluster.do("taint", IMPENDING, "-")
    watching.heard(2)
    assert (len(watching.notices), watching.said) == (2, [])


def test_what_happened_while_the_connection_was_lost_is_told(cluster, watching, account):
    watching = watching()
    cluster.do("rotate", "second")  # the kubelet writes it a little later
    cluster.do("taint", "karpenter.sh/disrupted")
    assert watching.heard(1)[0].action is NoticeAction.DRAIN
    cluster.do("drop")
    watching.until(lambda: "status 401" in watching.standing.trouble)
    cluster.do("delete-pod")
    (account / "token").write_text("second")
    assert watching.heard(2)[1].words == "the pod is deleted"
    watching.answered()


def test_where_nodes_are_forbidden_it_is_said_once_and_the_pod_is_watched(cluster, watching):
    cluster.do("forbid", "nodes")
    cluster.do("taint", IMPENDING)
    watching = watching({PODS})
    cluster.do("delete-pod")
    assert watching.heard(1)[0].words == "the pod is deleted"
    watching.until(lambda: sum(request.path == NODES for request in cluster.requests) > 5)
    assert [level for level, _ in watching.said] == ["warning"]
    assert "may not list and watch /api/v1/nodes" in watching.said[0][1]
    assert sum(one.path == PODS and "watch" in one.query for one in cluster.requests) == 1
    cluster.do("allow", "nodes")
    assert watching.heard(2)[1].words == f"taint {IMPENDING}"
    assert [level for level, _ in watching.said] == ["warning", "info"]


@pytest.mark.parametrize(
    "environment", [{"HOSTNAME": "trainer", "NODE_NAME": NODE}, {"POD_NAME": POD, "NODE_NAME": "x"}]
)
def test_a_pod_or_node_that_the_cluster_does_not_know_is_trouble(
    cluster, account, listening, tmp_path, environment
):
    watching = listening(f"kubernetes:{cluster.url}", environment=environment, root=tmp_path)
    watching.until(lambda: watching.said)
    (said,) = watching.said
    assert "set POD_NAME and NODE_NAME" in said[1]
    watching.until(lambda: cluster.watching)  # the other one is watched all the same


@pytest.mark.parametrize("stopped", ["nodes", "pods"])
def test_the_trouble_with_one_object_does_not_stop_the_watch_of_the_other(
    cluster, account, listening, tmp_path, stopped
):
    cluster.do("refuse", f"/{stopped}", "503")
    environment = {"HOSTNAME": POD, "NODE_NAME": NODE}
    watching = listening(
        f"kubernetes:{cluster.url}", environment=environment, root=tmp_path, naps=True
    )
    watching.until(lambda: watching.standing.failures > 3)
    asked = len(cluster.watching)
    assert asked == 1
    cluster.do(*(("delete-pod",) if stopped == "nodes" else ("taint", IMPENDING)))
    assert watching.heard(1)[0].action is NoticeAction.TERMINATE


@pytest.mark.parametrize("how", ["status", "html", "garbage", "giant", "redirect", "cut"])
def test_trouble_is_counted_said_once_and_over(cluster, watching, how):
    watching = watching()
    cluster.do("fail", how, "2")
    cluster.do("drop")
    watching.until(lambda: watching.standing.failures >= 1)
    watching.answered()
    assert not any(request.path == "/elsewhere" for request in cluster.requests)
    cluster.do("delete-pod")
    assert watching.heard(1)


def test_a_watch_that_never_begins_is_trouble(cluster, watching, monkeypatch):
    watching = watching()
    monkeypatch.setattr(source, "PATIENCE_S", 0.2)
    cluster.do("fail", "hang", "2")
    cluster.do("end")
    watching.until(lambda: watching.said)
    assert "a watch has not begun within 0.2 s" in watching.said[0][1]
    monkeypatch.undo()
    cluster.do("delete-pod")
    assert watching.heard(1)


def test_dates_are_put_on_our_clock_by_the_clusters_calendar(cluster, watching):
    watching = watching(skew_ns=7200 * S)
    cluster.do("delete-pod", "60")
    assert watching.leaves(watching.heard(1)[0], 60)


def test_a_cluster_is_believed_by_its_own_authority_alone(account, listening, tmp_path):
    for name in ("ca", "other"):
        _certificate(tmp_path, name)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "ca.pem", tmp_path / "ca.key")
    (account / "ca.crt").write_bytes((tmp_path / "other.pem").read_bytes())
    with KubernetesEmulator(tls=tls) as cluster:
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(cluster.port),
            "POD_NAME": POD,
            "NODE_NAME": NODE,
        }
        watching = listening("auto", environment=environment, root=tmp_path, naps=True)
        watching.until(lambda: watching.standing.failures > 1)
        assert "certificate verify failed" in watching.said[0][1]
        assert cluster.requests == []
        (account / "ca.crt").write_bytes((tmp_path / "ca.pem").read_bytes())
        watching.until(lambda: set(cluster.watching) >= {PODS, NODES})
        cluster.do("taint", IMPENDING)
        watching.heard(1)


def _certificate(folder, name):
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
