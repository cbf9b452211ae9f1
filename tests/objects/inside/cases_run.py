"""Runs whose store is a bucket: started, stopped, killed, taken up on another host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, EXIT_SAVED, EXIT_UNAVAILABLE, FAR
from xxhash import xxh3_64_intdigest

from holdfast.journal.objects import Bucket, parse_place


def there(bucket: str) -> Bucket:
    return Bucket(parse_place(f"s3://{bucket}/team"))


def keys(bucket: str) -> list[str]:
    return sorted(there(bucket).list())


def sets(bucket: str, name: str = "r") -> list[int]:
    """The steps of the committed sets."""
    found = [key for key in keys(bucket) if key.startswith(f"{name}/ckpt/")]
    return [int(key.split("/")[2].split("-")[1]) for key in found if key.endswith("manifest.json")]


def elsewhere(house: Any) -> None:
    """Another host: nothing of the run is on this disk any more."""
    for place in house.store.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def until_saved(house: Any, bucket: str, run: Any, count: int) -> int:
    """Let it train until it has so many sets; the step that it may go to."""
    step = 1
    while len(sets(bucket)) < count:
        run.saw(f"did {step}$")
        step += 1
        house.allow(step)
    return step


def test_a_run_from_beginning_to_end(house: Any, bucket: str) -> None:
    run = house.run("--save-every", 2, "--keep", 3, steps=6)
    words = run.wait(EXIT_DONE)
    assert "not-to-be-shown" not in words
    assert max(sets(bucket)) == 6
    assert len(sets(bucket)) <= 3
    found = keys(bucket)
    for name in ("r/run.json", "r/lease/000001.json", "r/lease/000001.released"):
        assert name in found
    for part in ("attempt.json", "end.json", "journal/", "logs/"):
        assert any(key.startswith(f"r/attempts/0000/{part}") for key in found), part
    assert any(key.startswith("r/journal/controller") for key in found)
    ckpt = next(house.store.glob("*/r/ckpt"))
    assert [path.name for path in ckpt.iterdir()] == ["elsewhere.json"]
    assert b"not-to-be-shown" not in (ckpt / "elsewhere.json").read_bytes()


def test_stopped_here_taken_up_there(house: Any, bucket: str) -> None:
    house.allow(1)
    run = house.run("--save-every", 1, steps=FAR)
    step = until_saved(house, bucket, run, 2)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    saved = max(sets(bucket))
    assert saved >= step - 1
    elsewhere(house)
    again = house.run(steps=saved + 3)
    again.saw(f"did {saved + 1}$")
    again.wait(EXIT_DONE)
    elsewhere(house)
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert report["run"]["attempts"] == 2
    assert report["run"]["store"] == f"s3://{bucket}/team"
    listed = house.holdfast("ckpt", "ls", "r", "--json").wait(EXIT_DONE)
    assert json.loads(listed)["checkpoints"][0]["step"] == saved + 3
    assert "every byte is what was written" in house.holdfast("ckpt", "verify", "r").wait(EXIT_DONE)
    assert "r" in house.holdfast("ls").wait(EXIT_DONE)


@pytest.mark.parametrize("memory", ["auto", "off"])
def test_a_killed_supervisor(memory: str, house: Any, bucket: str) -> None:
    """The next one on this host starts at once, and closes the attempt that was left open."""
    house.allow(1)
    run = house.run("--save-every", 1, "--memory", memory, steps=FAR)
    until = until_saved(house, bucket, run, 2) + 5
    os.kill(run.pid, signal.SIGKILL)
    run.close()
    house.allow(FAR)
    again = house.run("--memory", memory, steps=until)
    again.wait(EXIT_DONE)
    assert max(sets(bucket)) == until
    end = json.loads(there(bucket).get("r/attempts/0000/end.json", 1 << 20))
    assert end["cause"] != "done"


def test_without_a_supervisor(house: Any, bucket: str) -> None:
    house.allow(3)
    alone = house.alone(steps=FAR, HOLDFAST_SAVE_EVERY_STEPS=1)
    alone.saw("did 3$")
    alone.send(signal.SIGTERM)
    house.allow(FAR)
    alone.wait(EXIT_SAVED)
    saved = max(sets(bucket))
    elsewhere(house)
    house.alone(steps=saved + 2).wait(EXIT_DONE)
    assert max(sets(bucket)) == saved + 2
    for part in ("attempts/0001/journal/", "attempts/0001/end.json", "lease/000002.released"):
        assert any(key.startswith(f"r/{part}") for key in keys(bucket)), part


def test_two_ranks(house: Any, bucket: str) -> None:
    house.run("--ranks", 2, "--save-every", 2, steps=4).wait(EXIT_DONE)
    newest = f"r/ckpt/0000-{4:012d}"
    assert {key.rpartition("/")[2] for key in keys(bucket) if key.startswith(newest)} == {
        "manifest.json",
        *(f"rank-0000{rank}.{kind}" for rank in (0, 1) for kind in ("safetensors", "receipt.json")),
    }


def test_a_second_supervisor_is_refused(house: Any, bucket: str, tmp_path: Path) -> None:
    """Also one that has never seen the run: the claim is in the bucket."""
    house.allow(1)
    run = house.run(steps=FAR)
    run.saw("did 1$")
    second = house.run(steps=3, HOLDFAST_MIRROR=tmp_path / "other")
    assert "is held by" in second.wait(EXIT_UNAVAILABLE)
    stop = house.holdfast("stop", "r", "--now", HOLDFAST_MIRROR=tmp_path / "other")
    stop.wait(EXIT_DONE)
    run.wait()
    assert not [key for key in keys(bucket) if key.startswith("r/control/")]


@pytest.mark.parametrize("memory", ["auto", "off"])
def test_the_store_goes_away_and_comes_back(
    memory: str, house: Any, bucket: str, proxy: Any
) -> None:
    """Training goes on meanwhile; what could not be saved is saved later."""
    house.allow(1)
    run = house.run("--save-every", 2, "--memory", memory, steps=FAR)
    step = until_saved(house, bucket, run, 1)
    proxy.down()
    for _ in range(30):
        run.saw(f"did {step}$")
        step += 1
        house.allow(step)
    run.saw("kept on this host meanwhile")
    proxy.up()
    run.saw("again; nothing was lost")
    before = max(sets(bucket))
    while max(sets(bucket)) <= before:
        run.saw(f"did {step}$")
        step += 1
        house.allow(step)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    again = house.run(steps=max(sets(bucket)) + 1)
    again.wait(EXIT_DONE)


def test_a_run_that_is_not_there(house: Any, bucket: str) -> None:
    house.run(steps=1, name="sparrow").wait(EXIT_DONE)
    said = house.holdfast("report", "sparow").wait(EXIT_CONFIGURATION)
    assert f"no run is named 'sparow' in s3://{bucket}/team: did you mean sparrow?" in said


def test_the_store_goes_away_before_a_restore(house: Any, bucket: str, proxy: Any) -> None:
    """The attempt cannot read its checkpoint; that is no reason to go on without it."""
    house.run("--save-every", 2, steps=4).wait(EXIT_DONE)
    run = house.run("--memory", "off", steps=8, HOLD="restore")
    run.saw("at restore")
    proxy.down()
    house.go()
    run.saw("cannot be reached")
    proxy.up()
    words = run.wait(EXIT_DONE)
    assert "from 4" in words
    assert "from 0" not in words
    assert max(sets(bucket)) == 8


def test_a_store_that_is_away_at_the_start(house: Any, proxy: Any) -> None:
    proxy.down()
    words = house.run(steps=3).wait(EXIT_UNAVAILABLE)
    assert "cannot be reached; check the network and the endpoint" in words
    assert "Traceback" not in words


@pytest.mark.parametrize(
    ("store", "env", "words", "code"),
    [
        ("s3://no-such-bucket/x", {}, "there is no bucket s3://no-such-bucket", EXIT_UNAVAILABLE),
        ("s4://bucket/x", {}, "unknown kind 's4'", EXIT_CONFIGURATION),
        ("s3://A:B@bucket/x", {}, "never in the URL", EXIT_CONFIGURATION),
        (
            "s3://bucket/x",
            {"AWS_SECRET_ACCESS_KEY": ""},
            "no credentials for s3://bucket/x",
            EXIT_CONFIGURATION,
        ),
        ("gs://bucket/x", {}, "no credentials for gs://bucket/x", EXIT_CONFIGURATION),
        ("az://bucket/x", {}, "no credentials for az://bucket/x", EXIT_CONFIGURATION),
    ],
)
def test_what_cannot_be(house: Any, store: str, env: dict[str, str], words: str, code: int) -> None:
    said = house.run("--store", store, steps=1, **env).wait(code)
    assert words in said
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if line.startswith("holdfast:")]) == 1


def test_without_the_extra(house: Any) -> None:
    """The library is not there: one sentence says what to install."""
    house.script("raise ImportError('not here')", "obstore.py")
    path = os.pathsep.join([str(house.folder), os.environ.get("PYTHONPATH", "")])
    said = house.run(steps=1, PYTHONPATH=path).wait(EXIT_CONFIGURATION)
    assert "pip install 'holdfast-ml[objects]'" in said


def test_loading_for_inference(house: Any, bucket: str) -> None:
    house.run("--save-every", 2, steps=4).wait(EXIT_DONE)
    elsewhere(house)
    script = house.script(
        "import holdfast as hf\n"
        f"state = hf.load('s3://{bucket}/team/r')\n"
        "print('loaded', state is not None)\n"
    )
    assert "loaded True" in house.start(sys.executable, script).wait(EXIT_DONE)


COMPILES = """
import os
import jax, jax.numpy as jnp
import holdfast as hf

run = hf.start()

def step(x):
    print("tracing")
    return jnp.tanh(x) + 1

step = run.compile(step)
state = run.restore(init=lambda: jnp.ones(3))
for n in run.steps(run.resume_step + 2):
    state = step(state)
    run.done(n, state)
"""


def test_compiled_programs_go_through_a_bucket_only_under_a_seal(house: Any, bucket: str) -> None:
    pytest.importorskip("jax")
    script, key = house.script(COMPILES), house.folder / "cache.key"
    key.write_text("a secret of this run's hosts: " + "x" * 20)
    key.chmod(0o600)

    def train(host: str, *options: object) -> str:
        """A start on a host that has nothing of the run but, maybe, the key."""
        if house.store.exists():
            elsewhere(house)
        words = ("run", "--name", "r", "--standby", "off", "--scratch", house.folder / host)
        return house.holdfast(*words, *options, "--", sys.executable, script).wait(EXIT_DONE)

    said = train("a")
    assert "compiled programs stay on this host: others may write s3://" in said
    assert [name for name in keys(bucket) if "/cache/" in name] == []
    assert "tracing" in train("b", "--cache-key-file", key)
    kept = [name for name in keys(bucket) if "/cache/" in name]
    assert kept != []
    assert "tracing" not in train("c", "--cache-key-file", key)
    for name in kept:  # as somebody would who can write the bucket, and nothing else
        data = bytearray(there(bucket).get(name, 1 << 30))
        data[-1] ^= 1
        rest = bytes(data[56:])
        data[48:56] = xxh3_64_intdigest(rest).to_bytes(8, "little")
        there(bucket).put(name, bytes(data))
    said = train("d", "--cache-key-file", key)
    assert "tracing" in said
    assert "its seal is not of this key" in said


def test_a_cache_key_that_others_may_read_starts_nothing(house: Any, bucket: str) -> None:
    key = house.folder / "cache.key"
    key.write_text("x" * 40)
    key.chmod(0o644)
    said = house.run("--cache-key-file", key, steps=1).wait(EXIT_CONFIGURATION)
    assert "others may open it (mode 0644): chmod 600 it" in said
    assert keys(bucket) == []
