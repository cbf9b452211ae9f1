"""What is installed: the distribution's name and version, and a stranger that writes over it.

The package and the command are `holdfast`. On the package index that name is another project's, so
the distribution is `holdfast-ml`.
"""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "holdfast-ml"
VERSION = "0.1.0"


def stranger(folder: Path = Path(__file__).parents[1]) -> str:
    """A sentence if another project's `holdfast` lies in the folder where this one lies; or ""."""
    found = sorted(path.name for path in folder.glob("holdfast-*.dist-info"))
    if not found:
        return ""
    pip = f"{sys.executable or 'python3'} -m pip"
    return (
        f"{folder} also holds {found[0].removesuffix('.dist-info')}, another project of the same "
        f"package name, and each writes over the other: {pip} uninstall holdfast {NAME}, then "
        f"{pip} install {NAME}"
    )
