"""`holdfast run` with real processes, listening to an emulator; and with nobody to listen to."""

from __future__ import annotations

import os
import signal

from holdfast.testing.azure import AzureEmulator
from holdfast.testing.gce import GceEmulator

WATCHES = """
import os, sys
def watch(event, args, log=os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
    told = event == "import" and args[0].startswith(("asyncio", "holdfast.notices."))
    if told or event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        os.write(log, f"{{event}} {{args[0] if told else args[-1]}}\\n".encode())
sys.addaudithook(watch)
"""


def test_a_preemption_has_all_ranks_save_the_same_step_and_leave(house):
    with GceEmulator() as gce:
        house.allow(30)
        run = house.run("--ranks", 2, "--notice", f"gce:{gce.url}", steps=1000)
        run.saw("attempt 0")
        house.eventually(lambda: house.recorded_steps() >= 30)
        gce.do("preempted")
        run.saw(r"! gce: terminate \(preempted\), in 30 s")
        house.allow(1000)
        said = run.wait(75)
    assert said.count("(preempted), in") == 1
    saved = house.saved_step()
    assert saved >= 30
    assert f"stopped; step {saved} is saved" in said
    report = house.holdfast("report", "r").wait(0)
    assert "ago: gce: terminate (preempted), in " in report
    report = house.holdfast("report", "r").wait(0)
    assert "gce: terminate (preempted)" in report


def test_training_goes_on_where_the_server_talks_nonsense_and_a_signal_may_be_told_apart(house):
    with GceEmulator() as gce:
        gce.do("fail", "garbage", "999")
        notice = f"gce:{gce.url},signal:USR2=25"
        run = house.run("--notice", notice, "--on-notice", "stay", steps=60, ALLOW=house.allow(30))
        run.saw("Notices from gce: .* talks no HTTP")
        house.eventually(lambda: house.recorded_steps() >= 30)
        run.send(signal.SIGUSR2)
        run.saw("signal: terminate .SIGUSR2.: it is time to save; training goes on")
        house.allow(60)
        run.wait(0)


def test_a_run_that_releases_its_host_has_azure_go_on_when_all_is_saved_and_never_before(house):
    with AzureEmulator() as azure:
        notice = ("--notice", f"azure:{azure.url}", "--on-notice", "release")
        run = house.run(*notice, steps=10**6, ALLOW=house.allow(30))
        run.saw("attempt 0")
        house.eventually(lambda: house.recorded_steps() >= 30)
        azure.do("event", "Preempt", "30", "mine")
        run.saw("! azure: terminate")
        assert azure.approved == []
        house.allow(10**6)
        said = run.wait(75)
    assert azure.approved == ["mine"]
    assert "azure: event mine is approved: it need not wait for its time" in said
    assert f"step {house.saved_step()} is saved" in said


def test_the_host_agent_has_azure_go_on_when_nobody_is_left_and_none_was_hidden(house):
    with AzureEmulator() as azure:
        device = house.folder / "accel0"
        device.touch()
        words = ("--notice", f"azure:{azure.url}", "--devices", device, "--grace", 300)
        words += ("--state", house.folder / "state", "--release-event")
        agent = house.holdfast("agent", "--autocheckpoint", *words)
        house.eventually(lambda: len(azure.requests) >= 2)
        azure.do("event", "Preempt", "60", "mine")
        said = agent.saw("azure: event mine is approved|The cloud is not told to go on")[0]
        is_hidden = any("Permission denied" in line for line in agent.lines)
        assert said.startswith("The cloud is not") == is_hidden
        assert azure.approved == ([] if is_hidden else ["mine"])
        agent.send(signal.SIGTERM)
        agent.wait(0)


def test_without_a_source_nobody_is_asked_and_nothing_of_it_is_imported(house):
    log = house.folder / "audit"
    (house.folder / "sitecustomize.py").write_text(WATCHES.format(log=str(log)))
    path = f"{house.folder}:{os.environ.get('PYTHONPATH', '')}"
    run = house.run("--notice", "auto", steps=3, PYTHONPATH=path, HOLDFAST_STANDBY="off")
    run.wait(0)
    told = set(log.read_text().split("\n")) if log.exists() else set()
    assert told - {""} <= {
        f"import holdfast.notices.{name}" for name in ("found", "protocol", "registry")
    }
