"""Kubernetes, asked for a run's hosts: it makes, shows and deletes a JobSet or a Job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.hosts.engine import EngineWait, Submission
from holdfast.engines.kubernetes import kubeconfig
from holdfast.engines.kubernetes.api import NOT_FOUND, Cluster, ClusterRefusal, NameTaken
from holdfast.engines.kubernetes.manifest import RUN_ID, objects
from holdfast.engines.kubernetes.options import Wishes
from holdfast.engines.kubernetes.pod_template import Object
from holdfast.engines.kubernetes.standing import inner, items, newest, standing_of
from holdfast.engines.kubernetes.waits import waits_of
from holdfast.engines.protocol import EngineError, Ordered, OrderStanding
from holdfast.errors import ConfigurationError, RunHeld, needs_extra

JOB_SET_API, JOB_API = "/apis/jobset.x-k8s.io/v1alpha2", "/apis/batch/v1"
KUEUE_APIS = ("/apis/kueue.x-k8s.io/v1beta2", "/apis/kueue.x-k8s.io/v1beta1")
RBAC_API = "/apis/rbac.authorization.k8s.io/v1"
# Of each kind that is made: its API, its name in a path, and whether it is in a namespace.
PLACES = {
    "JobSet": (JOB_SET_API, "jobsets", True),
    "Job": (JOB_API, "jobs", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "Role": (RBAC_API, "roles", True),
    "RoleBinding": (RBAC_API, "rolebindings", True),
    "ClusterRole": (RBAC_API, "clusterroles", False),
    "ClusterRoleBinding": (RBAC_API, "clusterrolebindings", False),
}
GONE_WITHIN_S, LOOK_EVERY_S = 30.0, 0.2  # of a finished one of the same name


class KubernetesEngine:
    """One cluster, and how the pods of a run are to be; it is first asked when it is needed."""

    def __init__(self, options: Mapping[str, str], find: Callable[[], Cluster]) -> None:
        self._options, self._find = options, find
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """Raises ConfigurationError where none is known."""
        if self._cluster is None:
            self._cluster = self._find()
        return self._cluster

    def check(self, submission: Submission) -> None:
        """Whether it can be made, and whether the cluster, its API and its namespace are there."""
        wishes = Wishes.of(self._options)
        objects(submission, wishes)
        cluster = self.cluster
        if wishes.kind == "jobset" and cluster.get(JOB_SET_API) is None:
            raise EngineError(
                f"the cluster at {cluster.access.server} has no JobSet ({JOB_SET_API} is not "
                "there): have it installed (jobset.sigs.k8s.io), or say -o kind=job"
            )
        with suppress(ClusterRefusal):  # many may not ask about namespaces
            if cluster.get(f"/api/v1/namespaces/{cluster.namespace}") is None:
                raise EngineError(_no_namespace(cluster))

    def preview(self, submission: Submission) -> str:
        """As YAML, for `kubectl apply` or a repository."""
        made = objects(submission, Wishes.of(self._options))
        try:
            import yaml
        except ImportError:
            raise ConfigurationError(needs_extra("a manifest needs", "kubernetes")) from None
        hosts = f"{submission.hosts} host{'s' * (submission.hosts > 1)}"
        spares = f" and {submission.spares} spare" if submission.spares else ""
        head = f"# Run {submission.run!r} on {hosts}{spares}: kubectl apply -f FILE\n"
        return head + str(yaml.safe_dump_all(made, sort_keys=False, width=100))

    def submit(self, submission: Submission) -> Ordered:
        """The objects beside it as they are wished, then the JobSet or Job, which must be new."""
        *others, made = objects(submission, self._in_namespace())
        for one in others:
            name = one["metadata"]["name"]
            self._tried(one, partial(self.cluster.apply, found=one), f"/{name}")
        self._make_room(made)
        self._tried(made, partial(self.cluster.create, found=made))
        kind, name = made["kind"], made["metadata"]["name"]
        access = self.cluster.access
        job = f"{kind} {name} {access.namespace} {access.server}"
        words = f"{kind} {name} in {access.namespace}"
        return Ordered(submission, job, words, time.time_ns())

    def find(self, run_id: str) -> str:
        """By the label that everything of a run has, whichever kind it is."""
        for kind in ("JobSet", "Job"):
            try:
                found = self.cluster.items(self._path(kind), labelSelector=f"{RUN_ID}={run_id}")
            except ClusterRefusal as error:
                if error.status != NOT_FOUND:  # a cluster without JobSet
                    raise
                continue
            for one in found:
                if not standing_of(one, ()).is_over:
                    return f"{kind} {inner(one, 'metadata').get('name')}"
        return ""

    def standing(self, ordered: Ordered) -> OrderStanding:
        """Of the JobSet or Job and its pods; of events and queues as far as may be asked."""
        top = self._its_own(ordered)
        if top is None:
            return standing_of(None, ())
        _, name = self._named(ordered)
        pods = self._pods(ordered)
        events: list[Object] = []
        workloads: list[Object] = []
        with suppress(ClusterRefusal):
            if inner(top, "spec").get("suspend") is True:
                workloads = self._workloads()
            elif not pods:
                events = [*self._events_of_jobs(name)]
        return standing_of(top, pods, events, workloads)

    def _pods(self, ordered: Ordered) -> list[Object]:
        run_id = ordered.submission.run_id
        return self.cluster.items(self._of_core("pods"), labelSelector=f"{RUN_ID}={run_id}")

    def _workloads(self) -> list[Object]:
        """Kueue's, of the newest API that it has; none: it has no part in this."""
        for api in KUEUE_APIS:
            with suppress(ClusterRefusal):
                return self.cluster.items(f"{api}/namespaces/{self.cluster.namespace}/workloads")
        return []

    def _events_of_jobs(self, name: str) -> Iterator[Object]:
        asked = "reason=FailedCreate,involvedObject.kind=Job"
        for event in self.cluster.items(self._of_core("events"), fieldSelector=asked):
            about = str(inner(event, "involvedObject").get("name"))
            if about == name or about.startswith((f"{name}-hosts-", f"{name}-slice-")):
                yield event

    def replace(self, ordered: Ordered, host: str, reason: str) -> str:
        """Evict its pod: the Job makes another, and no failure is counted."""
        del reason
        self._named(ordered)
        pods = newest(self._pods(ordered))
        names = [str(inner(one, "metadata").get("name")) for one in pods]
        if host not in names:
            raise ConfigurationError(
                f"{ordered.words} has no pod {host!r}; it has {', '.join(names)}"
            )
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": host, "namespace": self.cluster.namespace},
        }
        self.cluster.create(f"{self._of_core('pods')}/{host}/eviction", eviction)
        return f"the pod {host} is evicted, and its Job makes another"

    def release(self, ordered: Ordered) -> str:
        """Delete it, and what was made beside it for this run alone."""
        kind, name = self._named(ordered)
        top = self._its_own(ordered)
        uid = "" if top is None else str(inner(top, "metadata").get("uid") or "")
        was_there = top is not None and self.cluster.delete(f"{self._path(kind)}/{name}", uid=uid)
        words = f"{ordered.words} is deleted" if was_there else f"{ordered.words} was not there"
        if "prepull" in ordered.submission.option("with"):
            try:
                self.cluster.delete(f"{self._path('DaemonSet')}/{name}-prepull")
            except ClusterRefusal as error:
                words += f", and the DaemonSet {name}-prepull is still there ({error})"
        return words

    # --- parts ------------------------------------------------------------------------------

    def _in_namespace(self) -> Wishes:
        return Wishes.of({**self._options, "namespace": self.cluster.namespace})

    def _path(self, kind: str) -> str:
        api, plural, is_inside = PLACES[kind]
        return (
            f"{api}/namespaces/{self.cluster.namespace}/{plural}"
            if is_inside
            else f"{api}/{plural}"
        )

    def _of_core(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self.cluster.namespace}/{plural}"

    def _named(self, ordered: Ordered) -> tuple[str, str]:
        """Kind and name, which mean something only in the cluster that was asked then."""
        kind, name, namespace, server = (*ordered.job.split(), "", "", "", "")[:4]
        access = self.cluster.access
        if (namespace, server) != (access.namespace, access.server):
            raise EngineError(
                f"{ordered.words} was asked of {server}, and {access.words} is the namespace "
                f"{access.namespace} of {access.server}: say which with KUBECONFIG"
            )
        if kind not in ("Job", "JobSet"):
            raise EngineError(f"{ordered.job!r} is no Job")
        return kind, name

    def _its_own(self, ordered: Ordered) -> Object | None:
        """The JobSet or Job, if it is of this run: another may have its name now."""
        kind, name = self._named(ordered)
        top = self.cluster.get(f"{self._path(kind)}/{name}")
        labels = {} if top is None else inner(inner(top, "metadata"), "labels")
        return top if labels.get(RUN_ID) == ordered.submission.run_id else None

    def _make_room(self, made: Object) -> None:
        """One that is over gives its name; raises RunHeld for one that is not, or is another's."""
        path = f"{self._path(made['kind'])}/{made['metadata']['name']}"
        there = self.cluster.get(path)
        if there is None:
            return
        _refuse_unless_over(there, made)
        uid = str(inner(there, "metadata").get("uid") or "")
        self.cluster.delete(path, uid=uid)
        deadline_s = time.monotonic() + GONE_WITHIN_S
        while (there := self.cluster.get(path)) is not None and inner(there, "metadata").get(
            "uid"
        ) == uid:
            if time.monotonic() > deadline_s:
                raise EngineError(
                    f"the {made['kind']} {made['metadata']['name']} of an earlier start is not "
                    f"deleted after {GONE_WITHIN_S:g} s: try again, or say -o object=NAME"
                )
            time.sleep(LOOK_EVERY_S)

    def _tried(self, one: Object, order: Callable[[str], Any], name: str = "") -> None:
        kind = one["kind"]
        try:
            order(f"{self._path(kind)}{name}")
        except NameTaken:
            raise RunHeld(
                f"{kind} {one['metadata']['name']} is there already: `holdfast release` takes it "
                "back, or say -o object=NAME"
            ) from None
        except ClusterRefusal as error:
            raise self._clearer(error, kind) from error

    def _clearer(self, error: ClusterRefusal, kind: str) -> EngineError:
        """What a refusal means here."""
        if error.status == NOT_FOUND:
            is_namespace = error.details.get("kind") == "namespaces"
            if is_namespace or kind != "JobSet":
                return EngineError(_no_namespace(self.cluster))
            return EngineError(f"{error}: the cluster has no JobSet; say -o kind=job")
        if error.status == 403 and "exceeded quota" in str(error):
            return EngineError(f"{error}: ask for less, or for a larger quota")
        return error


def _refuse_unless_over(there: Object, made: Object) -> None:
    name, kind = made["metadata"]["name"], made["kind"]
    ours, theirs = (inner(inner(one, "metadata"), "labels") for one in (made, there))
    managed = "app.kubernetes.io/managed-by"
    if theirs.get(managed) != ours.get(managed):
        raise RunHeld(f"there is a {kind} {name} that Holdfast has not made: say -o object=NAME")
    if not standing_of(there, ()).is_over:
        raise RunHeld(
            f"{kind} {name} is there already: `holdfast release` takes it back, or say "
            "-o object=NAME"
        )


def _no_namespace(cluster: Cluster) -> str:
    return (
        f"the cluster at {cluster.access.server} has no namespace {cluster.namespace!r} "
        f"({cluster.access.words}): say -o namespace=NAME"
    )


def make(options: Mapping[str, str], environment: Mapping[str, str]) -> KubernetesEngine:
    """Of a kubeconfig, the pod's own cluster or an address; it is read when it is needed."""
    find = partial(kubeconfig.find, options, environment, Path("/"))
    return KubernetesEngine(options, lambda: Cluster(find(), find))


def waits(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[EngineWait, ...]:
    """Of this pod, as its service account may ask: `-o with=access` gives one that may."""
    cluster = Cluster(kubeconfig.of_pod(environment, root))
    return waits_here(cluster, environment)


def waits_here(cluster: Cluster, environment: Mapping[str, str]) -> tuple[EngineWait, ...]:
    """Of the pod that the environment names; empty where its name is not told."""
    name = environment.get("POD_NAME", "")
    if not name:
        return ()
    core = f"/api/v1/namespaces/{environment.get('POD_NAMESPACE') or cluster.namespace}"
    pod = cluster.get(f"{core}/pods/{name}")
    if pod is None:
        return ()
    events: list[Object] = []
    job = None
    with suppress(ClusterRefusal):  # without them, what is told is less
        uid = inner(pod, "metadata").get("uid")
        events = cluster.items(f"{core}/events", fieldSelector=f"involvedObject.uid={uid}")
        owners = items(inner(pod, "metadata"), "ownerReferences")
        owner = next((one.get("name") for one in owners if one.get("kind") == "Job"), None)
        space = core.rpartition("/")[2]
        job = cluster.get(f"{JOB_API}/namespaces/{space}/jobs/{owner}") if owner else None
    return waits_of(pod, events, job)
