"""HTML that can't be broken by data: the only place of the package that escapes (SEC-07).

In: tag names and attribute names from our own code, text from anywhere. Out: `Markup`. A plain string is always
escaped; only `Markup` passes as it is, and only `element` and `joined` make it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from workbench.report.labels import printable

_VOID = frozenset({"meta", "img", "input", "br"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Markup | None


def text(value: str) -> Markup:
    """`value` as text: nothing in it is read as markup."""
    return value if isinstance(value, Markup) else Markup(html.escape(printable(value), quote=True))


def element(tag: str, *content: Content, **attributes: str | None) -> Markup:
    """One element. `class_` and `for_` lose their underscore, other underscores become hyphens.

    An attribute that is None is left out, an empty one stands without a value.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(content)}</{tag}>")


def joined(parts: Iterable[Content], separator: Content = "") -> Markup:
    """Parts one after the other, strings escaped, None left out."""
    return Markup(text(separator or "").join(text(part) for part in parts if part is not None))


def _attribute(name: str, value: str) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value == "" else f' {name}="{text(value)}"'


def verbatim(own_text: str) -> Markup:
    """Style sheets and doctypes of our own; never text that came from a recording or a configuration."""
    return Markup(own_text)
