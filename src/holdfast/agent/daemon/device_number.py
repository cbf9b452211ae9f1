"""Which device an open file is, by its number: it has one, whatever name it was opened by.

The file may lie on a server that is gone, and stat(2) would wait for that one for ever. So statx(2)
is asked, which may be told to be content with what this host knows.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
from collections.abc import Callable

# From include/uapi/linux/fcntl.h and include/uapi/linux/stat.h; the last two are offsets.
AT_NO_AUTOMOUNT, AT_STATX_DONT_SYNC = 0x800, 0x4000
FLAGS = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC
STATX_TYPE = 1
STATX_BYTES = 256
MODE_AT, RDEV_AT = 28, 128


def device_number(folder: int, name: str) -> int | None:
    """Of the device that a name in an open folder leads to; None: it is none, or nobody can say."""
    known = ctypes.create_string_buffer(STATX_BYTES)
    if _statx()(folder, os.fsencode(name), FLAGS, STATX_TYPE, known) != 0:
        return None
    (mode,) = struct.unpack_from("=H", known, MODE_AT)
    if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        return None
    return os.makedev(*struct.unpack_from("=II", known, RDEV_AT))


@functools.cache
def _statx() -> Callable[..., int]:
    try:
        function = ctypes.CDLL(None).statx
    except AttributeError:  # an old libc: devices are known by their names alone
        return lambda *_: -1
    function.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    )
    return function
