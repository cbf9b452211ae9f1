"""What a wheel says of itself beside pyproject.toml: addresses, and the README for an index.

An index has none of the repository's files. So the README's links are made absolute, with the
address below. Whoever publishes from another place names it when building:
`HOLDFAST_HOME_PAGE=… python -m build`. Where there is no address, no wheel has a made-up one: it
names no URLs, and a picture or a link is its words.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The public repository, without a slash at the end. There is none yet.
HOME_PAGE = ""
PICTURES, PAGES = "raw/HEAD", "blob/HEAD"  # below it
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def urls(home: str) -> dict[str, str]:
    """The addresses that an index shows beside the project."""
    if not home:
        return {}
    return {
        "Homepage": home,
        "Documentation": f"{home}/{PAGES}/docs/README.md",
        "Changelog": f"{home}/{PAGES}/CHANGELOG.md",
    }


def readme(text: str, home: str) -> str:
    """The README without links into the repository's own files."""

    def absolute(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        if not home:
            return f"*{words}*" if mark else words
        return f"{mark}[{words}]({home}/{PICTURES if mark else PAGES}/{path})"

    return _LINK.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Called by hatchling."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic."""
        home = os.environ.get("HOLDFAST_HOME_PAGE", HOME_PAGE).rstrip("/")
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, home)}
        metadata["urls"] = urls(home)
