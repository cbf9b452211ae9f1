"""Which replica of an array a host stores: each one's turn comes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.launch import free_ports
from holdfast.snapshot.arrays import turn

SETS = 16


@given(st.integers(0, 60_000), st.integers(1, 8))
def test_each_of_up_to_eight_replicas_has_its_turn_within_sixteen_sets(
    first: int, replicas: int
) -> None:
    turns = {turn(epoch, replicas) for epoch in range(first, first + SETS)}
    assert turns == set(range(replicas))


@given(st.integers(0, 60_000))
def test_so_it_has_where_every_second_set_counts(first: int) -> None:
    assert {turn(first + 2 * number, 2) for number in range(SETS)} == {0, 1}


# A host of two processes with two devices each. Replica n holds n, which no real one may: so what
# is stored tells whose it is.
HOST = f"""
    import json, os, sys
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, numpy as np
    rank, port = int(sys.argv[1]), sys.argv[2]
    jax.distributed.initialize(f"localhost:{{port}}", 2, rank)
    from jax.sharding import NamedSharding, PartitionSpec as P
    from holdfast.snapshot.arrays import describe, on_host

    mesh = jax.make_mesh((4,), ("x",))
    held = [jax.device_put(np.full((3, 2), one.id), one) for one in jax.local_devices()]
    array = jax.make_array_from_single_device_arrays((3, 2), NamedSharding(mesh, P()), held)
    leaf = describe("w", array)
    stored = []
    for epoch in range({SETS}):
        pieces = on_host(leaf, range(2), epoch).pieces
        stored.append([int(np.asarray(piece.source)[0, 0]) for piece in pieces])
    print(json.dumps([[one.id for one in jax.devices()], stored]), flush=True)
"""


@pytest.mark.real
def test_a_host_stores_one_replica_a_set_and_each_of_them_in_turn() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", textwrap.dedent(HOST)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(port)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    (devices, one), (_, other) = (json.loads(rank.communicate(timeout=300)[0]) for rank in ranks)
    assert len(devices) == 4
    both = [[*first, *second] for first, second in zip(one, other, strict=True)]
    assert [len(stored) for stored in both] == [1] * SETS
    assert {stored for (stored,) in both} == set(devices)
