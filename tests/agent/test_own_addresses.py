"""Which address of a host others are told first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NETWORK = """
set -e
for n in 0 1; do ip tuntap add dev dev$n mode tap; done
ip addr add 172.17.0.1/16 dev dev0
ip addr add 10.9.0.5/24 dev dev1
for n in lo dev0 dev1; do ip link set $n up; done
[ "$1" = isolated ] || ip route add default via 10.9.0.1
"""
ASK = "from holdfast.agent.own_addresses import own_addresses as own; print(*own())"


@pytest.mark.real
@pytest.mark.parametrize(
    ("network", "order"),
    [
        ("routed", ["10.9.0.5", "172.17.0.1", "127.0.0.1"]),
        ("isolated", ["172.17.0.1", "10.9.0.5", "127.0.0.1"]),
    ],
)
def test_the_way_out_comes_before_a_bridge_that_all_hosts_have(
    network: str, order: list[str]
) -> None:
    who = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = f"{NETWORK}\nexec {sys.executable} -c '{ASK}'"
    run = [*("unshare", "--net", *who), "sh", "-c", script, "sh", network]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    if "unshare" in done.stderr or "tun" in done.stderr:
        pytest.skip(f"no network of its own here: {done.stderr}")
    assert done.stdout.split() == order, done.stderr
