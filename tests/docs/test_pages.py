"""The pages: their links lead somewhere, and the blocks marked to be run really run.

Marks are HTML comments on the line before a fenced block:

- `<!-- run -->`: the block (bash or python) is run, and must exit 0
- `<!-- run: exit 75 -->`: the same, and must exit with that code
- `<!-- file: train.py -->`: the block is written to that file first

The blocks of a page run in order, in one fresh folder with a run store of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "bench").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BLOCK = re.compile(
    r"^<!-- (run|file)(?:: *(.*?))? -->\n+```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
BLOCK_LIMIT_S = 400


class Block(NamedTuple):
    """A marked block: what to do with it, and its language and text."""

    action: str
    argument: str
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    source = page.read_text()
    return [
        Block(m[1], m[2] or "", m[3], m[4], source.count("\n", 0, m.start(3)) + 1)
        for m in BLOCK.finditer(source)
    ]


def prose(page: Path) -> str:
    """The page without its code, in which brackets and hashes mean other things."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda m: m[0].replace("(", "").replace("[", ""), text)


def links(page: Path) -> list[str]:
    text = prose(page)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)


def anchors(page: Path) -> set[str]:
    """The ids that GitHub gives to a page's headings."""
    seen: dict[str, int] = {}
    found = set()
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def broken(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False  # another site: not ours to test
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if broken(page, link)] == []


@pytest.mark.parametrize("folder", [d for d in (ROOT / "docs").iterdir() if d.is_dir()])
def test_every_page_is_reached_from_the_index(folder: Path) -> None:
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / link.split("#")[0]).resolve() for link in links(index)}
    pages = set(folder.rglob("*.md"))
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reached) == []


@pytest.mark.real
@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_marked_blocks_run(page: Path, store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in blocks(page):
        if block.action == "file":
            (folder / block.argument).write_text(block.text)
            continue
        shell = ["bash", "-euo", "pipefail", "-c"]
        command = {"bash": shell, "sh": shell, "python": [sys.executable, "-c"]}[block.language]
        result = subprocess.run(
            [*command, block.text],
            cwd=folder,
            # What stands by for an attempt that does not come would only import frameworks again.
            env={**os.environ, "PATH": path, "HOLDFAST_STANDBY": "off"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_LIMIT_S,
        )
        wanted = int(block.argument.removeprefix("exit") or 0)
        assert result.returncode == wanted, f"{page}:{block.line}\n{result.stdout}"


def test_a_page_with_faults_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `x`\n[a](gone.md) [b](#nowhere) [c](#one-x) [d](page.md) ![e](no.svg)\n"
        '<img src="no.png">\n<!-- run: exit 3 -->\n```bash\nexit 3\n```\n'
        "<!-- file: a.py -->\n\n```python\nprint(1)\n```\n```python\nnot marked\n```\n"
    )
    bad = [link for link in links(page) if broken(page, link)]
    assert bad == ["gone.md", "#nowhere", "no.svg", "no.png"]
    assert [(b.action, b.argument, b.language, b.text) for b in blocks(page)] == [
        ("run", "exit 3", "bash", "exit 3\n"),
        ("file", "a.py", "python", "print(1)\n"),
    ]
