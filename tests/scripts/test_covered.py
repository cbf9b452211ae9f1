"""What nobody calls as a user does, nobody has tried."""

from __future__ import annotations

import re
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
API = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def test_each_function_and_method_is_in_a_script() -> None:
    public = re.findall(
        r"^#{2,3} (?:hf|Run|Look|FrameworkLoop)\.(\w+)\n\n```python\n.*\(",
        API.read_text(),
        re.MULTILINE,
    )
    scripts = "\n".join(path.read_text() for path in SCRIPTS.glob("*.py"))
    assert len(public) > 15
    missing = [
        name for name in public if not re.search(rf"\b(hf|run|look|loop)\.{name}\b", scripts)
    ]
    assert not missing
