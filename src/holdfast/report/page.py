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
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from holdfast.core.redact import redacted_text
from holdfast.core.visible import clean
from holdfast.report.charts import Figure, altair, javascript
from holdfast.report.themes import DARK, LIGHT, THEMES, css_variables, vega_config

if TYPE_CHECKING:
    import jinja2

_PAGES = files("holdfast.report") / "pages"


def page(template: str, figures: Sequence[Figure], **values: Any) -> str:
    """The page that a template of `report/pages` makes of these values, with live charts.

    In the template, `figures.NAME` is a figure; `frame.html` has macros for what pages share.
    Raises ConfigurationError where the extra `dashboard` is not installed.
    """
    return still_page(
        template,
        [javascript(), script("charts.js")],
        {
            "charts": {
                "themes": {theme.name: vega_config(theme) for theme in THEMES},
                "charts": {figure.name: figure.spec for figure in figures},
            }
        },
        figures={figure.name: figure for figure in figures},
        **values,
    )


def still_page(
    template: str,
    scripts: Sequence[str],
    blocks: Mapping[str, Any],
    styles: Sequence[str] = (),
    **values: Any,
) -> str:
    """A page with just these scripts, and the data that they read as `blocks` of JSON by id.

    `styles`: names of style sheets beside the one that all pages have. Raises ConfigurationError
    where the extra `dashboard` is not installed.
    """
    return safe_page(template, scripts, blocks, styles, **values)[0]


def safe_page(
    template: str,
    scripts: Sequence[str],
    blocks: Mapping[str, Any],
    styles: Sequence[str] = (),
    live: str | None = None,
    **values: Any,
) -> tuple[str, str]:
    """The same, and its content security policy for whoever sends it by HTTP.

    `live`: the name under which its scripts declare that what they put in is HTML of the server's.
    Such a page may speak to the server that it came from; no other can.
    """
    style = _style(styles)
    assert not any("</script" in text.lower() for text in scripts)  # noqa: S101 - our own text
    allowed = policy(scripts, [style], live)
    text = (
        environment()
        .get_template(template)
        .render(
            policy=allowed,
            style=style,
            scripts=scripts,
            blocks={name: embedded(data) for name, data in blocks.items()},
            **values,
        )
    )
    return text, allowed


@cache
def environment() -> jinja2.Environment:
    """Templates of `report/pages`, which escape every value, and print none of it raw."""
    try:
        import jinja2
    except ImportError:
        altair()  # it comes with that, and says how
        raise

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (_PAGES / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )


def _printable(value: Any) -> Any:
    """Without secrets, and what a terminal, or a browser that lays out text, would obey."""
    return redacted_text(clean(value)) if type(value) is str else value  # Markup is our own


def script(name: str) -> str:
    """A script of `report/pages`."""
    return (_PAGES / name).read_text("utf-8")


def policy(scripts: Sequence[str], styles: Sequence[str], live: str | None = None) -> str:
    """A content security policy that allows these inline scripts and styles and nothing else.

    `live` as in `safe_page`.
    """
    allowed = [
        "default-src 'none'",
        f"script-src {_hashes(scripts)}",
        f"style-src {_hashes(styles)}",
        "base-uri 'none'",
    ]
    if live is None:
        return "; ".join([*allowed, "form-action 'none'"])
    return "; ".join(
        [
            *allowed,
            "connect-src 'self'",
            "form-action 'self'",
            f"trusted-types {live}",
            "require-trusted-types-for 'script'",
        ]
    )


def _hashes(texts: Sequence[str]) -> str:
    if not texts:
        return "'none'"
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _style(more: Sequence[str]) -> str:
    """The style sheet, with the variables of both themes before it."""
    rest = "".join(script(name) for name in ("frame.css", *more))
    return (
        f":root {{ {css_variables(LIGHT)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css_variables(DARK)} }} }}\n"
        f"{rest}"
    )


def embedded(data: Any) -> str:
    """Data as JSON that cannot end the block it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
