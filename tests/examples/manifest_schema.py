"""What Kubernetes takes of the manifests: names, types, what must be there, and the rules between.

Written by hand, for the fields that the manifests use and those beside them. A field that is not
here is refused: it is misspelled, or to be added. Sources, read in August 2026:

- the resource of JobSet, v1alpha2 (config/components/crd in kubernetes-sigs/jobset): its types, its
  CEL rules for what is created (two of them; all others are about changes), and what its webhook
  asks of names;
- Kubernetes 1.34's reference of Job, Pod, DaemonSet and of access by roles, its pages on pod
  failure policies, on indexed Jobs and on labels, and what its server checks of those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

INT32 = 2**31 - 1
MOST_FAILURE_RULES, MOST_EXIT_CODES = 20, 255
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # RFC 1123; 1035: a letter first
QUANTITY = re.compile(r"[+-]?\d+(\.\d*)?([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
LONGEST_LABEL = 63
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
PODS_OWN = 6  # characters that a Job adds to the names of its pods, beside their index


@dataclass(frozen=True)
class Text:
    """A string: one of these, if any are named; `is_label`: a name in the way of DNS."""

    of: tuple[str, ...] = ()
    is_label: bool = False

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if not isinstance(value, str):
            yield f"{where} is no string: {value!r}"
        elif self.of and value not in self.of:
            yield f"{where} is {value!r}, and none of {', '.join(self.of)}"
        elif self.is_label and (len(value) > LONGEST_LABEL or not LABEL.fullmatch(value)):
            yield f"{where} is no name: {value!r}"


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    low: int = 0
    high: int = INT32

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if type(value) is not int:
            yield f"{where} is no whole number: {value!r}"
        elif not self.low <= value <= self.high:
            yield f"{where} is {value}, not {self.low} to {self.high}"


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if not isinstance(value, bool):
            yield f"{where} is neither true nor false: {value!r}"


@dataclass(frozen=True)
class Quantity:
    """So much of a resource: a number, or one with a unit."""

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if type(value) is not int and not (isinstance(value, str) and QUANTITY.fullmatch(value)):
            yield f"{where} is no quantity: {value!r}"


@dataclass(frozen=True)
class Items:
    """A list of such. `key`: by which no two are the same; "": as they are."""

    of: Any
    key: str | None = None
    most: int = 10_000
    least: int = 0

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if not isinstance(value, list):
            yield f"{where} is no list: {value!r}"
            return
        if not self.least <= len(value) <= self.most:
            yield f"{where} has {len(value)} items, not {self.least} to {self.most}"
        for number, one in enumerate(value):
            yield from self.of.wrong(one, f"{where}[{number}]")
        if self.key is not None:
            keys = [one.get(self.key) if isinstance(one, Mapping) else one for one in value]
            twice = sorted({repr(one) for one in keys if keys.count(one) > 1})
            if twice:
                yield f"{where} has {', '.join(twice)} twice"


@dataclass(frozen=True)
class Map:
    """Any names, each with such a value."""

    of: Any

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if not isinstance(value, Mapping):
            yield f"{where} is no object: {value!r}"
            return
        for name, one in value.items():
            yield from self.of.wrong(one, f"{where}.{name}")


@dataclass(frozen=True)
class Fields:
    """An object: `needs` must be there, `may` can, and nothing else."""

    needs: Mapping[str, Any] = field(default_factory=dict)
    may: Mapping[str, Any] = field(default_factory=dict)

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        if not isinstance(value, Mapping):
            yield f"{where} is no object: {value!r}"
            return
        yield from (f"{where} has no {name}" for name in self.needs if name not in value)
        known = {**self.needs, **self.may}
        for name, one in value.items():
            if name in known:
                yield from known[name].wrong(one, f"{where}.{name}")
            else:
                yield f"{where}.{name} is no field that is known here"


@dataclass(frozen=True)
class Labels:
    """Names with a domain before them, if they like, and short values."""

    def wrong(self, value: object, where: str) -> Iterator[str]:
        """A sentence for all that is wrong with it."""
        yield from Map(Text()).wrong(value, where)
        for name, one in value.items() if isinstance(value, Mapping) else ():
            short = name.rpartition("/")[2]
            if len(short) > LONGEST_LABEL or not KEY.fullmatch(name):
                yield f"{where} has {name!r}, which is no key"
            if isinstance(one, str) and (len(one) > LONGEST_LABEL or not VALUE.fullmatch(one)):
                yield f"{where}.{name} is {one!r}, which is no value of a label"


# --- What the fields are --------------------------------------------------------------------------

TEXT, LABELS, ANNOTATIONS = Text(), Labels(), Map(Text())
METADATA = Fields({"name": Text(is_label=True)}, {"labels": LABELS, "annotations": ANNOTATIONS,
                                                  "namespace": Text(is_label=True)})  # fmt: skip
INNER_METADATA = Fields(may={"labels": LABELS, "annotations": ANNOTATIONS})
POD_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
              "spec.serviceAccountName", "status.hostIP", "status.podIP",
              "metadata.labels['batch.kubernetes.io/controller-uid']",
              "metadata.labels['jobset.sigs.k8s.io/jobset-uid']")  # fmt: skip
RESOURCES = Fields(may={"requests": Map(Quantity()), "limits": Map(Quantity())})
CONTAINER = Fields(
    {"name": Text(is_label=True)},
    {
        "image": TEXT,
        "command": Items(TEXT),
        "args": Items(TEXT),
        "workingDir": TEXT,
        "env": Items(
            Fields(
                {"name": TEXT},
                {
                    "value": TEXT,
                    "valueFrom": Fields({"fieldRef": Fields({"fieldPath": Text(POD_FIELDS)})}),
                },
            ),
            key="name",
        ),
        "envFrom": Items(Fields({"secretRef": Fields({"name": TEXT})})),
        "restartPolicy": Text(("Always", "Never", "OnFailure")),
        "restartPolicyRules": Items(
            Fields(
                {
                    "action": Text(("Restart",)),
                    "exitCodes": Fields(
                        {
                            "operator": Text(("In", "NotIn")),
                            "values": Items(Whole(0, 255), key="", most=255, least=1),
                        }
                    ),
                }
            ),
            most=20,
            least=1,
        ),
        "resources": RESOURCES,
        "volumeMounts": Items(
            Fields(
                {"name": TEXT, "mountPath": TEXT},
                {"readOnly": Flag(), "subPath": TEXT},
            ),
            key="mountPath",
        ),
    },
)
VOLUME = Fields(
    {"name": Text(is_label=True)},
    {
        "persistentVolumeClaim": Fields({"claimName": TEXT}, {"readOnly": Flag()}),
        "emptyDir": Fields(may={"medium": Text(("", "Memory")), "sizeLimit": Quantity()}),
        "secret": Fields(may={"secretName": TEXT, "defaultMode": Whole(0, 0o777)}),
    },
)
POD = Fields(
    {"containers": Items(CONTAINER, key="name", least=1)},
    {
        "restartPolicy": Text(("Never", "OnFailure")),  # of a Job's pods
        "terminationGracePeriodSeconds": Whole(high=2**63 - 1),
        "volumes": Items(VOLUME, key="name"),
        "nodeSelector": LABELS,
        "tolerations": Items(Fields({"key": TEXT, "operator": Text(("Exists",))})),
        "serviceAccountName": TEXT,
        "subdomain": TEXT,
    },
)
FAILURE_RULE = Fields(
    {"action": Text(("FailJob", "FailIndex", "Ignore", "Count"))},
    {
        "onExitCodes": Fields(
            {
                "operator": Text(("In", "NotIn")),
                "values": Items(Whole(0, 255), key="", most=MOST_EXIT_CODES, least=1),
            },
            {"containerName": TEXT},
        ),
        "onPodConditions": Items(
            Fields({"type": TEXT}, {"status": Text(("True", "False", "Unknown"))}),
            most=MOST_FAILURE_RULES,
            least=1,
        ),
    },
)
JOB = Fields(
    {"template": Fields({"spec": POD}, {"metadata": INNER_METADATA})},
    {
        "completionMode": Text(("Indexed", "NonIndexed")),
        "completions": Whole(),
        "parallelism": Whole(),
        "backoffLimit": Whole(),
        "backoffLimitPerIndex": Whole(),
        "maxFailedIndexes": Whole(),
        "activeDeadlineSeconds": Whole(1, 2**63 - 1),
        "ttlSecondsAfterFinished": Whole(),
        "suspend": Flag(),
        "podFailurePolicy": Fields({"rules": Items(FAILURE_RULE, most=MOST_FAILURE_RULES)}),
        "podReplacementPolicy": Text(("Failed", "TerminatingOrFailed")),
    },
)
VOLUME_CLAIMS = Fields(
    may={
        "templates": Items(Fields({"metadata": METADATA, "spec": Map(TEXT)}), most=50),
        "retentionPolicy": Fields(may={"whenDeleted": Text(("Delete", "Retain"))}),
    }
)
REPLICATED_JOB = Fields(
    {"name": TEXT, "template": Fields({"spec": JOB}, {"metadata": INNER_METADATA})},
    {
        "replicas": Whole(),
        "groupName": TEXT,
        "dependsOn": Items(
            Fields({"name": TEXT, "status": Text(("Ready", "Complete"))}), key="name", most=5
        ),
    },
)
JOB_SET_RULE = Fields(
    {
        "name": TEXT,
        "action": Text(("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts",
                        "RestartJob", "RestartJobAndIgnoreMaxRestarts")),
    },
    {
        "onJobFailureReasons": Items(
            Text(("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes",
                  "MaxFailedIndexesExceeded", "PodFailurePolicy")), key=""),
        "targetReplicatedJobs": Items(TEXT),
    },
)  # fmt: skip
JOB_SET = Fields(
    may={
        "replicatedJobs": Items(REPLICATED_JOB, key="name"),
        "suspend": Flag(),
        "ttlSecondsAfterFinished": Whole(),
        "managedBy": TEXT,
        "startupPolicy": Fields({"startupPolicyOrder": Text(("AnyOrder", "InOrder"))}),
        "successPolicy": Fields(
            {"operator": Text(("All", "Any"))}, {"targetReplicatedJobs": Items(TEXT)}
        ),
        "failurePolicy": Fields(
            may={
                "maxRestarts": Whole(),
                "restartStrategy": Text(("Recreate", "BlockingRecreate", "InPlaceRestart")),
                "rules": Items(JOB_SET_RULE, key="name"),
            }
        ),
        "network": Fields(
            may={
                "enableDNSHostnames": Flag(),
                "publishNotReadyAddresses": Flag(),
                "subdomain": Text(is_label=True),
            }
        ),
        "volumeClaimPolicies": Items(VOLUME_CLAIMS, most=50),
    }
)
DAEMON_POD = Fields(
    POD.needs,
    {**POD.may, "restartPolicy": Text(("Always",)), "initContainers": Items(CONTAINER, key="name")},
)
DAEMON_SET = Fields(
    {
        "selector": Fields({"matchLabels": LABELS}),
        "template": Fields({"spec": DAEMON_POD, "metadata": INNER_METADATA}),
    }
)
RBAC = "rbac.authorization.k8s.io"
RIGHT = Fields({name: Items(TEXT, least=1) for name in ("apiGroups", "resources", "verbs")})
ROLE = Fields({"rules": Items(RIGHT)})
BINDING = Fields(
    {
        "roleRef": Fields({"apiGroup": Text((RBAC,)), "kind": Text(("Role", "ClusterRole")),
                           "name": TEXT}),
        "subjects": Items(
            Fields({"kind": Text(("ServiceAccount",)), "name": TEXT, "namespace": TEXT})
        ),
    }
)  # fmt: skip
JOBS = {"Job": ("batch/v1", JOB), "JobSet": ("jobset.x-k8s.io/v1alpha2", JOB_SET)}
SPECS = {**JOBS, "DaemonSet": ("apps/v1", DAEMON_SET)}
OTHERS = {
    "ServiceAccount": ("v1", Fields()),
    **dict.fromkeys(("Role", "ClusterRole"), (f"{RBAC}/v1", ROLE)),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), (f"{RBAC}/v1", BINDING)),
}


# --- The rules between them -----------------------------------------------------------------------


class Rule(NamedTuple):
    """What must hold of a part that has its fields; `words`: else."""

    words: str
    holds: Callable[[Any], bool]


def _needs_never(job: Any) -> bool:
    return "podFailurePolicy" not in job or _pod(job).get("restartPolicy") == "Never"


def _has_one_reason(job: Any) -> bool:
    return all(("onExitCodes" in one) != ("onPodConditions" in one) for one in _failure_rules(job))


def _does_not_wait_for_0(job: Any) -> bool:
    codes = [one["onExitCodes"] for one in _failure_rules(job) if "onExitCodes" in one]
    return not any(one["operator"] == "In" and 0 in one["values"] for one in codes)


def _has_its_codes_in_order(job: Any) -> bool:
    codes = [one["onExitCodes"]["values"] for one in _failure_rules(job) if "onExitCodes" in one]
    return all(values == sorted(values) for values in codes)


def _names_its_containers(job: Any) -> bool:
    known = {one["name"] for one in _pod(job)["containers"]}
    codes = (one.get("onExitCodes", {}) for one in _failure_rules(job))
    return {one["containerName"] for one in codes if "containerName" in one} <= known


def _mounts_its_volumes(job: Any) -> bool:
    known = {one["name"] for one in _pod(job).get("volumes", ())}
    mounts = (mount for one in _pod(job)["containers"] for mount in one.get("volumeMounts", ()))
    return {mount["name"] for mount in mounts} <= known


def _volumes_have_one_source(job: Any) -> bool:
    return all(len(one) == 2 for one in _pod(job).get("volumes", ()))


def _asks_for_no_more_than_its_limit(job: Any) -> bool:
    resources = [one.get("resources", {}) for one in _pod(job)["containers"]]
    pairs = ((one.get("requests", {}), one.get("limits", {})) for one in resources)
    return all(
        _bytes(wanted[name]) <= _bytes(limit[name])
        for wanted, limit in pairs
        for name in wanted.keys() & limit.keys()
    )


def _variables(job: Any) -> Iterator[Any]:
    for one in _pod(job)["containers"]:
        yield from one.get("env", ())


def _bytes(quantity: str | int) -> float:
    units = {unit: 1024.0**n for n, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
    units |= {unit: 1000.0**n for n, unit in enumerate(("m", "", "k", "M", "G", "T"), start=-1)}
    number = re.match(r"[\d.]+", str(quantity))[0]  # type: ignore[index]
    return float(number) * units[str(quantity)[len(number) :]]


OF_JOB = (
    Rule("a pod failure policy needs restartPolicy Never", _needs_never),
    Rule("a failure rule has exit codes or conditions, and not both", _has_one_reason),
    Rule("0 is no failure", _does_not_wait_for_0),
    Rule("exit codes are in order", _has_its_codes_in_order),
    Rule("a failure rule is about a container that is not there", _names_its_containers),
    Rule("FailIndex needs backoffLimitPerIndex", lambda job: "backoffLimitPerIndex" in job
         or all(one["action"] != "FailIndex" for one in _failure_rules(job))),
    Rule("maxFailedIndexes needs backoffLimitPerIndex",
         lambda job: "maxFailedIndexes" not in job or "backoffLimitPerIndex" in job),
    Rule("backoffLimitPerIndex needs an Indexed Job", lambda job: "backoffLimitPerIndex" not in job
         or job.get("completionMode") == "Indexed"),
    Rule("a variable has one value", lambda job: all(
        ("value" in one) != ("valueFrom" in one) for one in _variables(job))),
    Rule("a container's restart rules need its restartPolicy", lambda job: all(
        "restartPolicy" in one or "restartPolicyRules" not in one
        for one in _pod(job)["containers"])),
    Rule("an Indexed Job needs completions",
         lambda job: job.get("completionMode") != "Indexed" or "completions" in job),
    Rule("a volume is mounted that is not there", _mounts_its_volumes),
    Rule("a volume has one source", _volumes_have_one_source),
    Rule("more is asked for than the limit", _asks_for_no_more_than_its_limit),
)  # fmt: skip


OF_ANY_POD = (_mounts_its_volumes, _volumes_have_one_source, _asks_for_no_more_than_its_limit)
OF_PODS = tuple(one for one in OF_JOB if one.holds in OF_ANY_POD)


def _does_not_order_twice(spec: Any) -> bool:
    in_order = spec.get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder"
    return not (in_order and any("dependsOn" in one for one in spec.get("replicatedJobs", ())))


def _claims_name_no_namespace(spec: Any) -> bool:
    policies = spec.get("volumeClaimPolicies", ())
    templates = (one for policy in policies for one in policy.get("templates", ()))
    return not any(one["metadata"].get("namespace") for one in templates)


def _names_its_rules(spec: Any) -> bool:
    rules = spec.get("failurePolicy", {}).get("rules", ())
    return all(
        re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", one["name"]) for one in rules
    )


def _success_names_its_jobs(spec: Any) -> bool:
    wanted = spec.get("successPolicy", {}).get("targetReplicatedJobs", ())
    return {*wanted} <= {one["name"] for one in spec.get("replicatedJobs", ())}


OF_JOB_SET = (
    # The two CEL rules of the resource for what is created.
    Rule("startupPolicy and dependsOn exclude each other", _does_not_order_twice),
    Rule("a volume claim of a JobSet names no namespace", _claims_name_no_namespace),
    # What the webhook asks.
    Rule("the first job depends on none",
         lambda spec: not any("dependsOn" in one for one in spec.get("replicatedJobs", ())[:1])),
    Rule("a success policy is about a job that is not there", _success_names_its_jobs),
    Rule("a failure rule's name is made of letters, digits and _,:", _names_its_rules),
)  # fmt: skip


def wrong(manifest: Any) -> list[str]:
    """A sentence for all that is wrong with a manifest; of rules only where all fields are."""
    kind = manifest.get("kind") if isinstance(manifest, Mapping) else None
    if kind in OTHERS:
        version, rest = OTHERS[kind]
        needs = {**rest.needs, "apiVersion": Text((version,)), "kind": TEXT, "metadata": METADATA}
        return list(Fields(needs).wrong(manifest, kind))
    if kind not in SPECS:
        return ["its kind is neither Job nor JobSet, nor what goes with them"]
    version, spec = SPECS[kind]
    whole = Fields(
        {"apiVersion": Text((version,)), "kind": TEXT, "metadata": METADATA, "spec": spec}
    )
    return list(whole.wrong(manifest, kind)) or list(_broken(manifest))


def _broken(manifest: Any) -> Iterator[str]:
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    if manifest["kind"] == "DaemonSet":
        template = spec["template"]
        if not spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items():
            yield "a DaemonSet selects its own pods"
        yield from (rule.words for rule in OF_PODS if not rule.holds({"template": template}))
        return
    if manifest["kind"] == "Job":
        yield from _broken_of_job(spec, name)
        return
    yield from (rule.words for rule in OF_JOB_SET if not rule.holds(spec))
    for one in spec.get("replicatedJobs", ()):
        longest = f"{name}-{one['name']}-{max(one.get('replicas', 1) - 1, 0)}"
        yield from _broken_of_job(one["template"]["spec"], longest)


def _broken_of_job(job: Any, name: str) -> Iterator[str]:
    yield from (rule.words for rule in OF_JOB if not rule.holds(job))
    last = f"-{job.get('completions', 1) - 1}" if job.get("completionMode") == "Indexed" else ""
    if len(name) + len(last) + PODS_OWN > LONGEST_LABEL or not LABEL.fullmatch(name):
        yield f"{name}{last} is no name for its pods"
    elif not name[0].isalpha():
        yield f"{name} does not begin with a letter"


def _pod(job: Any) -> Any:
    return job["template"]["spec"]


def _failure_rules(job: Any) -> Any:
    return job.get("podFailurePolicy", {}).get("rules", ())
