"""The wire of Cloud TPU's emulator: the API's versions v2 and v2alpha1, answered in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.cloud import tpu_v2, tpu_v2alpha1
from google.longrunning import operations_pb2

ALPHA = tpu_v2alpha1
VERSIONS = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}


class ApiError(Exception):
    """What a call is refused with."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds a call's method, and carries its messages between the versions."""

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        """`answer` takes a method and its request, in v2alpha1; raises ApiError."""
        self._answer = answer

    def service(self, details: Any) -> Any:
        """How a call is answered; None: it is not known here."""
        _, service, method = details.method.split("/")
        if method == "GetOperation":
            read = operations_pb2.GetOperationRequest.FromString
            return self._handler(method, read, lambda request: request, _bytes)
        types = VERSIONS.get(service.removeprefix("google.cloud.tpu.").removesuffix(".Tpu"))
        kind = getattr(types, f"{method}Request", None)
        if kind is None:
            return None
        return self._handler(method, kind.deserialize, _to_alpha, lambda one: _sent(types, one))

    def _handler(self, method: str, read: Any, taken: Any, write: Any) -> Any:
        def answer(request: Any, context: Any) -> Any:
            try:
                return self._answer(method, taken(request))
            except ApiError as error:
                context.abort(error.code, error.words)

        return grpc.unary_unary_rpc_method_handler(answer, read, write)


def _to_alpha(request: Any) -> Any:
    """A request in v2alpha1; v2 has another name for several slices."""
    kind = getattr(ALPHA, type(request).__name__)
    if isinstance(request, kind):
        return request
    text = _json(request).replace('"multisliceParams"', '"multiNodeParams"')
    return kind.from_json(text, ignore_unknown_fields=True)


def _sent(types: Any, answer: Any) -> bytes:
    """An answer as bytes, in the version that was asked."""
    if not isinstance(answer, operations_pb2.Operation):
        return _bytes(_in_version(types, answer))
    kind = getattr(ALPHA, answer.response.TypeName().rpartition(".")[2], None)
    if kind is not None:
        copy = operations_pb2.Operation()
        copy.CopyFrom(answer)
        copy.response.Pack(_in_version(types, kind.deserialize(answer.response.value)))
        answer = copy
    return _bytes(answer)


def _in_version(types: Any, answer: Any) -> Any:
    """A message of v2alpha1 in that version, without what that one does not have."""
    kind = getattr(types, type(answer).__name__)
    if not isinstance(answer, kind):
        text = _json(answer).replace('"multiNodeParams"', '"multisliceParams"')
        answer = kind.from_json(text, ignore_unknown_fields=True)
    return kind.pb(answer)


def _json(message: Any) -> str:
    """Only what is there: of fields that exclude each other, one."""
    kind = type(message)
    return str(kind.to_json(message, always_print_fields_with_no_presence=False))


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
