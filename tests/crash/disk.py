"""A disk that can lose its power: what a POSIX file system may hold after a crash.

`Disk` is fed the operations that a program really did, one by one. At any moment `after_crash`
gives the trees that may be found when the power comes back:

- what was synced is there: a file's bytes by an fsync of the file, a name by one of its folder;
- bytes that were not synced may be there, be missing, or be torn: any sector, any length, in any
  order, also the length without the bytes, which then read as zeros;
- names that were not synced may have changed or not, in any order; one rename is all or nothing.

No order holds but the one that syncs make: that is less than any file system in use gives, so what
is right here is right on all of them.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

SECTOR_BYTES = 512
MOST = 4096  # ways of one moment that are all looked at
ROOT = 0

State = dict[str, bytes | None]
"""A tree: path below the root → the file's bytes, or None for a folder."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new file or folder, which has no name yet."""

    node: int
    is_folder: bool


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """Names of one folder change together: name → node, or None when the name is gone."""

    folder: int
    names: tuple[tuple[str, int | None], ...]
    path: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes into a file."""

    node: int
    offset: int
    data: bytes
    path: str


@dataclass(frozen=True, slots=True)
class Synced:
    """An fsync of a file or folder that gave no error."""

    node: int
    path: str


Op = Made | Named | Wrote | Synced


@dataclass(slots=True)
class _File:
    durable: bytes = b""
    pending: list[Wrote] = field(default_factory=list)

    def now(self) -> bytes:
        return _written(self.durable, self.pending)


@dataclass(slots=True)
class _Folder:
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[Named] = field(default_factory=list)

    def now(self) -> dict[str, int]:
        return _renamed(self.durable, self.pending)


class Disk:
    """Files and folders by number, each with what is durable and what is not yet."""

    def __init__(self, ops: Sequence[Op] = ()) -> None:
        self._nodes: dict[int, _File | _Folder] = {ROOT: _Folder()}
        for op in ops:
            self.apply(op)

    def apply(self, op: Op) -> None:
        """Take one operation into account."""
        if isinstance(op, Synced) and op.node not in self._nodes:
            return  # one that was taken out
        if isinstance(op, Made):
            self._nodes[op.node] = _Folder() if op.is_folder else _File()
            return
        node = self._nodes[op.folder if isinstance(op, Named) else op.node]
        if isinstance(op, Synced):
            node.durable = node.now()
            node.pending.clear()
        else:
            node.pending.append(op)

    def folder(self, node: int) -> dict[str, int]:
        """The names in a folder now."""
        found = self._nodes[node]
        assert isinstance(found, _Folder)
        return found.now()

    def size(self, node: int) -> int:
        """The length of a file now."""
        found = self._nodes[node]
        assert isinstance(found, _File)
        return len(found.now())

    def is_folder(self, node: int) -> bool:
        """Whether it is a folder."""
        return isinstance(self._nodes[node], _Folder)

    def now(self) -> State:
        """The tree as running programs see it."""
        return self._tree(lambda _, node: node.now(), lambda _, node: node.now())

    def synced(self) -> State:
        """The tree with nothing but what was synced."""
        return self._tree(lambda _, node: node.durable, lambda _, node: node.durable)

    def after_crash(
        self, chance: random.Random, is_background: Callable[[str], bool], samples: int
    ) -> tuple[list[State], bool]:
        """The trees that may be found if the power fails now, and whether these are all.

        Every choice of the changes that nobody was told of yet, as long as these are at most
        `MOST`. Changes of paths that are `is_background` (heartbeats, growing copies) wait for
        long, and nothing depends on them: each choice comes with none or with all of them; with
        `samples`, with either, and so many are drawn of what lies between.
        """
        front, back = _Choice(), _Choice()
        for number, node in self._nodes.items():
            for op in node.pending:
                choice = back if is_background(op.path) else front
                if isinstance(op, Named):
                    choice.names.append(op)
                else:
                    choice.torn[number] = list(_tears(node.durable, node.pending))
        picked = [front.none() | back.none(), front.everything() | back.everything()]
        for pick in front.all(chance):
            with_background = [pick | back.none(), pick | back.everything()]
            picked += with_background if samples else [chance.choice(with_background)]
        for _ in range(samples if back.names or back.torn else 0):
            picked.append(front.random(chance) | back.random(chance))
        trees: dict[str, State] = {}
        for pick in picked:
            tree = self._picked(pick)
            trees.setdefault(digest(tree), tree)
        return list(trees.values()), front.size() <= MOST

    def _picked(self, pick: _Pick) -> State:
        return self._tree(
            lambda _, node: _renamed(node.durable, [op for op in node.pending if op in pick.names]),
            lambda number, node: pick.torn.get(number, node.durable),
        )

    def _tree(
        self,
        names_of: Callable[[int, _Folder], dict[str, int]],
        bytes_of: Callable[[int, _File], bytes],
    ) -> State:
        found: State = {}

        def walk(folder: int, prefix: str) -> None:
            for name, number in sorted(names_of(folder, self._nodes[folder]).items()):
                node, path = self._nodes[number], prefix + name
                if isinstance(node, _Folder):
                    found[path] = None
                    walk(number, path + "/")
                else:
                    found[path] = bytes_of(number, node)

        walk(ROOT, "")
        return found


@dataclass(slots=True)
class _Pick:
    """One way in which things may have gone: the names that changed, the bytes of files."""

    names: frozenset[Named]
    torn: dict[int, bytes]

    def __or__(self, other: _Pick) -> _Pick:
        return _Pick(self.names | other.names, self.torn | other.torn)


@dataclass(slots=True)
class _Choice:
    """What is not durable: changes of names, and files with all that may be in them."""

    names: list[Named] = field(default_factory=list)
    torn: dict[int, list[bytes]] = field(default_factory=dict)

    def size(self) -> int:
        """How many ways there are."""
        return math.prod(map(len, self.torn.values()), start=2 ** len(self.names))

    def none(self) -> _Pick:
        """Nothing of it has reached the disk."""
        return _Pick(frozenset(), {number: tears[0] for number, tears in self.torn.items()})

    def everything(self) -> _Pick:
        """All of it has."""
        return _Pick(
            frozenset(self.names), {number: tears[1] for number, tears in self.torn.items()}
        )

    def random(self, chance: random.Random) -> _Pick:
        """Some of it has."""
        names = frozenset(one for one in self.names if chance.random() < 0.5)
        return _Pick(names, {number: chance.choice(tears) for number, tears in self.torn.items()})

    def all(self, chance: random.Random) -> Iterator[_Pick]:
        """Every way, or `MOST` of them."""
        if self.size() > MOST:
            yield self.none()
            yield self.everything()
            for _ in range(MOST - 2):
                yield self.random(chance)
            return
        for mask in range(2 ** len(self.names)):
            names = frozenset(one for bit, one in enumerate(self.names) if mask >> bit & 1)
            for bytes_of in product(*self.torn.values()):
                yield _Pick(names, dict(zip(self.torn, bytes_of, strict=True)))


def digest(tree: State) -> str:
    """Equal for equal trees. Names of drafts are random and mean nothing: they count as one."""
    seen = hashlib.blake2b(digest_size=16)
    for path, data in sorted(tree.items()):
        folder, _, name = path.rpartition("/")
        shown = f"{folder}/.tmp" if name.endswith(".tmp") else path
        seen.update(f"{shown}\0{-1 if data is None else len(data)}\0".encode() + (data or b""))
    return seen.hexdigest()


def _renamed(before: dict[str, int], changes: Sequence[Named]) -> dict[str, int]:
    names = dict(before)
    for change in changes:
        for name, node in change.names:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
    return names


def _written(before: bytes, writes: Sequence[Wrote]) -> bytes:
    data = bytearray(before)
    for write in writes:
        data.extend(bytes(max(0, write.offset - len(data))))
        data[write.offset : write.offset + len(write.data)] = write.data
    return bytes(data)


def _tears(durable: bytes, writes: Sequence[Wrote]) -> Iterator[bytes]:
    """What may be in a file: nothing new first, all of it second, then the halves and the holes."""
    whole = _written(durable, writes)
    seen = [durable]
    yield durable
    for data in (whole, *_partly(durable, writes, whole)):
        if data not in seen:
            seen.append(data)
            yield data


def _partly(durable: bytes, writes: Sequence[Wrote], whole: bytes) -> Iterator[bytes]:
    yield durable + bytes(max(0, len(whole) - len(durable)))  # the length, and no bytes
    for n in range(1, len(writes)):
        yield _written(durable, writes[:n])
    for n in range(len(writes)):
        yield _written(durable, [*writes[:n], *writes[n + 1 :]])
    last = writes[-1]
    for length in {1, len(last.data) // 2, len(last.data) - 1, SECTOR_BYTES}:
        if 0 < length < len(last.data):
            cut = Wrote(last.node, last.offset, last.data[:length], last.path)
            yield _written(durable, [*writes[:-1], cut])
    for parity in (0, 1):
        mixed = bytearray(durable + bytes(max(0, len(whole) - len(durable))))
        for start in range(0, len(whole), SECTOR_BYTES):
            if start // SECTOR_BYTES % 2 == parity:
                mixed[start : start + SECTOR_BYTES] = whole[start : start + SECTOR_BYTES]
        yield bytes(mixed)
