"""Two processes of JAX on one host: each copies its part of what both hold, and seals compare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.agent.launch import free_ports
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.manifest import ArraySharing
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.reader import verify
from holdfast.snapshot.restore import load_path
from holdfast.snapshot.seal import SealedPart, seal_part
from holdfast.snapshot.sets import commit, read_manifest, set_name

pytestmark = pytest.mark.real

pytest.importorskip("jax")

SIZE = 200_000  # elements of each array that both hold
NBYTES = 4 * SIZE

PROCESS = f"""
import ctypes, os, sys, traceback

def give_up(*error):
    traceback.print_exception(*error)
    os._exit(1)  # JAX would wait for the other process

sys.excepthook = give_up
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np
from pathlib import Path
rank, port, ram = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
jax.distributed.initialize(f"localhost:{{port}}", 2, rank)
from jax.sharding import NamedSharding, PartitionSpec as P
from holdfast.snapshot import ram as ram_module
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.restore import read_set

mesh = jax.make_mesh((4,), ("x",))
def put(spec, whole):
    return jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, spec), lambda index: whole[index])

def state_of(step):
    alike = [put(P(), np.float32(step) + n * np.arange({SIZE}, dtype=np.float32)) for n in range(5)]
    return {{"alike": alike, "rows": put(P("x"), step + np.arange(8.0)), "n": step,
            "key": jax.jit(lambda: jax.random.key(step), out_shardings=NamedSharding(mesh, P()))()}}

def bits(leaf):
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return [np.asarray(shard.data).tobytes() for shard in leaf.addressable_shards]

def same(got, want):
    assert got.pop("n") == want.pop("n")
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert one.sharding == other.sharding and bits(one) == bits(other)

files = BufferFiles(ram, wanted=1, rank=rank, world_size=2, local_world_size=2)
assert files.prepare(files.measure({{"state": state_of(1), "rng": rank}}, ("state",))) == ""
ram_module.device_of = lambda leaf: 7 if leaf.pieces else None
for hosts in (1, 2):  # a device is found by what this process stores, of which another may have all
    place = {{"world_size": 2, "local_world_size": 2 // hosts, "local_rank": rank % (2 // hosts)}}
    other = BufferFiles(ram, wanted=1, rank=rank, **place)
    other.measure({{"state": state_of(1)["alike"]}}, ("state",))
    assert other._device == 7
print("ready", flush=True)
for line in sys.stdin:
    what, step, *where = line.split()
    state = state_of(int(step))
    if what == "read":
        like = state_of(0)
        read = read_set(Path(where[0]), {{"state": like}}, rank=rank, world_size=2)
        assert read["rng"] == rank
        same(read["state"], state)
    else:
        if what == "flipped" and rank == 1:
            jax.block_until_ready(state)
            shard = state["alike"][3].addressable_data(0)
            ctypes.memset(shard.unsafe_buffer_pointer() + 80_003, 1, 1)
        named = Named(0, int(step), int(step), ("state",), (), (), what == "parts")
        files.begin(0, {{"state": state, "rng": rank}}, named, None)
    print("done", flush=True)
"""


class Processes:
    """Two of them, which do what they are told at the same time."""

    def __init__(self, ram: Path) -> None:
        self.buffer = ram / buffer_name(0)
        port = str(free_ports(1)[0])
        self._all = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESS, str(rank), port, str(ram)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]

    def do(self, *words: object) -> None:
        for one in self._all:
            assert one.stdin is not None
            one.stdin.write(" ".join(map(str, words)) + "\n")
            one.stdin.flush()
        self.heard("done")

    def copy(self, what: str, step: int) -> SealedPart:
        self.do(what, step)
        return seal_part(self.buffer, 2, attempt=0, step=step)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        for one in self._all:  # at their exit they wait for one another
            assert one.stdin is not None
            one.stdin.close()
            if failed:
                one.kill()
        codes = [one.wait(timeout=300) for one in self._all]
        for one in self._all:
            assert one.stdout is not None
            one.stdout.close()
        assert failed or codes == [0, 0]

    def heard(self, word: str) -> None:
        said = [one.stdout.readline() if one.stdout else "" for one in self._all]
        assert said == [f"{word}\n"] * 2


def test_parts_make_the_whole_and_a_flipped_bit_is_found(tmp_path: Path) -> None:
    with Processes(tmp_path / "ram") as both:
        both.heard("ready")
        all_of_it = 5 * NBYTES

        assert both.copy("whole", 1).comparison == (True, ())
        manifest = read_manifest(both.buffer)
        arrays = manifest.arrays
        assert arrays["state/alike/1"].placement is ArraySharing.REPLICATED
        assert arrays["state/rows"].placement is ArraySharing.SHARDED
        assert all(shard.file_bytes > all_of_it for shard in manifest.shards)
        both.do("read", 1, both.buffer)

        assert not both.copy("parts", 2).comparison.is_made
        stored = {
            path: [(rank, tensor.nbytes) for rank, tensor in array.pieces]
            for path, array in read_manifest(both.buffer).arrays.items()
            if path.startswith("state/alike")
        }
        assert len(stored) == 5
        assert all(len(pieces) == 1 and pieces[0][1] == NBYTES for pieces in stored.values())
        assert {pieces[0][0] for pieces in stored.values()} == {0, 1}, "each stores some"
        both.do("read", 2, both.buffer)
        assert verify(both.buffer) == ()

        for step, what in ((3, "whole"), (4, "parts")):
            both.copy(what, step)
            place = tmp_path / "ckpt" / set_name(0, step)
            place.parent.mkdir(exist_ok=True)
            flush_set(both.buffer, place, attempt=0, step=step)
            assert commit(place, 2).nbytes < all_of_it + 200_000, "on disk once"
            both.do("read", step, place)
            read = load_path(place)  # in one process
            assert all((read["alike"][n] == step + n * np.arange(SIZE)).all() for n in range(5))

        (found,) = both.copy("flipped", 5).comparison.differing
        assert found.array == "state/alike/3"
        assert [replica.rank for replica in found.replicas] == [0, 1]
