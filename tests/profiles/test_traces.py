"""Real windows, as the profilers wrote them of the trainings beside, and windows made by hand.

`make_traces.py` has recorded the real ones, those of a GPU on an H200. Those of a TPU and of
several GPUs are made by hand, after xplane.proto and Kineto's format.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from made_xplane import MadePlane, program, xspace

from holdfast.errors import StoreUnavailable
from holdfast.profiles.capture import Capture, read_capture
from holdfast.profiles.chrome import read_chrome
from holdfast.profiles.read import make_summary, read_trace, summarised, unpacked
from holdfast.profiles.summary import PARTS, ProfileSummary, read_summary, summarise, summary_bytes
from holdfast.profiles.trace import Work
from holdfast.profiles.xplane import read_xspace
from holdfast.report.profile_picture import picture

TRACES = Path(__file__).parent / "traces"
BOOT = 5_000_000


def real(name: str) -> tuple[Path, Capture]:
    path = TRACES / name / "rank-00000.json"
    capture = read_capture(path)
    assert capture is not None
    return path, capture


@pytest.mark.parametrize("name", ["jax", "torch", "jax-gpu", "torch-gpu"])
class TestReal:
    def test_the_parts_of_each_step_sum_up_to_it(self, name: str) -> None:
        path, capture = real(name)
        found = read_trace(path, capture)
        assert [one.step for one in found.steps] == [step for step, _ in capture.edges[1:]]
        for one in found.steps:
            assert sum(one.parts.values()) == one.wall_ns
            assert set(one.parts) == set(PARTS)
        assert found.wall_ns == capture.edges[-1][1] - capture.edges[0][1]

    def test_it_shows_what_the_training_does(self, name: str) -> None:
        path, capture = real(name)
        parts = read_trace(path, capture).parts
        # Each batch takes 4 ms or more, at which nothing else runs.
        assert parts["input"] >= 4_000_000 * (len(capture.edges) - 1)
        assert parts["compute"] > 0
        assert (parts["collective"] > 0) == ("gpu" not in name)  # there is one

    def test_a_trace_without_its_events_shows_no_work(self, name: str) -> None:
        path, capture = real(name)
        trace = {"jax": read_xspace, "torch": read_chrome}[capture.framework](
            unpacked(next(path.parent.glob("*.gz")).read_bytes())
        )
        assert trace.events
        trace.events.clear()
        parts = summarise(trace, capture).parts
        assert parts["compute"] == parts["collective"] == 0
        assert sum(parts.values()) == capture.edges[-1][1] - capture.edges[0][1]


def test_the_operations_of_jax_are_those_of_xla() -> None:
    found = read_trace(*real("jax"))
    assert found.devices == 4
    # All four do the same, in turn or side by side; of each the parts sum up to the window.
    for one in (found.parts, *found.others):
        assert sum(one.values()) == found.wall_ns
        assert one["compute"] > 0
        assert one["collective"] > 0
        assert one["input"] >= 4_000_000 * len(found.steps)
    lines = list(picture(found))
    assert "the first of its 4 devices" in lines[0]
    assert sum("input" in line and "compute" in line for line in lines) == 3
    assert read_summary(summary_bytes(found)).others == found.others
    names = {one.name: one.work for one in found.operations}
    assert any(name.startswith("dot") for name in names)
    assert any(
        name.startswith("all-reduce") and work == "collective" for name, work in names.items()
    )


def test_the_products_of_jax_have_the_flops_of_their_program() -> None:
    of = {one.name: one for one in read_trace(*real("jax")).operations}
    # Of each device 16 rows, through 256 by 512: fused with what follows, or not.
    for name in ("dot.2", "ynn_fusion"):
        assert of[name].flops == 3 * 2 * 16 * 256 * 512
        assert of[name].nbytes == 3 * 4 * (16 * 256 + 256 * 512 + 16 * 512)
    assert of["all-reduce.2"].flops == of["all-reduce.2"].nbytes == 0


def test_the_products_of_torch_have_their_flops() -> None:
    found = read_trace(*real("torch"))
    of = {one.name: one for one in found.operations}
    # Forward: 32 rows through 128 by 256 and back. Backward: as many again for the weights of both,
    # and for the input of the second.
    one_product = 2 * 32 * 128 * 256
    assert of["aten::addmm"].flops == 3 * 2 * one_product
    assert of["aten::mm"].flops == 3 * 3 * one_product
    assert of["aten::mm"].nbytes == 3 * 3 * 4 * (32 * 128 + 32 * 256 + 128 * 256)
    assert of["gloo:all_reduce"].work == "collective"


def test_the_kernels_of_a_gpu_have_the_flops_of_what_launched_them() -> None:
    found = read_trace(*real("torch-gpu"))
    of = {one.name: one for one in found.operations}
    one_product = 2 * 32 * 128 * 256
    assert of["aten::addmm"].flops == 3 * 2 * one_product
    assert of["aten::mm"].flops == 3 * 3 * one_product
    assert not found.is_host
    assert any(
        one.name.startswith("Memcpy HtoD") and one.work == "input" for one in found.operations
    )


def test_the_backward_passs_thread_is_the_host_and_not_idle() -> None:
    """The script's thread waits for it, and had no processor time."""
    path, capture = real("torch-gpu")
    trace = read_chrome(unpacked(next(path.parent.glob("*.gz")).read_bytes()))
    found = summarise(trace, capture).parts
    trace.dispatched.clear()
    without = summarise(trace, capture).parts
    assert found["host"] > 2 * without["host"]
    assert found["idle"] < without["idle"] / 2
    assert found["idle"] + found["host"] == without["idle"] + without["host"]


def test_a_summary_comes_back_as_it_was(tmp_path: Path) -> None:
    path, capture = real("torch")
    for file in path.parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert summarised(tmp_path) is None
    made = make_summary(tmp_path / path.name, capture)
    assert summarised(tmp_path) == made
    assert read_summary(summary_bytes(made)) == made


def test_a_summary_of_an_older_version_has_its_first_device_alone() -> None:
    raw = read_trace(*real("jax")).to_json()
    del raw["others_ns"]
    found = ProfileSummary.from_json(raw)
    assert (found.devices, found.others) == (4, ())


def test_a_summary_whose_parts_do_not_sum_up_is_none() -> None:
    raw = read_trace(*real("jax")).to_json()
    raw["steps"][0]["parts_ns"]["idle"] += 1
    with pytest.raises(ValueError, match="do not sum up"):
        ProfileSummary.from_json(raw)


def test_the_picture_is_plain() -> None:
    lines = list(picture(read_trace(*real("torch"))))
    assert lines[0].startswith("3 steps of rank 0 in attempt 0, ")
    assert sum(line.startswith("step ") for line in lines) == 3
    assert any("aten::mm" in line and "FLOP/s" in line for line in lines)


# --- made by hand ---------------------------------------------------------------------------


def of_a_device(**changed: Any) -> Capture:
    """Two steps, of 100 and 200 µs; in the first one 30 µs of data are waited for."""
    edges = ((6, BOOT), (7, BOOT + 100_000), (8, BOOT + 300_000))
    spans = (("data", BOOT + 10_000, BOOT + 40_000), ("save", BOOT, BOOT + 300_000))
    return Capture(0, 0, 2, **{"framework": "jax", "edges": edges, "spans": spans, **changed})


def anchored(at_ns: int) -> MadePlane:
    """The host of a run whose trace began so long after its clock's zero."""
    plane = MadePlane("/host:CPU")
    plane.line("python", [(f"holdfast clock {BOOT}", at_ns, at_ns + 10), ("PjitFunction(f)", 1, 9)])
    return plane


def tpu() -> bytes:
    chip, other = MadePlane("/device:TPU:0"), MadePlane("/device:TPU:1")
    for plane in (chip, other):
        plane.line("Steps", [("7", 10_000, 400_000)])
        plane.line("XLA Modules", [("jit_train", 10_000, 310_000)])
    chip.line("XLA Ops", [("fusion.1", 10_000, 30_000)], flops=4_000, bytes_accessed=50)
    chip.line("XLA Ops", [("all-reduce.2", 60_000, 80_000)], hlo_category="all-reduce")
    chip.line("XLA Ops", [("while.3", 120_000, 220_000), ("fusion.4", 130_000, 210_000)])
    chip.line("Async XLA Ops", [("all-gather.5", 200_000, 240_000), ("copy.6", 240_000, 300_000)])
    other.line("XLA Ops", [("fusion.1", 10_000, 310_000)])
    return xspace(other, chip, anchored(10_000))


def test_a_tpus_steps() -> None:
    trace = read_xspace(tpu())
    assert (trace.devices, trace.is_host, trace.offset_ns) == (2, False, 10_000 - BOOT)
    found = summarise(trace, of_a_device())
    assert [dict(one.parts) for one in found.steps] == [
        {"compute": 20_000, "collective": 20_000, "input": 20_000, "host": 40_000, "idle": 0},
        {"compute": 90_000, "collective": 30_000, "input": 0, "host": 80_000, "idle": 0},
    ]
    none = {"collective": 0, "input": 0, "host": 0, "idle": 0}
    assert found.others == ({"compute": 300_000, **none},)
    of = {one.name: one for one in found.operations}
    assert (of["fusion.1"].flops, of["fusion.1"].nbytes) == (4_000, 50)
    assert (of["while.3"].self_ns, of["fusion.4"].self_ns) == (20_000, 80_000)
    assert of["all-gather.5"].work == "collective"
    assert "copy.6" not in of


@pytest.mark.parametrize("by", ["name", "category", "program"])
def test_what_is_exchanged_within_a_loop_is_no_computation(by: str) -> None:
    """Of scanned layers: the loop claimed all of it. What it does of its own is a computation."""
    names = {"name": ("while.3", "all-reduce.7")}.get(by, ("scan.3", "psum.7"))
    each = {
        "category": ({"hlo_category": "while"}, {"hlo_category": "all-reduce"}),
        "program": ({"program_id": 5}, {"program_id": 5}),
    }.get(by, ({}, {}))
    chip = MadePlane("/device:TPU:0")
    chip.line("XLA Ops", [(names[0], 10_000, 110_000)], **each[0])
    chip.line("XLA Ops", [("fusion.4", 20_000, 50_000)])
    chip.line("XLA Ops", [(names[1], 40_000, 90_000)], **each[1])
    made = program(5, **{"scan.3": "while", "psum.7": "all-reduce"})
    found = summarise(read_xspace(xspace(made, chip, anchored(10_000))), of_a_device())
    parts = dict(found.steps[0].parts)
    assert parts == {"compute": 60_000, "collective": 40_000, "input": 0, "host": 0, "idle": 0}
    assert {one.name: one.work for one in found.operations}[names[0]] == "compute"


def test_a_node_of_autograd_that_waits_for_others_does_not_compute() -> None:
    rows = [
        row("user_annotation", f"holdfast clock {BOOT}", 10_000, 11_000),
        row("cpu_op", "autograd::engine::evaluate_function: ReduceBackward", 10_000, 110_000),
        row("cpu_op", "ReduceBackward", 10_000, 110_000),
        row("cpu_op", "aten::mm", 20_000, 50_000),
        row("cpu_op", "CompiledFunctionBackward", 90_000, 100_000),
        row("user_annotation", "gloo:all_reduce", 40_000, 95_000),
    ]
    trace = read_chrome(json.dumps({"traceEvents": rows}).encode())
    parts = dict(summarise(trace, of_a_device(spans=())).steps[0].parts)
    assert parts == {"compute": 60_000, "collective": 40_000, "input": 0, "host": 0, "idle": 0}


def test_a_thread_that_did_not_run_was_idle() -> None:
    ran = tuple((BOOT + at, ran) for at, ran in ((0, 0), (100_000, 90_000), (300_000, 120_000)))
    steps = summarise(read_xspace(tpu()), of_a_device(ran=ran)).steps
    assert (steps[0].parts["idle"], steps[0].parts["host"]) == (0, 40_000)
    assert (steps[1].parts["idle"], steps[1].parts["host"]) == (80_000, 0)


def test_a_gpus_streams_of_jax() -> None:
    gpu = MadePlane("/device:GPU:0")
    gpu.line("Stream #7(Compute)", [("gemm_bf16", 10_000, 60_000)], hlo_op="dot.1")
    gpu.line("Stream #8(Compute)", [("ncclDevKernel_AllReduce_Sum", 50_000, 90_000)])
    gpu.line("Stream #9(MemcpyH2D)", [("MemcpyH2D", 90_000, 100_000)])
    gpu.line("XLA Ops", [("dot.1", 10_000, 300_000)])
    found = summarise(read_xspace(xspace(gpu, anchored(10_000))), of_a_device())
    parts = dict(found.steps[0].parts)
    assert parts == {"compute": 50_000, "collective": 30_000, "input": 10_000, "host": 10_000,
                     "idle": 0}  # fmt: skip
    assert {one.name for one in found.operations} == {
        "dot.1", "ncclDevKernel_AllReduce_Sum", "MemcpyH2D",
    }  # fmt: skip


def row(
    cat: str, name: str, start_ns: int, end_ns: int, pid: int = 0, **args: Any
) -> dict[str, Any]:
    ts, dur = start_ns / 1000, (end_ns - start_ns) / 1000
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def torch_gpu() -> bytes:
    shapes = {"Input Dims": [[64, 128], [128, 32]], "Input type": ["c10::BFloat16"] * 2}
    rows = [
        {"ph": "M", "name": "process_name", "pid": 0},
        row("user_annotation", f"holdfast clock {BOOT}", 10_000, 11_000, pid=99),
        row("cpu_op", "aten::mm", 12_000, 14_000, pid=99, **{"External id": 5}, **shapes),
        row("kernel", "sm90_gemm", 20_000, 60_000, **{"External id": 5}),
        row("kernel", "splitKreduce", 60_000, 61_000, **{"External id": 5}),
        row("kernel", "ncclDevKernel_AllReduce_Sum", 50_000, 90_000, **{"External id": 6}),
        row("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 90_000, 100_000),
        row("kernel", "sm90_gemm", 20_000, 310_000, pid=1),
        row("cuda_runtime", "cudaLaunchKernel", 12_500, 13_000, pid=99),
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": rows}).encode()


def test_a_gpus_kernels_of_torch() -> None:
    trace = read_chrome(torch_gpu())
    assert (trace.devices, trace.is_host) == (2, False)
    found = summarise(trace, of_a_device())
    assert dict(found.steps[0].parts) == {
        "compute": 41_000, "collective": 29_000, "input": 10_000, "host": 20_000, "idle": 0,
    }  # fmt: skip
    assert [(one["compute"], one["host"]) for one in found.others] == [(290_000, 10_000)]
    product = next(one for one in found.operations if one.name == "aten::mm")
    assert product.calls == 2, "two kernels do one product"
    assert product.flops == 2 * 64 * 128 * 32
    assert product.nbytes == 2 * (64 * 128 + 128 * 32 + 64 * 32)


def test_what_makes_a_batch_on_the_processor_is_input() -> None:
    rows = [
        row("user_annotation", f"holdfast clock {BOOT}", 10_000, 11_000),
        row("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", 60_000, 80_000),
        row("cpu_op", "aten::stack", 62_000, 70_000),
        row("cpu_op", "aten::mm", 90_000, 100_000),
    ]
    found = summarise(read_chrome(json.dumps({"traceEvents": rows}).encode()), of_a_device())
    assert found.steps[0].parts["input"] == 30_000 + 20_000
    assert found.steps[0].parts["compute"] == 10_000


# --- what is no trace -----------------------------------------------------------------------


def test_a_trace_without_marks_has_no_clock() -> None:
    with pytest.raises(ValueError, match="marks"):
        summarise(read_chrome(b'{"traceEvents": []}'), of_a_device())


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"traceEvents": [{]}', b'{"traceEvents": ' + b"[" * 200_000],
    ids=["empty", "none", "broken", "deep"],
)
def test_what_is_no_chrome_trace_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_chrome(data)


def test_what_holds_too_much_is_not_unpacked() -> None:
    with pytest.raises(ValueError, match="more than 1 MiB"):
        unpacked(gzip.compress(b"\0" * (2 << 20)), 1 << 20)
    with pytest.raises(ValueError, match="cut short"):
        unpacked(gzip.compress(b"x" * 1000)[:-8])
    with pytest.raises(ValueError, match="no gzip"):
        unpacked(b"rubbish")


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    _, capture = real("jax")
    with pytest.raises(StoreUnavailable, match=r"rank-00000.xplane.pb.gz is not there"):
        make_summary(tmp_path / "rank-00000.json", capture)


def test_work_has_a_word_for_each_kind() -> None:
    assert {str(work) for work in Work} - {Work.CONTROL} < set(PARTS)
