"""A bucket tried out: what each request says of it, and that nothing is left behind."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from holdfast.doctor.bucket import object_store, probe
from holdfast.doctor.facts import ObjectStore
from holdfast.errors import StoreUnavailable
from holdfast.journal.objects import Bucket, parse_place


class Odd(Bucket):
    """Memory, with one request that goes wrong."""

    def __init__(self, odd: str = "", stamp_s: float = 1000.0) -> None:
        super().__init__(parse_place("memory://odd/runs"))
        self.odd = odd
        self.stamp_s = stamp_s

    def _fail(self, request: str) -> None:
        if self.odd == request:
            raise StoreUnavailable(f"cannot {request}: no permission")

    def create(self, key, data):
        self._fail("create")
        if self.odd == "careless":
            return self.put(key, data)
        if self.odd == "no claim" and self.has(key):
            raise StoreUnavailable("cannot create: it fails")
        return super().create(key, data)

    def get(self, key, max_bytes):
        self._fail("get")
        return b"" if self.odd == "another" else super().get(key, max_bytes)

    def list_top(self):
        self._fail("list")
        return {} if self.odd == "blind" else super().list_top()

    def delete(self, keys):
        self._fail("delete")
        if self.odd != "keeps":
            super().delete(keys)

    def stamped_s(self, key):
        return self.stamp_s


def look(odd="", stamp_s=1000.0):
    """What is found, by a host whose clock says 1000.5 and then 1000.6."""
    clocks, watch = iter((1000.5, 1000.6)), iter(range(100))
    bucket = Odd(odd, stamp_s)
    found = probe(bucket, ObjectStore("u"), lambda: next(clocks), lambda: next(watch))
    left = list(Bucket.list_top(bucket))
    Bucket.delete(bucket, left)
    return found, left


def test_a_bucket_that_is_well():
    assert look() == (ObjectStore("u", took_s=1, skew_s=0.0, is_exclusive=True), [])


@pytest.mark.parametrize(
    ("odd", "step", "words"),
    [
        ("create", "written", "cannot create"),
        ("get", "read", "cannot get"),
        ("another", "read", "not what was written"),
        ("list", "listed", "cannot list"),
        ("blind", "listed", "not in the list"),
        ("no claim", "claimed", "cannot create"),
    ],
)
def test_what_fails_is_named_and_nothing_is_left(odd, step, words):
    found, left = look(odd)
    assert (found.step, found.left, left) == (step, "", [])
    assert words in found.trouble


@pytest.mark.parametrize("odd", ["delete", "keeps"])
def test_what_cannot_be_taken_away_is_named(odd):
    found, (left,) = look(odd)
    assert (found.step, found.left) == ("deleted", f"memory://odd/runs/{left}")


def test_a_store_that_creates_over_what_is_there():
    found, left = look("careless")
    assert (found.is_exclusive, found.trouble, left) == (False, "", [])


@pytest.mark.parametrize(
    ("stamp_s", "skew_s"), [(1000.0, 0), (999.0, -0.5), (990.0, -9.5), (1000.6, 0), (1010.6, 10.0)]
)
def test_a_clock_is_told_as_far_as_seconds_can(stamp_s, skew_s):
    found, _ = look(stamp_s=stamp_s)
    assert found.skew_s == pytest.approx(skew_s)


def test_only_buckets_are_asked(monkeypatch):
    assert object_store("/a/folder", instance=False) is None
    assert object_store("file:///a/folder", instance=False) is None
    assert object_store("memory://d/runs", instance=False).is_exclusive
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    found = object_store("s3://b/runs", instance=False)
    assert (found.step, found.url) == ("opened", "s3://b/runs")
    assert "no credentials" in found.trouble
