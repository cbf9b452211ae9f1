"""What ranks print: prefixed on screen, kept in the store, and never something to wait for."""

from __future__ import annotations

import os
import pty
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, EXIT_SAVED, LIMIT_S, TRAINER, House

from holdfast.agent import output as output_module
from holdfast.agent.output import OutputPump, RankOutput

HOLDFAST_RUN = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", "r", "--"]


def log_of(house: House, attempt: int = 0, rank: int = 0) -> bytes:
    """The kept output of a rank."""
    name = f"rank-{rank:05d}.log"
    return (house.store / "r" / "attempts" / f"{attempt:04d}" / "logs" / name).read_bytes()


@pytest.mark.contract("output: shown and kept")
def test_it_is_shown_and_kept(house: House) -> None:
    script = house.script(
        "import sys\n"
        "print('\\r 1%\\r 2%')\n"
        "print('out'); print('err', file=sys.stderr); print('caf\\u00e9')\n"
        "sys.stdout.flush(); sys.stdout.buffer.write(b'raw \\xff\\n'); sys.stdout.buffer.flush()\n"
        "print('no newline at the end', end='')\n"
    )
    out = house.holdfast("run", "--name", "r", "--", sys.executable, script).wait(EXIT_DONE)
    for line in (" 2%", "out", "err", "café", "no newline at the end"):
        assert line in out.splitlines()
    kept = log_of(house)
    assert kept.endswith(b"no newline at the end")
    assert b"raw \xff\n" in kept
    assert house.holdfast("logs", "r").wait(EXIT_DONE).startswith(" 2%\nout\n")


@pytest.mark.real
def test_a_run_whose_standard_streams_are_closed_trains_and_writes_into_no_file(
    house: House,
) -> None:
    """As `nohup`-like launchers start it: what a rank prints must not land where fd 2 was."""
    script = house.script("import os, sys; print('seen', flush=True); os.write(2, b'err\\n')\n")
    closed = [
        "sh",
        "-c",
        'exec "$@" <&- >&- 2>&-',
        "sh",
        *HOLDFAST_RUN,
        sys.executable,
        str(script),
    ]
    done = subprocess.run(closed, cwd=house.folder, check=False, timeout=LIMIT_S)
    assert done.returncode == EXIT_DONE
    assert sorted(log_of(house).splitlines()) == [b"err", b"seen"]


@pytest.mark.real
def test_a_flood_of_output_does_not_block_the_rank(house: House) -> None:
    """100 MB: the rank ends, and the log holds all of it, whatever the screen could take."""
    script = house.script(
        "import sys\n"
        "line = b'x' * 99 + b'\\n'\n"
        "for _ in range(1000): sys.stdout.buffer.write(line * 1000)\n"
        "print('the end')\n"
    )
    # Nobody reads the supervisor's own output until the end: even then the rank must get through.
    with (house.folder / "screen").open("wb") as screen:
        subprocess.run(
            [*HOLDFAST_RUN, sys.executable, str(script)],
            cwd=house.folder,
            stdout=screen,
            stderr=subprocess.STDOUT,
            check=True,
            timeout=LIMIT_S,
        )
    kept = log_of(house)
    assert len(kept) == 100_000_000 + len(b"the end\n")
    assert kept.endswith(b"the end\n")


@pytest.mark.real
def test_a_screen_that_nobody_reads_blocks_neither_training_nor_stopping(house: House) -> None:
    script = house.script(
        "import sys, pathlib\n"
        "for _ in range(20_000): print('x' * 100)\n"
        "pathlib.Path('through').touch()\n"
        "import time\n"
        "while True: time.sleep(0.01)\n"
    )
    read_fd, write_fd = os.pipe()
    run = subprocess.Popen(
        [*HOLDFAST_RUN, sys.executable, str(script)],
        cwd=house.folder,
        stdout=write_fd,
        stderr=write_fd,
    )
    os.close(write_fd)
    try:
        house.eventually(lambda: (house.folder / "through").exists(), within_s=LIMIT_S)
        run.send_signal(signal.SIGQUIT)
        house.eventually(lambda: run.poll() is not None, within_s=LIMIT_S)
    finally:
        os.close(read_fd)
        run.kill()
        run.wait()
    assert run.returncode == EXIT_SAVED


@pytest.mark.real
def test_a_line_without_end_does_not_fill_the_memory(house: House) -> None:
    script = house.script(
        "import sys\n"
        "for _ in range(64): sys.stdout.buffer.write(b'y' * (1 << 20))\n"
        "sys.stdout.buffer.flush(); print(); print('after')\n"
    )
    out = house.holdfast("run", "--name", "r", "--", sys.executable, script).wait(EXIT_DONE)
    assert "after" in out.splitlines()
    assert len(log_of(house)) == (64 << 20) + len(b"\nafter\n")


def on_a_terminal(argv: list[str], cwd: str, columns: int = 80) -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit code and all it wrote."""
    pid, terminal_fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ["TERM"] = "xterm"
        os.environ["COLUMNS"] = str(columns)
        os.execv(argv[0], argv)
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(terminal_fd, 65536)
            except OSError:
                return
            if not data:
                return
            shown.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    _, status = os.waitpid(pid, 0)
    reader.join(LIMIT_S)
    os.close(terminal_fd)
    return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")


@pytest.mark.contract("output: on a terminal")
def test_the_live_block_on_a_terminal(house: House) -> None:
    argv = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", "r"]
    argv += ["--save-every", "3", "--", sys.executable, str(TRAINER), "10"]
    code, shown = on_a_terminal(argv, str(house.folder))
    assert code == EXIT_DONE, shown
    assert "did 10" in shown
    assert "[0]" not in shown
    assert "checkpoint" in shown
    assert "Traceback" not in shown


@pytest.mark.real
def test_the_live_block_on_a_narrow_terminal(house: House) -> None:
    argv = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", "r", "--status", "live"]
    argv += ["--", sys.executable, "-c", "print('[markup] :smile: \\x1b[31mred')"]
    code, shown = on_a_terminal(argv, str(house.folder), columns=12)
    assert code == EXIT_DONE, shown
    assert "Traceback" not in shown


def pumped(tmp_path: Path, data: bytes) -> tuple[list[str], bytes]:
    """What the screen and the log get of a rank's output, written in small pieces."""
    shown: list[str] = []
    output = RankOutput(0)
    output.log_to(tmp_path / "rank.log")
    pump = OutputPump([output], lambda _rank, line: shown.append(line))
    for start in range(0, len(data), 7):
        os.write(output.write_fd, data[start : start + 7])
    os.close(output.write_fd)
    pump.finish()
    return shown, (tmp_path / "rank.log").read_bytes()


def test_a_progress_bar_is_one_line_as_it_was_last_drawn(tmp_path: Path) -> None:
    data = b"start\r\n\r 10%|# |\r 20%|##|\r 30%|##|\ndone\r\n\n\r 1%\r 2%\r\r    \rlast\r"
    shown, kept = pumped(tmp_path, data)
    assert shown == ["start", " 30%|##|", "done", "", "last"]
    assert kept == data


def test_a_bar_that_is_under_way_is_told_as_it_stands() -> None:
    told: queue.Queue[tuple[int, str]] = queue.Queue()
    output = RankOutput(3)
    pump = OutputPump([output], lambda _rank, _line: None, lambda *bar: told.put(bar))

    def until(bar: str) -> None:
        while told.get(timeout=60.0) != (3, bar):
            pass

    os.write(output.write_fd, b"begin\n\r 10%|# |\r 20%|##|")
    until(" 20%|##|")
    os.write(output.write_fd, b"\n")
    until("")
    os.close(output.write_fd)
    pump.finish()


def test_a_log_at_its_limit_says_so_and_ends_with_the_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "LOG_LIMIT_BYTES", 2 << 20)
    data = b"z" * 99 + b"\n"
    shown: list[str] = []
    output = RankOutput(0)
    output.log_to(tmp_path / "rank.log")
    pump = OutputPump([output], lambda _rank, line: shown.append(line))
    for _ in range(300):
        os.write(output.write_fd, data * 100)
    os.close(output.write_fd)
    pump.finish()
    kept = (tmp_path / "rank.log").read_bytes()
    says = b"\n[what follows the first 2 MiB is not kept, but for the last lines]\n"
    assert kept.startswith(data)
    assert kept.endswith(says + b"[the last 60 lines]\n" + data * 60)
    assert len(kept) < 4 << 20
    assert len(shown) == 30_000


def test_whoever_prints_on_for_ever_does_not_hold_up_the_end() -> None:
    """A process that has got away from the tree may still have the pipe."""
    many, shown = 10_000, list[str]()
    output = RankOutput(0)

    def answer(_rank: int, line: str) -> None:
        shown.append(line)
        if len(shown) < many:
            os.write(output.write_fd, b"more\n")

    pump = OutputPump([output], answer)
    os.write(output.write_fd, b"first\n")
    pump.finish()
    os.close(output.write_fd)
    assert shown[0] == "first"
    assert len(shown) < many


@pytest.mark.real
def test_a_breakpoint_is_passed_over_and_says_what_to_do(house: House) -> None:
    script = house.script("for n in range(2): breakpoint()\nprint('went on')\n")
    out = house.holdfast("run", "--name", "r", "--", sys.executable, script).wait(EXIT_DONE)
    assert out.count(f"breakpoint() at {script}:1 was passed over") == 1
    assert f"python {script} …" in out
    assert "went on" in out.splitlines()


@pytest.mark.real
def test_a_debugger_in_a_run_is_not_started_again(house: House) -> None:
    script = house.script("import pdb, holdfast as hf\nhf.start()\npdb.set_trace()\nprint(1)\n")
    run = house.holdfast("run", "--name", "r", "--", sys.executable, script)
    last = run.wait(EXIT_CONFIGURATION).splitlines()[-1]
    assert "a debugger has no keyboard under holdfast run: start the script by itself" in last
