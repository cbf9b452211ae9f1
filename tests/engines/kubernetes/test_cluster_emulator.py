"""The emulator answers as Kubernetes's documents have it, whoever asks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.emulator import HttpRequest, Reply
from holdfast.testing.kubernetes_jobs import JOBS, PODS

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from asked_cluster import Unplugged

sys.path.pop(0)

APPLY = {"content-type": "application/apply-patch+yaml"}


@pytest.fixture
def cluster() -> Iterator[Unplugged]:
    with Unplugged(invalid=lambda _: []) as emulator:
        yield emulator


def asked(
    cluster: Unplugged,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    **query: str,
) -> tuple[int, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    reply = cluster.answer(HttpRequest(method, path, query, headers or {}, data))
    assert isinstance(reply, Reply)
    text = reply.body
    return reply.status, json.loads(text) if str(text)[:1] == "{" else text


def job(**spec: Any) -> dict[str, Any]:
    container = {"name": "holdfast", "image": "a", "command": ["holdfast"]}
    template = {"spec": {"containers": [container]}}
    return {"kind": "Job", "metadata": {"name": "lm"}, "spec": {"template": template, **spec}}


def test_server_side_apply_makes_an_object_and_then_has_it_as_it_is_wished(
    cluster: Unplugged,
) -> None:
    path, wished = f"{JOBS}/lm", job()
    assert asked(cluster, "PATCH", path, wished, fieldManager="t")[0] == 415
    assert asked(cluster, "PATCH", path, wished, APPLY)[0] == 422
    status, made = asked(cluster, "PATCH", path, wished, APPLY, fieldManager="t")
    assert (status, made["metadata"]["namespace"]) == (201, "ml")
    wished["metadata"]["labels"] = {"a": "b"}
    status, again = asked(cluster, "PATCH", path, wished, APPLY, fieldManager="t")
    assert (status, again["metadata"]["labels"]) == (200, {"a": "b"})
    assert again["metadata"]["uid"] == made["metadata"]["uid"]
    versions = [int(one["metadata"]["resourceVersion"]) for one in (made, again)]
    assert versions[0] < versions[1]


def test_what_is_not_there_and_what_is_there_already(cluster: Unplugged) -> None:
    assert asked(cluster, "POST", JOBS, job())[0] == 201
    status, document = asked(cluster, "POST", JOBS, job())
    assert (status, document["reason"]) == (409, "AlreadyExists")
    elsewhere = JOBS.replace("/ml/", "/other/")
    status, document = asked(cluster, "POST", elsewhere, job())
    assert (status, document["details"]) == (404, {"name": "other", "kind": "namespaces"})
    assert asked(cluster, "GET", elsewhere) == (
        200, {"kind": "List", "metadata": {"resourceVersion": str(cluster.version)}, "items": []}
    )  # fmt: skip
    assert asked(cluster, "GET", f"{JOBS}/other")[0] == 404
    assert asked(cluster, "GET", "/apis/example.com/v1") == (404, "404 page not found\n")
    options = {"preconditions": {"uid": "another"}}
    assert asked(cluster, "DELETE", f"{JOBS}/lm", options)[0] == 409
    assert asked(cluster, "DELETE", f"{JOBS}/lm")[0] == 200
    assert asked(cluster, "DELETE", f"{JOBS}/lm")[0] == 404


def test_a_job_s_pods_know_their_index_and_are_made_again(cluster: Unplugged) -> None:
    asked(cluster, "POST", JOBS, job(completions=2, completionMode="Indexed", backoffLimit=1))
    pods = cluster.pods()
    told = [one["spec"]["containers"][0]["env"][-1] for one in pods]
    assert told == [{"name": "JOB_COMPLETION_INDEX", "value": str(index)} for index in (0, 1)]
    for count in (3, 3):  # the second failure is one too many
        newest = cluster.pods()[-1]["metadata"]["name"]
        cluster.do("end", newest, "3")
        assert len(cluster.pods()) == count
    (condition,) = cluster.objects[f"{JOBS}/lm"]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Failed", "BackoffLimitExceeded")


def test_a_list_comes_in_pages_of_one_version(cluster: Unplugged) -> None:
    asked(cluster, "POST", JOBS, job(completions=5))
    mine = {"labelSelector": "batch.kubernetes.io/job-name=lm", "limit": "2"}
    _, first = asked(cluster, "GET", PODS, **mine)
    more = first["metadata"]["continue"]
    _, second = asked(cluster, "GET", PODS, **mine, **{"continue": more})
    seen = [one["metadata"]["name"] for page in (first, second) for one in page["items"]]
    assert len({*seen}) == 4
    cluster.do("compact")
    status, document = asked(cluster, "GET", PODS, **mine, **{"continue": more})
    assert (status, document["reason"]) == (410, "Expired")


def test_an_eviction_marks_the_pod_and_gives_it_its_time(cluster: Unplugged) -> None:
    asked(cluster, "POST", JOBS, job())
    name = cluster.pods()[0]["metadata"]["name"]
    cluster.do("start", name)
    status, _ = asked(cluster, "POST", f"{PODS}/{name}/eviction", {"kind": "Eviction"})
    (pod,) = cluster.pods()
    assert status == 201
    assert pod["metadata"]["deletionTimestamp"] == cluster.now(30)
    assert pod["status"]["conditions"][-1]["type"] == "DisruptionTarget"
    cluster.do("end", name, "143")
    (again,) = cluster.pods()
    assert again["metadata"]["name"] != name
