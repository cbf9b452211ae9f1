"""What the host is asked, where the answer can be prepared."""

from __future__ import annotations

import os
import threading
import time

from holdfast.config.settings import Settings
from holdfast.doctor import host
from holdfast.doctor.ask import ask
from holdfast.doctor.checks import examine
from holdfast.doctor.facts import Facts
from holdfast.doctor.host import (
    host_facts,
    memory_tier,
    removes_ipc,
    scratch_place,
    store_place,
)
from holdfast.notices.protocol import SourceSurroundings
from holdfast.notices.registry import wanted
from holdfast.testing.gce import GceEmulator

USER = 1000
LONG_S = 60.0  # who answers is not waited for so long


def test_remove_ipc_is_read_as_logind_reads_it(tmp_path):
    assert not removes_ipc(tmp_path, USER)  # there is no logind
    (tmp_path / "run/systemd/seats").mkdir(parents=True)
    assert removes_ipc(tmp_path, USER)  # nobody says otherwise
    assert not removes_ipc(tmp_path, 0)
    main = tmp_path / "etc/systemd/logind.conf"
    main.parent.mkdir(parents=True)
    main.write_text("[Login]\n#RemoveIPC=yes\nRemoveIPC = no\n")
    assert not removes_ipc(tmp_path, USER)
    drop_in = tmp_path / "usr/lib/systemd/logind.conf.d/50-ipc.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Login]\nRemoveIPC=yes\n")
    assert removes_ipc(tmp_path, USER)
    above = tmp_path / "etc/systemd/logind.conf.d/50-ipc.conf"
    above.parent.mkdir()
    above.write_text("")  # hides the one below
    assert not removes_ipc(tmp_path, USER)


def test_files_of_the_kernel_and_variables(tmp_path):
    for name, text in {"core_pattern": "|/bin/dump", "yama/ptrace_scope": "2\n"}.items():
        path = tmp_path / "proc/sys/kernel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "vfio/vfio", "vfio/3"):
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    environ = {"JAX_ENABLE_PREEMPTION_SERVICE": "True", "TORCHELASTIC_RUN_ID": "1"}
    facts = host_facts(environ, tmp_path)
    assert (facts["core_pattern"], facts["ptrace_scope"]) == ("|/bin/dump", 2)
    assert facts["devices"] == ("/dev/nvidia0", "/dev/nvidia1", "/dev/vfio/3")
    assert facts["jax_preemption"]
    assert facts["torchrun_shares_store"]
    away = {"TORCHELASTIC_RUN_ID": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    assert not host_facts(away, tmp_path)["torchrun_shares_store"]
    assert "numpy" in facts["versions"]
    examine(Facts(**facts))


def test_places_are_tried_out_and_left_as_they_were(tmp_path):
    place = store_place(str(tmp_path / "not" / "yet"))
    assert place is not None
    assert place.trouble == ""
    assert place.fsync_s > 0
    assert place.free_bytes > 0
    assert abs(place.skew_s) < 60
    assert list(tmp_path.iterdir()) == []
    assert store_place("s3://bucket/runs") is None
    assert store_place(f"file://{tmp_path}").path == str(tmp_path)
    assert store_place("/proc/nothing").trouble  # not even root may write there
    assert scratch_place(str(tmp_path)).trouble == ""
    assert scratch_place("/proc").trouble
    tier = memory_tier(Settings(memory_dir=str(tmp_path)))
    assert tier.room_bytes > 0
    assert memory_tier(Settings(memory_dir=str(tmp_path / "gone"))).room_bytes is None


def test_a_store_without_hard_links_is_found(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    assert "has no hard links" in store_place(str(tmp_path)).trouble
    assert list(tmp_path.iterdir()) == []


def test_a_slow_fsync_is_no_clock_that_is_behind(tmp_path, monkeypatch):
    later_s = iter((0.0, 100.0))
    now_s = time.time
    monkeypatch.setattr(time, "time", lambda: now_s() + next(later_s))
    assert store_place(str(tmp_path)).skew_s == 0.0


def test_a_store_that_never_answers_is_found(tmp_path, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(host, "filesystem_of", lambda _: str(over.wait(60)))
    assert store_place(str(tmp_path), limit_s=0.01).trouble == "no answer within 0.01 s"
    over.set()


def test_sources_are_asked_and_one_that_is_deaf_is_found(tmp_path):
    around = SourceSurroundings({}, tmp_path)
    with GceEmulator() as gce:
        named = wanted(f"gce:{gce.url},file:{tmp_path / 'notice'}", around)
        assert [one.has_answered for one in ask(named, around, LONG_S)] == [True, True]
        assert [one.trouble for one in ask(named, around, LONG_S)] == ["", ""]
        gce.do("refuse", "preempted")
        (partly,) = ask(named[:1], around, LONG_S)
        assert partly.has_answered
        assert "preempted with status 500" in partly.trouble
        gce.do("recover")
        gce.do("fail", "html", "9")
        (deaf,) = ask(named[:1], around, LONG_S)
        assert not deaf.has_answered
        assert "no metadata server" in deaf.trouble
        gce.do("fail", "hang", "9")
        (slow,) = ask(named[:1], around, limit_s=0.2)
        assert not slow.has_answered
    assert ask((), around) == []
