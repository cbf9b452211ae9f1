"""The provider itself: Google's client for one project and zone, and what it is asked."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from holdfast.config import ask_metadata_directly
from holdfast.core.hosts.fleet import ActOutcome, Resource
from holdfast.core.hosts.recover import generation_of
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.provision.cloud_tpu.errors import ALREADY_EXISTS, NOT_FOUND, outcome_of
from holdfast.provision.cloud_tpu.requests import (
    ALPHA,
    STABLE,
    check,
    node_message,
    queued_message,
)
from holdfast.provision.cloud_tpu.states import (
    last_part,
    line,
    resource_of_node,
    resource_of_queued,
)
from holdfast.provision.protocol import OrderAnswer, ProviderError, ProviderRefusedError

CALL_LIMIT_S = 30.0
_Found = TypeVar("_Found")
_MODULES = {ALPHA: "google.cloud.tpu_v2alpha1", STABLE: "google.cloud.tpu_v2"}


class CloudTpu:
    """Cloud TPU in one project and zone.

    `endpoint`: an emulator on this machine, `HOST:PORT`, spoken to without credentials. Raises
    ConfigurationError when the library is not there, or no credentials are.
    """

    def __init__(
        self, project: str, zone: str, *, api: str = ALPHA, endpoint: str | None = None
    ) -> None:
        if api not in _MODULES:
            raise ConfigurationError(f"Cloud TPU has no API {api!r}; use {ALPHA} or {STABLE}")
        try:
            self._types: Any = importlib.import_module(_MODULES[api])
        except ImportError as error:
            raise ConfigurationError(
                needs_extra(f"Cloud TPU's API ({error.name}) needs", "gcp")
            ) from error
        self._parent = f"projects/{project}/locations/{zone}"
        self._channel: Any = None
        self._client = self._client_at(endpoint)

    def close(self) -> None:
        """Close the connection."""
        self._client.transport.close()

    def describe(self, machines: Machines, name: str) -> tuple[Resource, ...]:
        """See `Provider.describe`."""
        found = {one.name: one for one in self.describe_all()}
        if name not in found and (itself := self._get(machines, name)) is not None:
            found[name] = itself
        return tuple(
            one
            for one in found.values()
            if one.owner == machines.owner or generation_of(machines.prefix, one.name) is not None
        )

    def describe_all(self) -> tuple[Resource, ...]:
        """See `Provider.describe_all`."""
        request = {"parent": self._parent}
        nodes = self._all(self._client.list_nodes, request, "nodes")
        queued = self._all(self._client.list_queued_resources, request, "queued_resources")
        of_queue = defaultdict(list)
        for node in nodes:
            of_queue[last_part(node.queued_resource)].append(node)
        alone = [resource_of_node(node) for node in of_queue.pop("", [])]
        names = {last_part(one.name) for one in queued}
        for name in sorted(of_queue.keys() - names):  # made between the two lists, or left behind
            alone += [resource_of_node(node) for node in of_queue[name]]
        whole = [resource_of_queued(one, of_queue[last_part(one.name)]) for one in queued]
        return tuple(sorted([*whole, *alone], key=lambda one: one.name))

    def delete(self, machines: Machines, name: str) -> OrderAnswer:
        """See `Provider.delete`."""
        if machines.is_queued:
            request = {"name": f"{self._parent}/queuedResources/{name}", "force": True}
            answer = self._order(self._client.delete_queued_resource, request, NOT_FOUND)
            if answer.operation or answer.outcome is not ActOutcome.ACCEPTED:
                return answer
        # One that its queue has left behind has the same name.
        request = {"name": f"{self._parent}/nodes/{name}"}
        return self._order(self._client.delete_node, request, NOT_FOUND)

    def create(self, machines: Machines, name: str) -> OrderAnswer:
        """See `Provider.create`; raises ConfigurationError for what the API does not have."""
        check(machines)
        if machines.is_queued:
            message = queued_message(self._types, machines, name, self._parent)
            request = {"queued_resource_id": name, "queued_resource": message}
            create = self._client.create_queued_resource
            return self._order(create, self._below(request), ALREADY_EXISTS)
        request = {"node_id": name, "node": node_message(self._types, machines)}
        return self._order(self._client.create_node, self._below(request), ALREADY_EXISTS)

    def simulate_maintenance(self, name: str, workers: Sequence[str]) -> OrderAnswer:
        """See `Provider.simulate_maintenance`; raises ConfigurationError where the API has none."""
        if not hasattr(self._client, "simulate_maintenance_event"):
            raise ConfigurationError(f"only version {ALPHA} of Cloud TPU's API simulates anything")
        request = {"name": f"{self._parent}/nodes/{name}", "worker_ids": list(workers)}
        return self._order(self._client.simulate_maintenance_event, request)

    def progress(self, operation: str) -> OrderAnswer | None:
        """See `Provider.progress`."""
        from google.api_core.exceptions import GoogleAPIError, NotFound
        from google.auth.exceptions import GoogleAuthError

        try:
            found = self._client.transport.operations_client.get_operation(
                operation, retry=None, timeout=CALL_LIMIT_S
            )
        except NotFound:
            return OrderAnswer(ActOutcome.ACCEPTED, "it is not known any more")
        except (GoogleAPIError, GoogleAuthError):
            return None
        if not found.done:
            return None
        if found.HasField("error"):
            return _refusal(found.error.code, found.error.message, as_wanted=ALREADY_EXISTS)
        return OrderAnswer(ActOutcome.ACCEPTED)

    # --- how it is asked ----------------------------------------------------------------------

    def _client_at(self, endpoint: str | None) -> Any:
        if endpoint is not None:
            import grpc

            transport = self._types.TpuClient.get_transport_class("grpc")
            channel = grpc.insecure_channel(endpoint, [("grpc.enable_http_proxy", 0)])
            return self._types.TpuClient(transport=transport(channel=channel))
        from google.auth.exceptions import GoogleAuthError

        ask_metadata_directly()
        try:
            return self._types.TpuClient()
        except GoogleAuthError as error:
            raise ConfigurationError(
                f"no credentials for Google Cloud ({str(error).partition('. ')[0]}): "
                "run gcloud auth application-default login"
            ) from error

    def _below(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"parent": self._parent, **request}

    def _all(self, method: Callable[..., Any], request: dict[str, Any], what: str) -> list[Any]:
        """Every page of a list. One that says that it is not complete is no answer."""

        def pages() -> Iterable[Any]:
            for page in method(request=request, retry=None, timeout=CALL_LIMIT_S).pages:
                if page.unreachable:
                    raise ProviderError(
                        f"Cloud TPU's list of {what} is not complete "
                        f"({', '.join(page.unreachable)} cannot be reached)"
                    )
                yield from getattr(page, what)

        return _asked(lambda: list(pages()))

    def _get(self, machines: Machines, name: str) -> Resource | None:
        """One by its name; None: the service says that there is none."""
        from google.api_core.exceptions import NotFound

        kind = "queuedResources" if machines.is_queued else "nodes"
        ask = self._client.get_queued_resource if machines.is_queued else self._client.get_node
        request = {"name": f"{self._parent}/{kind}/{name}"}

        def asked() -> Resource | None:
            try:
                found = ask(request=request, retry=None, timeout=CALL_LIMIT_S)
            except NotFound:
                return None
            return resource_of_queued(found, ()) if machines.is_queued else resource_of_node(found)

        return _asked(asked)

    def _order(
        self, method: Callable[..., Any], request: dict[str, Any], as_wanted: int | None = None
    ) -> OrderAnswer:
        """`as_wanted`: the code of an error that says that it is so already."""
        from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            future = method(request=request, retry=None, timeout=CALL_LIMIT_S)
        except GoogleAPICallError as error:
            return _refusal(_code(error), error.message, error.details, as_wanted=as_wanted)
        except (GoogleAPIError, GoogleAuthError) as error:
            return OrderAnswer(ActOutcome.TROUBLE, line(str(error)))
        return OrderAnswer(ActOutcome.ACCEPTED, operation=future.operation.name)


def _refusal(
    code: int, message: str, details: Iterable[Any] = (), *, as_wanted: int | None
) -> OrderAnswer:
    """An error as an answer."""
    words = line(message)
    if code == as_wanted:
        return OrderAnswer(ActOutcome.ACCEPTED, words)
    return OrderAnswer(outcome_of(code, message, details), words)


def _asked(question: Callable[[], _Found]) -> _Found:
    """What a question brings; ProviderError when it brings an error."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    try:
        return question()
    except (GoogleAPIError, GoogleAuthError) as error:
        words = line(str(error))
        if outcome_of(_code(error), words) is ActOutcome.REFUSED:
            raise ProviderRefusedError(
                f"Cloud TPU refuses to say which machines there are ({words}): check the project, "
                "the zone and the roles of the account"
            ) from error
        raise ProviderError(f"Cloud TPU does not answer as it should ({words})") from error


def _code(error: Exception) -> int:
    """Of google.rpc.Code; 0: it has none."""
    status = getattr(error, "grpc_status_code", None)
    return status.value[0] if status else 0
