"""Traces on a disk: three formats, what is noted about them, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError, TraceError
from holdfast.sim.faults import FaultCause
from holdfast.sim.trace_file import read_trace
from holdfast.sim.traces import Trace, TraceChange

DATA = Path(__file__).parent / "data"  # of uclasystem/bamboo: README.md there
S, MS = 10**9, 10**6


@pytest.fixture
def read(tmp_path: Path):
    """What a file of this text says."""

    def read(text: str | bytes) -> Trace:
        path = tmp_path / "trace.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_trace(path)

    return read


@pytest.mark.parametrize(
    ("name", "lines", "most", "end_ns"),
    [("p3", 344, 32, 40_920_000 * MS), ("g4dn", 153, 24, 38_760_000 * MS)],
)
def test_published_membership(name: str, lines: int, most: int, end_ns: int) -> None:
    trace = read_trace(DATA / f"bamboo-{name}-trace.csv")
    assert (len(trace.changes), trace.most, trace.span_ns) == (lines, most, end_ns)
    assert (trace.are_there, trace.notes) == (False, ())
    assert trace.machines[:2] == ("node1", "node2")
    assert {change.cause for change in trace.changes} == {None, FaultCause.HOST}


def test_published_counts() -> None:
    trace = read_trace(DATA / "bamboo-a100x1-east1b.txt")
    assert (trace.most, trace.machines, trace.are_there) == (64, (), False)
    assert trace.changes[:55] == (TraceChange(0, None, None),) * 55
    assert trace.changes[55] == TraceChange(260 * S, None, FaultCause.HOST)
    assert trace.notes == (
        "line 34 comes 103 minutes after the count before; until then it is unchanged",
        "line 235 comes 301 minutes after the count before; until then it is unchanged",
        "line 251 comes 269 minutes after the count before; until then it is unchanged",
    )


def test_counts_become_as_many_changes(read) -> None:
    trace = read("2021-12-11, 23:59:30, 2\n2021-12-12, 00:00, 0\n2021-12-12, 00:01, 1\n")
    come, gone = TraceChange(0, None, None), TraceChange(30 * S, None, FaultCause.HOST)
    assert trace.changes == (come, come, gone, gone, TraceChange(90 * S, None, None))


def test_membership_by_the_clock_begins_with_its_first_line(read) -> None:
    trace = read("1700000000000,add,a\n1700000000250.5,remove,a\n")
    assert trace.changes == (TraceChange(0, 0, None), TraceChange(250_500_000, 0, FaultCause.HOST))


def test_what_says_nothing_is_passed_over(read) -> None:
    text = b"\xef\xbb\xbf# from the cluster's log\r\n\r\n 0 , add , a \r\n\r\n5,remove,a\r\n"
    assert read(text).changes == (TraceChange(0, 0, None), TraceChange(5 * MS, 0, FaultCause.HOST))


OUTAGES = """\
start,end,node,cause
60,120,n1,host
90.5,95,n2,Process
200,,n3,rack
200,300,n4,rack
400,,n1,hang
"""


def test_outages(read) -> None:
    trace = read(OUTAGES)
    assert (trace.machines, trace.are_there, trace.notes) == (("n1", "n2", "n3", "n4"), True, ())
    assert trace.changes == (
        TraceChange(60 * S, 0, FaultCause.HOST),
        TraceChange(90_500_000_000, 1, FaultCause.PROCESS),
        TraceChange(120 * S, 0, None),
        TraceChange(200 * S, 2, FaultCause.RACK),
        TraceChange(200 * S, 3, FaultCause.RACK),
        TraceChange(300 * S, 3, None),
        TraceChange(400 * S, 0, FaultCause.HANG),
    )


def test_outages_by_the_clock(read) -> None:
    """The columns stand in any order, with others beside them; zones are heeded."""
    trace = read(
        "Node,Ticket,Cause,Start,End\n"
        '"n,1",7,host,2026-01-01T00:00:00Z,2026-01-01 01:30+01:00\n'
        "n2,8,slice,2026-01-02,\n"
    )
    assert trace.machines == ("n,1", "n2")
    assert trace.changes == (
        TraceChange(0, 0, FaultCause.HOST),
        TraceChange(1800 * S, 0, None),
        TraceChange(86400 * S, 1, FaultCause.SLICE),
    )


def test_seconds_of_the_clock_begin_with_the_first_outage(read) -> None:
    trace = read("start,end,node,cause\n1700000060,,a,host\n1700000000,1700000010,b,host\n")
    assert [change.at_ns for change in trace.changes] == [0, 10 * S, 60 * S]


@pytest.mark.parametrize(
    ("text", "note", "changes"),
    [
        ("0,add,a\n5,add,b\n5,add,b\n", "line 3 repeats line 2; it is left out", 2),
        (
            "0,add,a\n5,add,b\n5,remove,b\n5,remove,b\n",
            "line 3 takes back line 2 at once; both are left out",
            1,
        ),
        (
            "2021-12-11, 11:11, 2\n2021-12-11, 11:11, 2\n",
            "line 2 repeats line 1; it is left out",
            2,
        ),
        (
            "start,end,node,cause\n5,9,a,host\n5,9,a,host\n",
            "line 3 repeats line 2; it is left out",
            2,
        ),
        (
            "start,end,node,cause\n5,9,a,host\n7,12,a,slice\n",
            "line 3 overlaps line 2: taken as one outage",
            2,
        ),
        (
            "start,end,node,cause\n5,9,a,host\n2,3,b,host\n",
            "line 3 starts before the line above; all lines are put in order by start",
            4,
        ),
        (
            "start,end,node,cause\n5,,a,nvlink\n",
            "line 2 has the cause nvlink, which is none of process, hang, host, rack, slice: "
            "taken as host",
            1,
        ),
        (
            "start,end,node,cause\n5,,a,\n",
            "line 2 has the cause (none), which is none of process, hang, host, rack, slice: "
            "taken as host",
            1,
        ),
    ],
)
def test_what_has_one_meaning_is_noted(read, text: str, note: str, changes: int) -> None:
    trace = read(text)
    assert trace.notes[0] == note
    assert len(trace.changes) == changes


def test_outages_that_touch_or_overlap_are_one(read) -> None:
    trace = read("start,end,node,cause\n0,10,a,host\n10,20,a,rack\n15,18,a,host\n19,,a,host\n")
    assert trace.changes == (TraceChange(0, 0, FaultCause.HOST),)
    assert len(trace.notes) == 2


HEADER = "start,end,node,cause\n"


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "the file is empty"),
        (b"\n# nothing\n\n", 1, "the file is empty"),
        (b"\x00" * 50, 1, "is not the first line of a trace; a trace has lines `millisec"),
        (b"\x7fELF\x02\x01\n\xff", 2, "byte 0xff is not UTF-8"),
        (b"x" * 70_000, 1, "longer than 65536 bytes"),
        (b'{"event": "run"}', 1, "is not the first line of a trace"),
        (b"0,100,n1,host\n", 1, "or a header `start,end,node,cause`"),
        (b'0,add,"a\n', 1, "cannot be split at its commas (unexpected end of data); correct it"),
        # machines that came and went
        (b"NaN,add,a", 1, "NaN is not a time; write milliseconds, from 0 to 10000000000000"),
        (b"0,add,a\n-5,add,b", 2, "-5 is not a time"),
        (b"0,add,a\ninf,add,b", 2, "inf is not a time"),
        (b"0,add,a\n1e999999999,add,b", 2, "1e999999999 is not a time"),
        (b"0,add,a\nsoon,add,b", 2, "soon is not a time; write milliseconds, a number"),
        (b"0,add,a\n5,lost,a", 2, "lost is neither add nor remove"),
        (b"0,add,a\n5,remove", 2, "5,remove has 2 of 3 fields; write milliseconds,add|remove,node"),
        (b"0,add,a\n5,add,", 2, "it names no node"),
        (b"0,add,a\n9,add,b\n8,remove,a", 3, "8 ms is before the time of the line above"),
        (b"0,add,a\n5,remove,b", 2, "b is removed, but it was never added"),
        (b"0,add,a\n5,remove,a\n9,remove,a", 3, "a is removed, but it is gone since line 2"),
        (b"0,add,a\n5,add,a", 2, "a is added, but it is there since line 1"),
        # counts
        (b"2021-12-11, 11:11, 5\n2021-12-11, 11:10, 5", 2, "2021-12-11 11:10 is before"),
        (b"2021-12-11, 11:11, 5\n2021-12-11, 11:11, 6", 2, "line 1 has 5 for the same time"),
        (b"2021-13-11, 11:11, 5", 1, "2021-13-11 11:11 is not a time; write it like"),
        (b"2021-12-11, 25:11, 5", 1, "2021-12-11 25:11 is not a time"),
        (b"2021-12-11, 11:11, -5", 1, "-5 is not a number of nodes; write one from 0 to 1000000"),
        (b"2021-12-11, 11:11, nan", 1, "nan is not a number of nodes"),
        (b"2021-12-11, 11:11, 99999999", 1, "99999999 is not a number of nodes"),
        (b"2021-12-11, 11:11, 5\n2021-12-11, 11:12", 2, "has 2 of 3 fields"),
        # outages
        (b"start,end,node\n1,2,a", 1, "the header has no column `cause`"),
        (b"start,end,node,cause,end\n1,2,a,host,3", 1, "the header has 2 columns `end`"),
        (HEADER.encode(), 1, "no outage follows"),
        ((HEADER + "9,5,a,host").encode(), 2, "ends at 5, before its start at 9"),
        ((HEADER + "-1,5,a,host").encode(), 2, "-1 is not a time; write seconds, from 0 to"),
        ((HEADER + "1,nan,a,host").encode(), 2, "nan is not a time"),
        ((HEADER + ",5,a,host").encode(), 2, "an empty field is not a time"),
        ((HEADER + "1,5,,host").encode(), 2, "it names no node"),
        ((HEADER + "1,5,a").encode(), 2, "1,5,a has 3 of 4 fields; write start,end,node,cause"),
        ((HEADER + "1,tomorrow,a,host").encode(), 2, "tomorrow is not a time; write it like"),
        ((HEADER + "0001-01-01T00:00+14:00,,a,host").encode(), 2, "is before 1970 or after 2286"),
        (
            (HEADER + "1,,a,host\n2026-01-01,,b,host").encode(),
            3,
            "2026-01-01 and the time in line 2 are not of one kind",
        ),
        (
            (HEADER + "1,,a,host\n7,,a,host").encode(),
            3,
            "a is lost, but by line 2 it was lost before and never came back",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(read, content, line, words) -> None:
    with pytest.raises(TraceError) as caught:
        read(content)
    assert (caught.value.line, caught.value.exit_code) == (line, 78)
    assert words in str(caught.value)
    assert f"line {line}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no trace .*missing\.csv; check"):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_trace(tmp_path)


NUMBERS = "0 1 5 7.5 -1 nan 1e400 1700000000 1700000000000 2021-12-11 2021-12-11T11:11 11:11"
TEXTS = "# é a b c 11:12:01 add remove host rack hang start end node cause"
WORDS = st.sampled_from(["", " ", '"', "\x00", *NUMBERS.split(), *TEXTS.split()])
LINES = st.lists(WORDS, min_size=1, max_size=5).map(",".join)
BEGIN = st.sampled_from(["", HEADER, "0,add,a\n", "2021-12-11, 11:11, 2\n"])


@given(BEGIN, st.lists(LINES, max_size=6), st.binary(max_size=6))
def test_no_file_is_too_strange(tmp_path_factory, begin: str, lines, end: bytes) -> None:
    path = tmp_path_factory.mktemp("t") / "trace"
    path.write_bytes(begin.encode() + "\n".join(lines).encode() + end)
    trace, message = Trace((), (), False), ""
    try:
        trace = read_trace(path)
    except TraceError as error:
        message = str(error)
    assert "\n" not in message
    times_ns = [change.at_ns for change in trace.changes]
    assert times_ns == sorted(times_ns)
    assert min(times_ns, default=0) >= 0
    held = Counter(range(len(trace.machines)) if trace.are_there else ())
    for change in trace.changes:
        if change.cause not in (FaultCause.PROCESS, FaultCause.HANG):
            held[change.machine] += 1 if change.cause is None else -1
        assert held[change.machine] >= 0
        assert change.machine is None or held[change.machine] <= 1
