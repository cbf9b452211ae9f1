"""How a cluster is found and asked: kubeconfigs, plugins, certificates, and what is no answer."""

from __future__ import annotations

import base64
import json
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from manifest_schema import wrong

from holdfast.cli.release import release
from holdfast.cli.submit import submit
from holdfast.engines import kubernetes
from holdfast.engines.kubernetes import api, kubeconfig
from holdfast.engines.kubernetes.api import Cluster
from holdfast.engines.kubernetes.engine import waits
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.journal.store import RunStore
from holdfast.testing.kubernetes_cluster import KubernetesClusterEmulator
from holdfast.testing.kubernetes_jobs import JOB_SETS, PODS

ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
COMMAND = ["--engine", "kubernetes", "--name", "lm", "--hosts", "2", "-o", "image=a/b:1",
           "-o", "claim=runs", "--", "python", "train.py"]  # fmt: skip
Config = Callable[..., Path]


def said(*more: str, code: int = 0) -> str:
    result = CliRunner().invoke(submit, [*more, *COMMAND])
    if code == 0:
        assert result.exit_code == 0, result.output + str(result.exception)
        return result.output
    assert isinstance(result.exception, HoldfastError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def found(config: Path, **options: str) -> Cluster:
    return Cluster(kubeconfig.find(options, {"KUBECONFIG": str(config)}, Path("/")))


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    key, pem = folder / f"{name}.key", folder / f"{name}.pem"
    files = ["-keyout", str(key), "-out", str(pem)]
    subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
    return pem, key


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_a_run_is_submitted_once_and_given_back(
    cluster: KubernetesClusterEmulator, config: Config, store: Path
) -> None:
    config(cluster.url, {"token": "secret-token"})
    cluster.do("rotate", "secret-token")
    assert "Submitted run 'lm': 2 hosts, JobSet lm in ml" in said()
    labels = cluster.objects[f"{JOB_SETS}/lm"]["metadata"]["labels"]
    assert labels["holdfast/run-id"] == RunStore(store).get("lm").identity.run_id
    assert "is submitted already (JobSet lm): `holdfast release lm`" in said(code=69)
    assert "secret-token" not in (store / "lm" / "engine.json").read_text()
    result = CliRunner().invoke(release, ["lm"])
    assert result.output == "JobSet lm in ml is deleted\n"
    assert "Submitted" in said("-o", "kind=job")


def test_a_dry_run_is_the_manifest_and_asks_nobody(
    config: Config, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    import yaml

    printed = said("--dry-run", "-o", "with=access")
    documents = [*yaml.safe_load_all(printed)]
    assert [one["kind"] for one in documents][-1] == "JobSet"
    assert [words for one in documents for words in wrong(one)] == []
    assert printed.startswith("# Run 'lm' on 2 hosts: kubectl apply -f FILE\n")
    assert not RunStore(store).names()


def test_no_cluster_is_said_in_one_sentence(
    config: Config, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    words = said(code=78)
    assert "there is no kubeconfig" in words
    assert ".kube/config" in words
    config("http://127.0.0.1:1")
    words = said(code=69)
    assert "no Kubernetes cluster answers at http://127.0.0.1:1 (the context lab of" in words
    assert "Connection refused" in words
    config("ftp://cluster")
    assert "'ftp://cluster' (the context lab of" in said(code=78)
    assert "is no address of a cluster" in said(code=78)
    assert not RunStore(store).names()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one.update({"current-context": ""}), "has no current context: say -o context"),
        (lambda one: one.update({"current-context": "x"}), "has no context 'x'; it has lab"),
        (lambda one: one["contexts"][0]["context"].update(user="bob"), "no user 'bob'; it has ada"),
        (lambda one: one.update(clusters=[]), "has no cluster 'lab'; it has none"),
        (lambda one: one["clusters"][0]["cluster"].update({"proxy-url": "http://p"}), "proxy-url"),
        (lambda one: one["users"][0]["user"].update({"auth-provider": {"name": "gcp"}}),
         "auth-provider, which is not read here: have `kubectl proxy` running"),
        (lambda one: one["users"][0]["user"].update({"as": "root"}), "says as, which is not read"),
        (lambda one: one["users"][0]["user"].update({"tokenFile": "gone"}), "cannot be read"),
        (lambda one: one["users"][0]["user"].update({"token": "a\nb"}), "the token in"),
        (lambda one: one["users"][0]["user"].update(exec={"command": "no-such-plugin"}),
         "the credential plugin 'no-such-plugin' of the kubeconfig is not here"),
        (lambda one: one["users"][0]["user"].update(exec={"command": "false"}),
         "the credential plugin 'false' gives nothing"),
    ],
)  # fmt: skip
def test_a_kubeconfig_that_does_not_fit_is_said(
    cluster: KubernetesClusterEmulator, config: Config, change: Callable[[Any], None], words: str
) -> None:
    import yaml

    path = config(cluster.url)
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(json.dumps(document))  # which is YAML, too
    with pytest.raises(HoldfastError) as error:
        found(path)
    assert words in str(error.value)
    for text in ("{a: [", "[]", "\x00"):
        path.write_text(text)
        with pytest.raises(ConfigurationError, match="is no kubeconfig"):
            found(path)


def test_two_files_are_one_configuration(
    cluster: KubernetesClusterEmulator, config: Config, tmp_path: Path
) -> None:
    path, other = config(cluster.url), tmp_path / "other"
    other.write_text(json.dumps({"contexts": [
        {"name": "more", "context": {"cluster": "lab", "namespace": "team"}}]}))  # fmt: skip
    places = f"{other}:{tmp_path / 'gone'}:{path}"
    access = kubeconfig.find({}, {"KUBECONFIG": places}, Path("/"))
    assert (access.namespace, access.server) == ("ml", cluster.url)
    access = kubeconfig.find({"context": "more"}, {"KUBECONFIG": places}, Path("/"))
    assert access.namespace == "team"
    access = kubeconfig.find({"server": "http://127.0.0.1:8001"}, {"KUBECONFIG": places}, Path("/"))
    assert (access.namespace, access.server) == ("default", "http://127.0.0.1:8001")


def test_a_plugin_says_who_asks(
    cluster: KubernetesClusterEmulator, config: Config, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"""#!{sys.executable}
import json, os
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert asked["kind"] == "ExecCredential" and os.environ["REGION"] == "here"
print(json.dumps({{"status": {{"token": "fresh"}}}}))
""")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin",
                     "args": ["get"], "env": [{"name": "REGION", "value": "here"}]}}  # fmt: skip
    cluster.do("rotate", "fresh")
    assert found(config(cluster.url, user)).items(PODS)


def test_a_cluster_is_believed_by_its_own_authority_and_believes_a_certificate(
    config: Config, tmp_path: Path
) -> None:
    pem, key = certificate(tmp_path, "ca")
    other, _ = certificate(tmp_path, "other")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(pem)
    mine = {"client-certificate-data": encoded(pem), "client-key-data": encoded(key)}
    right = {"certificate-authority-data": encoded(pem)}
    with KubernetesClusterEmulator(tls=tls) as cluster:
        assert found(config(cluster.url, mine, **right)).items(PODS)
        by_path = {"client-certificate": pem.name, "client-key": str(key)}
        assert found(config(cluster.url, by_path, **{"certificate-authority": "ca.pem"})).items(
            PODS
        )
        assert found(config(cluster.url, mine, **{"insecure-skip-tls-verify": True})).items(PODS)
        asked = len(cluster.requests)
        wrong_one = {"certificate-authority-data": encoded(other)}
        for path in (config(cluster.url, mine, **wrong_one), config(cluster.url, mine)):
            with pytest.raises(HoldfastError, match="certificate verify failed"):
                found(path).items(PODS)
        with pytest.raises(HoldfastError, match="no Kubernetes cluster answers"):
            found(config(cluster.url, **right)).items(PODS)
        assert len(cluster.requests) == asked
        bad = {"certificate-authority-data": base64.b64encode(b"none").decode()}
        with pytest.raises(ConfigurationError, match="the cluster's certificate is not valid"):
            found(config(cluster.url, mine, **bad))
        with pytest.raises(ConfigurationError, match="the client's certificate in"):
            found(config(cluster.url, by_path | {"client-key": "gone"}, **right))


def test_a_pod_asks_by_its_own_account(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "ca")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem, key)
    with KubernetesClusterEmulator(tls=tls) as cluster:
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(cluster.port),
            "POD_NAME": "trainer-0",
        }
        with pytest.raises(HoldfastError, match="this pod has no account"):
            waits(environment, tmp_path)
        folder = tmp_path / ACCOUNT
        folder.mkdir(parents=True)
        (folder / "token").write_text("first\n")
        (folder / "namespace").write_text("ml")
        (folder / "ca.crt").write_bytes(pem.read_bytes())
        cluster.do("rotate", "first")
        assert waits(environment, tmp_path) == ()
        paths = [request.path for request in cluster.requests]
        assert paths == [f"{PODS}/trainer-0", f"{PODS.removesuffix('pods')}events"]
        access = kubeconfig.find({}, {**environment, "HOME": str(tmp_path)}, tmp_path)
        assert access.words == "the pod's service account"


@pytest.mark.parametrize("fault", ["html", "garbage", "redirect", "giant", "hang", "cut", "status"])
def test_an_answer_that_is_none_is_one_sentence(
    cluster: KubernetesClusterEmulator,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    monkeypatch.setattr(api, "LIMIT_S", 0.5)
    monkeypatch.setattr(api, "ANSWER_LIMIT_BYTES", 1 << 20)
    asked = found(config(cluster.url))
    cluster.do("fail", fault)
    with pytest.raises(HoldfastError) as error:
        asked.items(PODS)
    assert cluster.url in str(error.value)
    assert "\n" not in str(error.value)
    assert asked.items(PODS)


def test_it_is_an_engine_of_the_pods_that_it_starts() -> None:
    from holdfast.engines.registry import engine_here, engine_module

    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}
    assert engine_here(inside) == "kubernetes"
    assert engine_here({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == ""
    assert engine_module("kubernetes") is kubernetes
