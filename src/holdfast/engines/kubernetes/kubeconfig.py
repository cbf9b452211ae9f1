"""Where a cluster is and how it is asked: a kubeconfig, the pod's own account, or an address.

What `kubectl` reads is read here as far as one file of settings goes: tokens, certificates, and
plugins (`exec`), by which GKE, EKS and AKS let people in. For what is not read, `kubectl proxy`
is the door (`-o server=http://127.0.0.1:8001`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.engines.protocol import EngineError
from holdfast.errors import ConfigurationError, needs_extra

ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
PLUGIN_LIMIT_S = 60.0
PROXY = "have `kubectl proxy` running and say -o server=http://127.0.0.1:8001"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster's address, and what is shown to it. `words`: for people, where that is from."""

    server: str
    namespace: str
    words: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


def find(options: Mapping[str, str], environment: Mapping[str, str], root: Path) -> ClusterAccess:
    """`-o server`, else a kubeconfig, else the pod's account; ConfigurationError: there is none."""
    namespace = options.get("namespace", "")
    if server := options.get("server", ""):
        return ClusterAccess(server, namespace or "default", f"-o server={server}")
    places = environment.get("KUBECONFIG", "")
    home = Path(environment.get("HOME", "/"))
    paths = [Path(one) for one in places.split(os.pathsep) if one] or [home / ".kube" / "config"]
    there = [one for one in paths if one.is_file()]
    if there:
        return of_config(there, options.get("context", ""), namespace, environment)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return of_pod(environment, root, namespace)
    shown = ", ".join(map(str, paths))
    raise ConfigurationError(
        f"there is no kubeconfig ({shown}): fetch your cluster's, name it in KUBECONFIG, or {PROXY}"
    )


def of_pod(environment: Mapping[str, str], root: Path, namespace: str = "") -> ClusterAccess:
    """As a pod of the cluster; raises EngineError where it has no account."""
    folder = root / ACCOUNT
    host, port = (environment.get(f"KUBERNETES_SERVICE_{one}", "") for one in ("HOST", "PORT"))
    try:
        token = (folder / "token").read_text().strip()
        here = (folder / "namespace").read_text().strip()
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except (OSError, ValueError) as error:
        raise EngineError(f"this pod has no account of its cluster ({error})") from error
    host = f"[{host}]" if ":" in host else host
    return ClusterAccess(
        f"https://{host}:{port or 443}",
        namespace or here or "default",
        "the pod's service account",
        {"Authorization": f"Bearer {token}"},
        tls,
    )


def of_config(
    paths: list[Path], context: str, namespace: str, environment: Mapping[str, str]
) -> ClusterAccess:
    """Of one context; raises ConfigurationError for a file that is damaged or asks for more."""
    files = [(path, _read(path)) for path in paths]
    chosen = context or next((name for _, one in files if (name := one.get("current-context"))), "")
    where = ", ".join(map(str, paths))
    if not chosen:
        raise ConfigurationError(f"{where} has no current context: say -o context=NAME")
    _, found = _named(files, "context", chosen, where)
    at, cluster = _named(files, "cluster", str(found.get("cluster", "")), where)
    for key in ("proxy-url", "tls-server-name"):
        if cluster.get(key):
            raise ConfigurationError(f"{where} says {key}, which is not read here: {PROXY}")
    server = str(cluster.get("server", ""))
    tls = _tls(cluster, at) if server.startswith("https:") else None
    headers: dict[str, str] = {}
    if name := str(found.get("user") or ""):
        folder, user = _named(files, "user", name, where)
        headers = _show_who(user, folder, tls, where, environment, partial(_told, cluster, at))
    return ClusterAccess(
        server,
        namespace or str(found.get("namespace") or "default"),
        f"the context {chosen} of {where}",
        headers,
        tls,
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the kubeconfig {path} cannot be read: {error}") from error
    try:
        found = json.loads(text)
    except ValueError:
        found = _of_yaml(text, path)
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"{path} is no kubeconfig")
    return found


def _of_yaml(text: str, path: Path) -> object:
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(needs_extra("a kubeconfig needs", "kubernetes")) from None
    try:
        found: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        words = " ".join(str(error).split())[:80]
        raise ConfigurationError(f"{path} is no kubeconfig: {words}") from error
    return found


def _named(
    files: list[tuple[Path, Mapping[str, Any]]], kind: str, name: str, where: str
) -> tuple[Path, Mapping[str, Any]]:
    """The entry of that name, and the folder by which its paths go."""
    names: list[str] = []
    for path, one in files:
        entries = one.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("name") == name:
                inner = entry.get(kind)
                return path.parent, inner if isinstance(inner, Mapping) else {}
            names += [str(entry.get("name"))] if isinstance(entry, Mapping) else []
    known = f"it has {', '.join(names)}" if names else "it has none"
    raise ConfigurationError(f"{where} has no {kind} {name!r}; {known}")


def _tls(cluster: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify") is True:  # whoever wrote the file wants it so
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return tls
    try:
        # With an authority of its own no other one counts.
        if data := cluster.get("certificate-authority-data"):
            return ssl.create_default_context(cadata=base64.b64decode(str(data)).decode())
        if path := cluster.get("certificate-authority"):
            return ssl.create_default_context(cafile=str(folder / str(path)))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the cluster's certificate is not valid: {error}") from error
    return ssl.create_default_context()


def _show_who(
    user: Mapping[str, Any],
    folder: Path,
    tls: ssl.SSLContext | None,
    where: str,
    environment: Mapping[str, str],
    about: Callable[[], Mapping[str, Any]],
) -> dict[str, str]:
    """Headers, and a certificate for the connection; `about`: the cluster, for a plugin."""
    if plugin := user.get("exec"):
        user = _ask_plugin(plugin, folder, environment, about)
    for key in ("auth-provider", "as", "as-uid", "as-groups", "as-user-extra"):
        if user.get(key):
            raise ConfigurationError(f"{where} says {key}, which is not read here: {PROXY}")
    if tls is not None:
        _load_certificate(user, folder, tls, where)
    token = str(user.get("token") or "")
    if path := user.get("tokenFile"):
        try:
            token = (folder / str(path)).read_text().strip()
        except OSError as error:
            raise ConfigurationError(f"the token in {where} cannot be read: {error}") from error
    if token and not (token.isascii() and token.isprintable()):
        raise ConfigurationError(f"the token in {where} is none")
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _load_certificate(
    user: Mapping[str, Any], folder: Path, tls: ssl.SSLContext, where: str
) -> None:
    if not (user.get("client-certificate-data") or user.get("client-certificate")):
        return
    try:
        with contextlib.ExitStack() as kept:
            certificate, key = (
                kept.enter_context(_as_file(user, name, folder))
                for name in ("client-certificate", "client-key")
            )
            tls.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the client's certificate in {where}: {error}") from error


@contextlib.contextmanager
def _as_file(user: Mapping[str, Any], name: str, folder: Path) -> Iterator[str]:
    """A path, also of what stands in the file itself: the library takes nothing else."""
    data = user.get(f"{name}-data")
    if not data:
        yield str(folder / str(user.get(name, "")))
        return
    with os.fdopen(os.memfd_create(name), "wb") as file:  # a key has no place in a folder
        file.write(base64.b64decode(str(data)))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _told(cluster: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A cluster as a plugin is told of it (`provideClusterInfo`); raises ConfigurationError."""
    kept = ("server", "insecure-skip-tls-verify", "certificate-authority-data")
    found = {name: cluster[name] for name in kept if cluster.get(name)}
    path = cluster.get("certificate-authority")
    if path and "certificate-authority-data" not in found:
        try:
            data = (folder / str(path)).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"the cluster's certificate is not valid: {error}") from error
        found["certificate-authority-data"] = base64.b64encode(data).decode()
    for one in cluster.get("extensions") or ():
        if isinstance(one, Mapping) and one.get("name") == "client.authentication.k8s.io/exec":
            found["config"] = one.get("extension")
    return found


def _ask_plugin(
    plugin: Any,
    folder: Path,
    environment: Mapping[str, str],
    about: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """What a credential plugin says, as a user's entry."""
    if not isinstance(plugin, Mapping) or not plugin.get("command"):
        raise ConfigurationError("the kubeconfig's credential plugin (exec) names no command")
    command = str(plugin["command"])
    path = str(folder / command) if os.sep in command else command
    version = str(plugin.get("apiVersion", ""))
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo") is True:
        spec["cluster"] = about()
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    try:
        variables = {str(one["name"]): str(one["value"]) for one in plugin.get("env") or ()}
        done = subprocess.run(
            [path, *map(str, plugin.get("args") or ())],
            env={**environment, **variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PLUGIN_LIMIT_S,
            check=True,
        )
        status = dict(json.loads(done.stdout)["status"])
    except FileNotFoundError:
        hint = str(plugin.get("installHint") or "install it, as your cluster's makers say")
        raise ConfigurationError(
            f"the credential plugin {command!r} of the kubeconfig is not here: "
            f"{' '.join(hint.split())}"
        ) from None
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = getattr(error, "stderr", None) or b""
        why = " ".join(said.decode("utf-8", "replace").split())[-200:] or str(error)
        raise EngineError(f"the credential plugin {command!r} gives nothing: {why}") from error
    found: dict[str, Any] = {"token": status.get("token")}
    for ours, theirs in (("certificate", "Certificate"), ("key", "Key")):
        if text := status.get(f"client{theirs}Data"):
            found[f"client-{ours}-data"] = base64.b64encode(str(text).encode()).decode()
    return found
