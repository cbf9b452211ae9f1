"""Copied as conftest.py beside the library's own tests, which then run against our face.

It stands in for what they were written in: an internal test package, absl's flags, names of cloud
clients that nothing calls, a cache folder for each test. And their clock is moved by `time.sleep`.
"""

import datetime
import sys
import time
import types
from unittest import mock

import pytest
from absl import flags
from absl.testing import absltest

import holdfast.compat.ml_goodput_measurement.auto  # noqa: F401
from holdfast.compat.ml_goodput_measurement import clock, goodput_cache

flags.FLAGS([sys.argv[0]])
_pybase = types.ModuleType("google3.testing.pybase")
_pybase.googletest = absltest
_logging = types.ModuleType("google.cloud.logging")
_logging.Client = type("Client", (), {})
sys.modules |= {
    "google3": types.ModuleType("google3"),
    "google3.testing": types.ModuleType("google3.testing"),
    "google3.testing.pybase": _pybase,
    "google": types.ModuleType("google"),
    "google.cloud": types.ModuleType("google.cloud"),
    "google.cloud.logging": _logging,
    "mock": mock,
}
sys.modules["google"].cloud = sys.modules["google.cloud"]
sys.modules["google.cloud"].logging = _logging


class Moved(datetime.datetime):
    """A datetime whose now is as late as the test has slept."""

    slept_s = 0.0

    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=cls.slept_s)


@pytest.fixture(autouse=True)
def _moved_clock(request, monkeypatch):
    def sleep(seconds):
        Moved.slept_s += seconds

    Moved.slept_s = 0.0
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(clock, "unix_ns", lambda: time.time_ns() + int(Moved.slept_s * 1e9))
    if hasattr(request.module, "datetime"):
        theirs = types.SimpleNamespace(**vars(datetime))
        theirs.datetime = Moved
        monkeypatch.setattr(request.module, "datetime", theirs)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    real = goodput_cache.GoodputCache.__init__

    def begin(self, job_name, cache_dir=str(tmp_path), gcs_path=None):
        real(self, job_name, cache_dir, gcs_path)

    monkeypatch.setattr(goodput_cache.GoodputCache, "__init__", begin)
