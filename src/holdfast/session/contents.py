"""What goes into a checkpoint beside the state: tracked parts, data positions, random generators.

A set is one tree: `{"state": …, "parts": …, "data": …, "rng": …, "session": …}`. The state is the
run's; the rest belongs to each rank.
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast.errors import ConfigurationError, DataTopologyChanged
from holdfast.session.data import DataStream
from holdfast.session.optimizers import Optimizers
from holdfast.session.parameter_names import ParameterNames
from holdfast.session.part_layouts import PartLayouts
from holdfast.session.replicated import ReplicatedParts
from holdfast.session.reshape import Positions, resharded
from holdfast.session.say import say
from holdfast.snapshot import parts as part_states
from holdfast.snapshot.paths import piece

STATE = "state"


class Contents:
    """What the script has told the session to keep."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._streams: list[DataStream[Any]] = []
        self._waiting: dict[str, Any] = {}  # restored, but not registered yet
        self._generators: dict[str, Any] = {}  # as they were restored
        self._skip_batches = 0  # of streams that are not registered yet
        self._tags: list[str] = []
        self._tag_lock = threading.Lock()
        self.bests: dict[str, float] = {}
        self.has_generators = True  # False: a framework keeps them in its own checkpoints
        self.optimizers = Optimizers()
        self._replicated = ReplicatedParts()
        self._parameters = ParameterNames()

    def track(self, parts: dict[str, Any]) -> None:
        """Add parts by name; those that a restore has already read take their state now."""
        for name, part in parts.items():
            if not part_states.is_part(part):
                raise ConfigurationError(
                    f"run.track({name}=…): {type(part).__name__} has neither state_dict and "
                    "load_state_dict nor get_state and set_state"
                )
            self._parts[name] = part
            self._load(name, part)
        self.optimizers.track(parts)

    def _load(self, name: str, part: Any) -> None:
        stored = self._waiting.get("parts")
        if stored is None:
            return  # nothing was restored, or not yet
        if name in stored:
            state = PartLayouts({name: part}).fit(stored.pop(name), f"parts/{piece(name)}")
            part_states.load_part(part, state, f"parts/{name}")
        else:
            say(f"parts/{name} is not in the checkpoint: it keeps its initial state")

    def add_stream(self, stream: DataStream[Any]) -> None:
        """Add a data stream; streams are known by their order."""
        number = str(len(self._streams))
        self._streams.append(stream)
        stored = self._waiting.get("data", {})
        if number in stored:
            drawn = part_states.capture_rng()  # drawing batches again may draw random numbers too
            self._seek(stream, stored.pop(number), int(number))
            part_states.restore_rng(drawn)
        stream.skip(self._skip_batches)

    def _seek(self, stream: DataStream[Any], stored: Any, number: int) -> None:
        if isinstance(stored, Positions):
            stored = resharded(stored, stream.reshard, number)
        stream.seek(stored)

    @property
    def has_parts(self) -> bool:
        """Whether the script tracks any."""
        return bool(self._parts)

    @property
    def is_told_of_more(self) -> bool:
        """Whether the script has named parts or data beside its state."""
        return bool(self._parts or self._streams)

    def skip(self, batches: int) -> None:
        """Pass over so many batches of each stream, from where it now is: the run went back.

        Drawn like any others: where a stream draws random numbers, those are gone too.
        """
        self._skip_batches = batches
        for stream in self._streams:
            stream.skip(batches)
        if batches and self._generators:
            self._generators = part_states.capture_rng()

    def settle(self) -> None:
        """The first step is near: say what was restored and nobody has asked for."""
        for kind, stored in self._waiting.items():
            for name in stored:
                say(f"{kind}/{name} is in the checkpoint, but this script does not use it")
        self._waiting = {}
        self._skip_batches = 0

    def tag(self, name: str) -> None:
        """Tag the next save."""
        with self._tag_lock:
            self._tags.append(name)

    def give_back(self, tags: tuple[str, ...]) -> None:
        """The save came to nothing: its tags are for the next one."""
        with self._tag_lock:
            self._tags[:0] = tags

    def take_tags(self) -> tuple[str, ...]:
        """The tags of the save that is being taken."""
        with self._tag_lock:
            tags, self._tags = tuple(self._tags), []
        return tags

    def gather(self, state: Any) -> dict[str, Any]:
        """The tree of a set."""
        return {
            STATE: state,
            "parts": {
                name: part_states.part_state(part, f"parts/{name}")
                for name, part in self._parts.items()
            },
            "data": {
                str(number): stream.position(f"data/{number}")
                for number, stream in enumerate(self._streams)
            },
            "rng": part_states.capture_rng() if self.has_generators else {},
            "session": {"bests": dict(self.bests), "parameters": self._parameters.of(self._parts)},
        }

    def layouts(self) -> PartLayouts:
        """As what the arrays of the tracked parts are to be read."""
        return PartLayouts(self._parts)

    def shared(self) -> tuple[str, ...]:
        """What belongs to the run as a whole: the state, and parts that train a model.

        That is no promise of equality: what each of them holds is compared, array by array.
        """
        parts = (
            f"parts/{name}" for name, part in self._parts.items() if part_states.is_of_run(part)
        )
        return (STATE, *parts)

    def replicated(self, tree: dict[str, Any]) -> tuple[str, ...]:
        """What a framework declares equal on all ranks: paths, or prefixes of such.

        `tree`: as it was gathered just now.
        """
        return self._replicated.paths(self._parts, tree["parts"])

    def apply(self, stored: dict[str, Any]) -> None:
        """Put everything but the state back; what is not registered yet waits for it."""
        self.bests = dict(stored.get("session", {}).get("bests", {}))
        self._waiting = {name: dict(stored.get(name, {})) for name in ("parts", "data")}
        for name, part in self._parts.items():
            self._load(name, part)
        waiting = self._waiting["data"]
        for number, stream in enumerate(self._streams):
            if str(number) in waiting:
                self._seek(stream, waiting.pop(str(number)), number)
            elif waiting:
                raise DataTopologyChanged(
                    f"the checkpoint has no position for data stream {number}: "
                    "call run.data for the same iterators in the same order"
                )
        self._generators = stored.get("rng", {}) if self.has_generators else {}
        self.restore_generators()

    def restore_generators(self) -> None:
        """As they were restored: a framework's start, or a model made since, may have drawn."""
        part_states.restore_rng(self._generators)
