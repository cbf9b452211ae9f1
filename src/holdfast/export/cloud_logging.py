"""Google Cloud Logging: what happened to a run, one structured entry an event.

The payload names the job as ml-goodput-measurement 0.2.3 does (`job_name`, `job_start_time`,
`job_end_time`, in unix seconds), so that what reads that library's logs finds when each attempt
began and ended. Disruptions carry their cause and words. `holdfast-ml[gcp-export]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from holdfast.config import ask_metadata_directly
from holdfast.core.ledger.facts import DONE
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.export.asked import Gcp
from holdfast.export.outlet import ExportLook
from holdfast.export.sample import Sample

LOG = "goodput_{run}"
WORDS_CHARS = 2000
Entry = dict[str, Any]


class CloudLogging:
    """Writes entries. `make_client` gives a `google.cloud.logging.Client`."""

    name = "gcp-logging"

    def __init__(self, gcp: Gcp, make_client: Callable[[], Any] | None = None) -> None:
        """Raises ConfigurationError without the library."""
        try:
            import google.cloud.logging as client_library
        except ImportError:
            raise ConfigurationError(needs_extra("the exporter gcp needs", "gcp-export")) from None
        ask_metadata_directly()
        self._make = make_client or (lambda: client_library.Client(project=gcp.project))
        self._client: Any = None
        self._told: set[str] = set()

    def deliver(self, look: ExportLook) -> None:
        """What is new; raises what the client does, and then tells it again next time.

        Entries carry an id of what they tell, and its time: the service shows one of several in
        which both are the same. So a second exporter, or one that was started again, repeats none.
        """
        for sample in look.samples:
            for at_s, key, severity, entry in entries(sample):
                if key in self._told:
                    continue
                if self._client is None:
                    self._client = self._make()
                logger = self._client.logger(LOG.format(run=sample.run.name))
                logger.log_struct(
                    entry,
                    severity=severity,
                    insert_id=key,
                    timestamp=datetime.fromtimestamp(at_s, UTC),
                    labels={"run_id": sample.run.run_id},
                )
                self._told.add(key)

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()


def entries(sample: Sample) -> Iterator[tuple[float, str, str, Entry]]:
    """(unix s, id, severity, payload) of everything that happened to a run so far, in order."""
    run = sample.run
    rows: list[tuple[float, str, str, Entry]] = []
    for attempt, at_s in sample.started_s:
        entry = {"job_name": run.name, "job_start_time": at_s, "attempt": attempt}
        rows.append((at_s, f"{run.run_id}-{attempt}-start", "INFO", entry))
    for end in sample.ended:
        entry = {
            "job_name": run.name,
            "job_end_time": end.at_s,
            "attempt": end.attempt,
            "cause": end.cause,
            "words": end.words[:WORDS_CHARS],
        }
        severity = "INFO" if end.cause == DONE else "WARNING"
        rows.append((end.at_s, f"{run.run_id}-{end.attempt}-end", severity, entry))
    yield from sorted(rows, key=lambda row: row[0])
