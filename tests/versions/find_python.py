"""Where on this machine a Python of some version is: `python find_python.py 3.12` prints it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def find_python(version: str) -> str | None:
    """On the path, or where pyenv keeps them."""
    if (found := shutil.which(f"python{version}")) and _is_version(found, version):
        return found
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(kept[-1]) if kept else None


def _is_version(python: str, version: str) -> bool:
    told = subprocess.run([python, "--version"], capture_output=True, text=True)
    return told.returncode == 0 and f" {version}." in told.stdout


if __name__ == "__main__":
    found = find_python(sys.argv[1])
    if found is None:
        sys.exit(f"there is no Python {sys.argv[1]} on the path, nor where pyenv keeps them")
    print(found)
