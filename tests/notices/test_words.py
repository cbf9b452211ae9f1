"""What sources make of what they read: every spelling of something and of nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.errors import ConfigurationError
from holdfast.notices import aws, azure, file, gce, kubernetes, registry, slurm
from holdfast.notices.fetch import Server
from holdfast.notices.protocol import SourceSurroundings, Trouble
from holdfast.testing.gce import NONE_YET

S = 10**9
END, MOVE = NoticeAction.TERMINATE, NoticeAction.LIVE_MIGRATION
WINDOW = {"windowStartTime": "2026-11-20T19:00:01Z", "maintenanceStatus": "PENDING"}
SNAKE = {"window_start_time": "2026-11-20T19:00:01Z", "can_reschedule": "true", "type": "SCHEDULED"}
OPENS = 1795201201 * S


@pytest.mark.parametrize(
    "text", ["", "NONE", "None\n", "{}", "{ }", "null", '{"error": "none yet"}', "[]", '""']
)
def test_every_way_of_saying_nothing(text: str) -> None:
    assert gce.maintenance_event(text) is None
    assert gce.upcoming_maintenance(text, action=END) is None
    assert gce.preempted(text) is None
    assert gce.stop_state(text) is None


@pytest.mark.parametrize(
    ("status", "text", "is_none"),
    [
        (503, NONE_YET, True),
        (503, '{"error": "No Notifications have been received"}', True),
        (500, NONE_YET, False),
        (503, "", False),
        (503, '{"error": "overloaded"}', False),
        (503, "no notifications", False),
        (503, "[" * 100_000, False),
    ],
)
def test_what_a_machine_without_any_notice_answers(status: int, text: str, is_none: bool) -> None:
    assert gce.is_none_yet(status, text) is is_none


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("MIGRATE_ON_HOST_MAINTENANCE", MOVE),
        ("TERMINATE_ON_HOST_MAINTENANCE", END),
        ("SHUTDOWN_ON_HOST_MAINTENANCE\n", END),
        ('"TERMINATE_ON_HOST_MAINTENANCE"', END),
    ],
)
def test_a_live_migration_is_told_from_an_end(text: str, action: NoticeAction) -> None:
    said = gce.maintenance_event(text)
    assert said is not None
    assert said.action is action


@pytest.mark.parametrize("told", [WINDOW, SNAKE, {"Upcoming maintenance": SNAKE}])
def test_a_window_in_camel_or_snake_case_or_wrapped(told: dict[str, object]) -> None:
    said = gce.upcoming_maintenance(json.dumps(told), action=END)
    assert said is not None
    assert (said.at_unix_ns, said.state) == (OPENS, NoticeState.SCHEDULED)


def test_a_window_that_is_open_says_no_date_and_one_that_is_over_nothing() -> None:
    said = gce.upcoming_maintenance(
        json.dumps({**WINDOW, "maintenanceStatus": "ONGOING"}), action=END
    )
    assert said is not None
    assert (said.at_unix_ns, said.state) == (None, NoticeState.STARTED)
    opened = gce.upcoming_maintenance(json.dumps(WINDOW), OPENS, action=END)
    assert opened == said
    ahead = gce.upcoming_maintenance(json.dumps(WINDOW), OPENS - 1, action=END)
    assert ahead is not None
    assert (ahead.at_unix_ns, ahead.state) == (OPENS, NoticeState.SCHEDULED)
    over = json.dumps({**WINDOW, "maintenanceStatus": "COMPLETE"})
    assert gce.upcoming_maintenance(over, action=END) is None


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (gce.maintenance_event, "<html>"),
        (gce.preempted, "yes"),
        (gce.stop_state, "PERHAPS"),
        (lambda text: gce.upcoming_maintenance(text, action=END), "[1]"),
        (lambda text: gce.upcoming_maintenance(text, action=END), "<html>"),
        (lambda text: gce.upcoming_maintenance(text, action=END), '{"windowStartTime": "soon"}'),
        (lambda text: gce.upcoming_maintenance(text, action=END), "[" * 100_000),
    ],
)
def test_nonsense_is_trouble(read, text) -> None:
    with pytest.raises(Trouble):
        read(text)


ON_AWS = {"Code": "system-reboot", "EventId": "e1", "State": "active", "Description": "a reboot"}


@pytest.mark.parametrize("date", ["20 Nov 2026 19:00:01 GMT", "2026-11-20T19:00:01Z"])
def test_dates_of_amazons_and_what_has_come_but_is_not_over(date: str) -> None:
    text = json.dumps([{**ON_AWS, "NotBefore": date}])
    ahead = aws.scheduled(text, OPENS - S)["e1"]
    assert (ahead.action, ahead.state) == (NoticeAction.REBOOT, NoticeState.SCHEDULED)
    assert ahead.at_unix_ns == OPENS
    here = aws.scheduled(text, OPENS)["e1"]
    assert (here.state, here.at_unix_ns) == (NoticeState.STARTED, None)


def test_scheduled_events_that_are_over_or_called_off_say_nothing_and_new_ones_the_worst() -> None:
    listed = [
        {**ON_AWS, "State": "canceled"},
        {**ON_AWS, "EventId": "e2", "State": "completed"},
        {**ON_AWS, "EventId": "e3", "Code": "instance-melts"},
    ]
    says = aws.scheduled(json.dumps(listed), 0)
    assert [(one, said.action) for one, said in says.items()] == [("e3", END)]


@pytest.mark.parametrize("text", ["", "{}"])
def test_amazons_ways_of_saying_nothing(text: str) -> None:
    assert (aws.spot_action(text), aws.rebalance(text)) == ({}, {})
    assert aws.scheduled("[]" if text else "", 0) == {}


def test_scheduled_events_of_azure_are_told_apart() -> None:
    one = {"EventStatus": "Scheduled", "Resources": ["VM"], "NotBefore": ""}
    kinds = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "Melt"]
    listed = [{**one, "EventId": kind, "EventType": kind} for kind in kinds]
    listed += [{**one, "EventId": "x", "Resources": other} for other in (["vm2"], None, "vm")]
    listed[1]["NotBefore"] = "Fri, 20 Nov 2026 19:00:01 GMT"
    says = azure.events({"DocumentIncarnation": 1, "Events": listed}, "vm")
    assert list(says) == kinds
    assert [kind for kind, said in says.items() if not said.action.is_end] == ["Freeze"]
    assert says["Reboot"].at_unix_ns == OPENS
    leads = [said.lead_ns // S for said in says.values() if said.lead_ns]
    assert leads == [900, 900, 600, 30, 300]


def node(text: object = "", *taints: object, **labels: str) -> dict[str, object]:
    label = {kubernetes.MAINTENANCE_AT: text} if text else {}
    return {"metadata": {"labels": label | labels}, "spec": {"taints": list(taints)}}


def test_a_nodes_maintenance_is_ahead_until_its_date_and_other_taints_say_nothing() -> None:
    text = str(OPENS // S)
    said = kubernetes.node_says(node(text, {"key": "nvidia.com/gpu"}, "?"), OPENS - 1)
    assert list(said) == ["maintenance"]
    assert (said["maintenance"].at_unix_ns, said["maintenance"].state) == (
        OPENS,
        NoticeState.SCHEDULED,
    )
    assert kubernetes.node_says(node(text), OPENS)["maintenance"].state is NoticeState.STARTED
    ongoing = node(text, **{kubernetes.MAINTENANCE_NOW: "ONGOING"})
    assert kubernetes.node_says(ongoing, 0)["maintenance"].state is NoticeState.STARTED
    assert kubernetes.node_says({}, 0) == kubernetes.pod_says({}, 0) == {}


# As Slurm 22.05 prints them, shortened.
JOB = "JobId=1 JobName=a job TimeLimit={limit} TimeMin=N/A EndTime={end} PreemptTime={at} Power= "
RESERVED = (
    "ReservationName={name} StartTime=2026-11-20T19:00:01 EndTime=2026-11-20T20:00:01 "
    "Nodes=n[1-2] Flags={flags} State=INACTIVE\n"
)


def test_a_jobs_end_by_its_limit_by_preemption_and_never() -> None:
    end = "2026-11-20T19:00:01"
    said = slurm.job_end(JOB.format(limit="00:30:00", end=end, at="None"))
    assert (said.action, said.at_unix_ns) == (NoticeAction.TIME_LIMIT, OPENS)
    said = slurm.job_end(JOB.format(limit="UNLIMITED", end=end, at="2026-11-20T18:59:46"))
    assert (said.action, said.at_unix_ns) == (END, OPENS)
    assert slurm.job_end(JOB.format(limit="UNLIMITED", end="Unknown", at="None")) is None


def test_of_an_arrays_tasks_the_one_that_asks_is_told_of() -> None:
    """Slurm 22.05 tells of all tasks under the number of the one that has the array's."""
    first = JOB.format(limit="00:30:00", end="2026-11-20T18:00:00", at="None")
    mine = JOB.format(limit="00:30:00", end="2026-11-20T19:00:01", at="None")
    told = f"{first.strip().replace('JobId=1', 'JobId=8 ArrayJobId=1')}\n{mine}"
    assert slurm.job_end(slurm.record_of(told, "1")).at_unix_ns == OPENS
    assert slurm.record_of("<html>", "1") == "<html>"


def test_blanks_without_end_are_read_in_their_time() -> None:
    """A field's end is not looked for from each of them anew."""
    text = f"NodeName=n1 State=DRAIN Reason={' ' * 4_000_000}x{' ' * 100_000}y OS=Linux"
    assert slurm.node_leaves(text).words == "the node is drained: x y"


@pytest.mark.parametrize("state", ["MIXED+DRAIN", "IDLE+DRAIN*", "DRAINING", "FAIL"])
def test_a_node_that_is_drained(state: str) -> None:
    said = slurm.node_leaves(f"NodeName=n1 State={state} OS=Linux 6.1 Reason=bad fan, soon [root]")
    assert said.words == "the node is drained: bad fan, soon [root]"


@pytest.mark.parametrize("state", ["MIXED", "ALLOCATED*", "IDLE+POWERED_DOWN"])
def test_a_node_that_is_not(state: str) -> None:
    assert slurm.node_leaves(f"NodeName=n1 State={state} Reason=DRAIN") is None


def test_reservations_for_maintenance_are_told_from_others() -> None:
    text = RESERVED.format(name="june", flags="MAINT,SPEC_NODES")
    text += RESERVED.format(name="class", flags="SPEC_NODES")
    assert slurm.maintenances(text) == [
        slurm.Reservation("june", OPENS, OPENS + 3600 * S, "n[1-2]")
    ]
    assert slurm.maintenances("No reservations in the system") == slurm.maintenances("") == []


@pytest.mark.parametrize("text", ["soon", "-5", "1e9", "9" * 12, 5])
def test_a_maintenance_time_that_is_none_is_trouble(text: object) -> None:
    with pytest.raises(Trouble):
        kubernetes.node_says(node(text), 0)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (
            lambda text: kubernetes.pod_says(json.loads(text), 0),
            '{"metadata": {"deletionTimestamp": 5}}',
        ),
        (slurm.job_end, "<html>"),
        (slurm.job_end, "JobId=1 EndTime=soon"),
        (slurm.node_leaves, ""),
        (slurm.maintenances, "slurm_load_reservations: nothing"),
        (aws.spot_action, "<html>"),
        (aws.spot_action, "[]"),
        (aws.spot_action, '{"time": "soon"}'),
        (aws.spot_action, '{"time": 7}'),
        (aws.spot_action, "[" * 100_000),
        (aws.rebalance, "7"),
        (lambda text: aws.scheduled(text, 0), "{}"),
        (lambda text: aws.scheduled(text, 0), "[1]"),
        (lambda text: aws.scheduled(text, 0), '[{"NotBefore": "20 Nov 2026 21:00:40"}]'),
        (lambda text: azure.events(json.loads(text), "vm"), "{}"),
        (lambda text: azure.events(json.loads(text), "vm"), '{"Events": [1]}'),
        (
            lambda text: azure.events(json.loads(text), "vm"),
            '{"Events": [{"Resources": ["vm"], "NotBefore": "soon"}]}',
        ),
    ],
)
def test_nonsense_of_other_clouds_is_trouble(read, text) -> None:
    with pytest.raises(Trouble):
        read(text)


def test_what_a_file_may_say() -> None:
    assert file.read_text("\n", 5 * S) == file.WrittenNotice()
    assert file.read_text("120", 5 * S).deadline_unix_ns == 125 * S
    assert file.read_text("2026-11-20T19:00:01Z", 0).deadline_unix_ns == OPENS
    assert file.read_text("withdrawn", 0).state is NoticeState.WITHDRAWN
    told = file.read_text('{"deadline": 60, "action": "live migration", "id": "a"}', 5 * S)
    assert (told.deadline_unix_ns, told.action, told.event_id) == (65 * S, MOVE, "a")


@pytest.mark.parametrize(
    "text",
    ["soon", "12O", "-5", "nan", "2026-11-20T19:00:01", '{"when": 5}', '{"action": "go"}', "{"],
)
def test_what_it_may_not(text: str) -> None:
    with pytest.raises(ValueError):
        file.read_text(text, 0)


# --- which sources there are ---------------------------------------------------------------------


def surroundings(
    root: Path, dmi: dict[str, str] | None = None, **variables: str
) -> SourceSurroundings:
    for name, text in (dmi or {}).items():
        path = root / "sys/class/dmi/id" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return SourceSurroundings(variables, root)


def test_sources_are_found_by_files_and_variables(tmp_path: Path) -> None:
    assert registry.wanted("auto", surroundings(tmp_path)) == ()
    around = surroundings(tmp_path, {"product_name": "Google Compute Engine"})
    assert [(it.name, it.option, it.why) for it in registry.wanted("auto", around)] == [
        ("gce", "", "the product is called Google Compute Engine")
    ]
    named = registry.wanted("auto, gce:http://127.0.0.1:1, file:/tmp/a", around)
    assert [(it.name, it.why) for it in named] == [("gce", "as set"), ("file", "as set")]
    assert registry.wanted("off", around) == ()


def test_where_this_host_is(tmp_path: Path) -> None:
    from holdfast.notices import found

    assert found.aws(surroundings(tmp_path / "a", {"sys_vendor": "Amazon EC2"}))
    xen = {"sys_vendor": "Xen", "bios_version": "4.11.amazon"}
    assert found.aws(surroundings(tmp_path / "x", xen)) == "the firmware is called 4.11.amazon"
    assert not found.aws(surroundings(tmp_path / "x", AWS_EC2_METADATA_DISABLED="true"))
    assert found.azure(surroundings(tmp_path / "b", {"chassis_asset_tag": found.AZURE_CHASSIS}))
    assert not found.azure(surroundings(tmp_path / "c", {"chassis_asset_tag": "7783"}))
    assert found.slurm(surroundings(tmp_path, SLURM_JOB_ID="7")) == "SLURM_JOB_ID is set"
    pod = surroundings(tmp_path / "d", KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert not found.kubernetes(pod)
    token = pod.root / "var/run/secrets/kubernetes.io/serviceaccount/token"
    token.parent.mkdir(parents=True)
    token.write_text("a token")
    assert found.kubernetes(pod)


def test_an_address_of_version_6_has_its_brackets() -> None:
    assert str(Server.at("https://[fd00::1]:6443")) == "[fd00::1]:6443"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gcp", "'gcp' is no source of notices; there are aws, azure, "),
        ("off,gce", "'off' is no source"),
        ("file", "file needs a path: write file:PATH"),
        ("signal", "write signal:USR1=120"),
        ("signal:KILL=5", "there are TERM, USR1, USR2, HUP"),
        ("signal:USR1=soon", "write signal:USR1=120"),
        ("slurm", "SLURM_JOB_ID is '' here: use it inside one"),
        ("tpu:my-node", "not 'my-node': write tpu:projects/P/locations/Z/nodes/NAME"),
        ("kubernetes:cluster", "'cluster' is no address of a server"),
        ("gce:metadata", "'metadata' is no address of a server"),
        ("gce:http://a:b", "'http://a:b' is no address of a server"),
        ("gce:http://[::1", "'http://[::1' is no address of a server"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(text: str, complaint: str) -> None:
    around = SourceSurroundings()
    with pytest.raises(ConfigurationError) as error:
        [one.make(None, around) for one in registry.wanted(text, around)]
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)
