"""Readers of checkpoints. What was forged is sealed anew: a checksum is no defence here."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz_mutate import mutate_bytes, mutate_json
from fuzz_seeds import RUN, good_run
from fuzz_target import Target, documented, put, sayable

from holdfast.core.save.choose import newest_good
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.layout import decode_facts
from holdfast.snapshot.manifest import Manifest
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import Receipt
from holdfast.snapshot.removal import remove
from holdfast.snapshot.restore import prepare, read_set
from holdfast.snapshot.retention import collect, read_pins
from holdfast.snapshot.sealed import checksum, read_sealed
from holdfast.snapshot.sets import finish_commits, list_sets, set_name

HELD: Any = SimpleNamespace(epoch=1, check=lambda: None)

SET = set_name(0, 3)
_SHARD = "rank-00000.safetensors"
_RECEIPT = "rank-00000.receipt.json"
_CHAIN = [(0, None)]
PINS = f'{{"pins": {{"best": "{SET}"}}}}'


def good(name: str) -> bytes:
    """A file of a good set."""
    return (good_run() / RUN / "ckpt" / SET / name).read_bytes()


def body(name: str) -> bytes:
    """What stands under the seal of a file of a good set."""
    said = read_sealed(good_run() / RUN / "ckpt" / SET / name)
    return json.dumps(said, separators=(",", ":")).encode()


def sealed(data: bytes) -> bytes:
    """These bytes under a seal that holds."""
    rest = data + b"}\n"
    return b'{"xxh3": "%s", "sealed":\n' % checksum(rest).encode() + rest


def a_set(place: Path, **files: bytes) -> Path:
    """A copy of the good set, in which some files are others."""
    folder = place / "ckpt" / SET
    shutil.rmtree(place / "ckpt", ignore_errors=True)
    folder.mkdir(parents=True)
    for path in (good_run() / RUN / "ckpt" / SET).iterdir():
        data = files.get(path.name)
        put(folder / path.name, path.read_bytes() if data is None else data)
    return folder


def use(folder: Path) -> None:
    """Everything that reads a set. What comes out is the good tree, or a documented error."""
    ckpt_dir = folder.parent
    sets, damage = list_sets(ckpt_dir)
    newest_good(sets, _CHAIN, damage)
    for words in (*damage.values(), *verify(folder)):
        sayable(words)
    for rank, ranks in ((0, 2), (1, 2), (0, 3)):
        with documented():
            read_set(folder, kinds="numpy", rank=rank, world_size=ranks)
    with documented():
        read_set(folder, only=("w", "tree/**"), kinds="numpy", world_size=0, sections=("state",))
    with documented():
        prepare(folder, 0, 2)


def _read_manifest_file(data: bytes, place: Path) -> None:
    use(a_set(place, **{"manifest.json": data}))


def _read_manifest(data: bytes, place: Path) -> None:
    use(a_set(place, **{"manifest.json": sealed(data)}))
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(said, dict):
        with documented(ValueError):
            Manifest.from_json(said)


def _read_receipt(data: bytes, place: Path) -> None:
    folder = a_set(place, **{_RECEIPT: sealed(data)})
    (folder / "manifest.json").unlink()
    with documented():
        found = finish_commits(folder.parent)
        use(folder)
        remove(folder.parent, found.lacking, HELD)
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(said, dict):
        with documented(ValueError):
            Receipt.from_json(said)


def _with_shard(place: Path, header: bytes, data: bytes) -> None:
    """A set whose first shard is this, and a manifest that knows its length and checksum."""
    manifest = json.loads(body("manifest.json"))
    manifest["shards"][0] |= {
        "file_bytes": len(header) + len(data),
        "data_begin": len(header),
        "header_xxh3": checksum(header),
    }
    forged = sealed(json.dumps(manifest).encode())
    use(a_set(place, **{_SHARD: header + data, "manifest.json": forged}))


def _read_shard(data: bytes, place: Path) -> None:
    """The whole file, its header as long as it says itself."""
    length = struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0]
    begin = min(8 + length, len(data))
    with documented(ValueError, KeyError, TypeError, AttributeError):
        decode_facts(data[:begin])
    _with_shard(place, data[:begin], data[begin:])


def _split() -> tuple[bytes, bytes]:
    data = good(_SHARD)
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return data[:begin], data[begin:]


def _read_structure(data: bytes, place: Path) -> None:
    """A header whose facts hold this as the structure of the tree."""
    header, arrays = _split()
    said = json.loads(header[8:])
    facts = said["__metadata__"]["holdfast"]
    start = facts.index('"structure":') + len('"structure":')
    said["__metadata__"]["holdfast"] = facts[:start] + data.decode("latin-1") + "}"
    text = json.dumps(said).encode()
    _with_shard(place, struct.pack("<Q", len(text)) + text, arrays)


def _structure_seeds() -> list[bytes]:
    facts = decode_facts(_split()[0])
    return [json.dumps(facts["structure"]).encode()]


def _read_pins(data: bytes, place: Path) -> None:
    path = put(place / "pins.json", data)
    with documented():
        for name in read_pins(path).values():
            assert "/" not in name
    with documented():
        collect(a_set(place).parent, path, Keep(last=1), HELD)


TARGETS = [
    Target("manifest_file", _read_manifest_file, lambda: [good("manifest.json")], mutate_bytes),
    Target("manifest", _read_manifest, lambda: [body("manifest.json")], mutate_json),
    Target("receipt", _read_receipt, lambda: [body(_RECEIPT)], mutate_json),
    Target("shard", _read_shard, lambda: [good(_SHARD)], mutate_bytes),
    Target("structure", _read_structure, _structure_seeds, mutate_json),
    Target("pins", _read_pins, lambda: [PINS.encode()], mutate_json),
]  # fmt: skip
