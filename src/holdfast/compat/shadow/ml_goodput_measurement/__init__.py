"""Found before the real package where its folder is first in PYTHONPATH: see compat's `auto`."""

import importlib
import sys

sys.modules.pop(__name__, None)

from holdfast.compat.ml_goodput_measurement import auto  # noqa: E402

auto.install()

# The import that is under way gives what stands here.
sys.modules[__name__] = importlib.import_module("ml_goodput_measurement")
