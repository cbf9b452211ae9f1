"""What Prometheus scrapes: numbers on loopback, or as text. `holdfast-ml[metrics]`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import ConfigurationError, StoreUnavailable, needs_extra

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOOPBACK = "127.0.0.1"
PORT = 9464


class Collector(Protocol):
    """What `prometheus_client` calls one."""

    def collect(self) -> Iterable[Any]:
        """All metrics, as they are now; called from any thread."""


def registry_of(collector: Collector, who: str) -> CollectorRegistry:
    """A registry with nothing else in it. `who` needs the library, as in "--metrics".

    Raises ConfigurationError without it.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise ConfigurationError(needs_extra(f"{who} needs", "metrics")) from None
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def serve(collector: Collector, port: int, who: str) -> tuple[int, Callable[[], None]]:
    """Serve it on loopback; the port, chosen by the kernel for 0, and what ends it.

    Raises ConfigurationError as `registry_of`, StoreUnavailable when the port is taken.
    """
    registry = registry_of(collector, who)
    from prometheus_client import make_wsgi_app

    from holdfast.export.scrape_server import ScrapeServer

    try:
        server = ScrapeServer(LOOPBACK, port, make_wsgi_app(registry))
    except (OSError, OverflowError) as error:
        raise StoreUnavailable(f"port {port} of {LOOPBACK} cannot be served: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="holdfast-numbers", daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, close


def as_text(collector: Collector, who: str) -> bytes:
    """The text format, as a file for the node exporter's textfile collector."""
    registry = registry_of(collector, who)
    from prometheus_client import generate_latest

    return generate_latest(registry)
