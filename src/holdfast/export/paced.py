"""A target that is told less often than runs are looked at, and only what it was not told.

What is left out is not lost: everything exported is cumulative, or a window up to now. The last
look is kept for the end. A run that is over says the same for ever, and is told once.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.export.outlet import DeliveryTarget, ExportLook
from holdfast.export.sample import Sample

_NEVER_S = float("-inf")


class Paced:
    """`every_s`: between two deliveries; `least_s`: the same for the last, which else is left out.

    Of a look it hands on the samples that say something new.
    """

    def __init__(self, target: DeliveryTarget, every_s: float, least_s: float = 0.0) -> None:
        self.name = target.name
        self._target = target
        self._every_s, self._least_s = every_s, least_s
        self._last_s = _NEVER_S
        self._told: dict[str, tuple[object, ...]] = {}
        self._kept: ExportLook | None = None

    def deliver(self, look: ExportLook) -> None:
        """Now, or with a later one; raises what the target does."""
        look = self._with_kept(look)
        if look.began_s < self._last_s + self._every_s:
            self._kept = look
        else:
            self._deliver(look)

    def close(self) -> None:
        """Deliver the last one, if it waits; raises what the target does."""
        try:
            if self._kept and self._kept.began_s >= self._last_s + self._least_s:
                self._deliver(self._kept)
        finally:
            self._target.close()

    def _with_kept(self, look: ExportLook) -> ExportLook:
        """A run's last sample that was read has curves; those of its summary, later, have none."""
        waiting = {one.run.name: one for one in self._kept.samples} if self._kept else {}
        known = [waiting.get(one.run.name, one) for one in look.samples]
        pairs = zip(look.samples, known, strict=True)
        samples = tuple(old if _said(old) == _said(new) else new for new, old in pairs)
        return replace(look, samples=samples)

    def _deliver(self, look: ExportLook) -> None:
        said = {sample.run.name: _said(sample) for sample in look.samples}
        new = [one for one in look.samples if self._told.get(one.run.name) != said[one.run.name]]
        self._target.deliver(replace(look, samples=tuple(new)))
        self._told, self._last_s, self._kept = said, look.began_s, None


def _said(sample: Sample) -> tuple[object, ...]:
    """What changes as long as the run goes on: its time line grows."""
    run = sample.run
    return run.run_id, run.state, run.attempts, run.step, run.spent().elapsed
