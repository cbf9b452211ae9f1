"""One self-contained HTML file: it works from disk, with no network, in light and dark.

Everything is inside: styles, charts, their data, and the scripts that draw them. A content security
policy allows exactly these scripts and styles, by their hashes, and no connection to anywhere; so
text from outside that got through as HTML would still not run. It does not get through: templates
escape all values, and data stand in blocks that no browser executes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from holdfast.report.charts import Figure, altair, javascript
from holdfast.report.themes import DARK, LIGHT, THEMES, css_variables, vega_config

_PAGES = files("holdfast.report") / "pages"


def page(template: str, figures: Sequence[Figure], **values: Any) -> str:
    """The page that a template of `report/pages` makes of these values.

    In the template, `figures.NAME` is a figure; `frame.html` has macros for what pages share.
    Raises ConfigurationError where the extra `dashboard` is not installed.
    """
    altair()  # Jinja comes with it
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (_PAGES / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = _style()
    scripts = [javascript(), (_PAGES / "charts.js").read_text("utf-8")]
    assert not any("</script" in script.lower() for script in scripts)  # noqa: S101 - our own text
    return environment.get_template(template).render(
        policy=policy(scripts, [style]),
        style=style,
        scripts=scripts,
        charts=_data(figures),
        figures={figure.name: figure for figure in figures},
        **values,
    )


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """A content security policy that allows these inline scripts and styles and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashes(scripts)}",
            f"style-src {_hashes(styles)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _style() -> str:
    """The style sheet, with the variables of both themes before it."""
    rest = (_PAGES / "frame.css").read_text("utf-8")
    return (
        f":root {{ {css_variables(LIGHT)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css_variables(DARK)} }} }}\n"
        f"{rest}"
    )


def _data(figures: Sequence[Figure]) -> str:
    """What the script draws, as JSON that cannot end the block it stands in."""
    data = {
        "themes": {theme.name: vega_config(theme) for theme in THEMES},
        "charts": {figure.name: figure.spec for figure in figures},
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
