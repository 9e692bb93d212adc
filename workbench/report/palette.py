"""Colours by what they stand for, for figures and pages alike.

In: a theme name, or an SVG drawn in the light theme. Out: a `Theme`, or the SVG in the dark one. The same thing has the same colour everywhere; what must survive black and white
is hatched as well (see the figures). No drawing here, so that a page can be made without matplotlib.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from workbench.errors import ConfigError, nearest_name


@dataclass(frozen=True, slots=True)
class Theme:
    """One set of colours."""

    name: str
    page: str
    ink: str
    muted: str
    grid: str
    system: str
    history: str
    tool_results: str
    summary: str
    current: str
    overhead: str
    new_text: str
    firing: str
    compaction: str
    tailoring: str
    other: str
    good_row: str
    """Background of the recommended row."""
    ramp: tuple[str, ...]
    """From empty to full."""


LIGHT = Theme(
    name="light",
    page="#ffffff",
    ink="#1f2328",
    muted="#59636e",
    grid="#e6e8eb",
    system="#8c9bab",
    history="#4477aa",
    tool_results="#66a5ad",
    summary="#d98e04",
    current="#b8c4d0",
    overhead="#dfe5ec",
    new_text="#c9d3dd",
    firing="#c23b22",
    compaction="#7b3294",
    tailoring="#00734f",
    other="#555555",
    good_row="#e7f2fd",
    ramp=("#f3f7fb", "#c3d7ea", "#7fabd3", "#3d78b4", "#174a85", "#06234d"),
)
# The hues of the light theme, lighter, so that they stand on a dark page as far apart as on a white one.
DARK = Theme(
    name="dark",
    page="#15191e",
    ink="#e6e9ed",
    muted="#a3adb8",
    grid="#2c333b",
    system="#8f9dac",
    history="#6a9bd1",
    tool_results="#7fc4cc",
    summary="#eba834",
    current="#b3bcc5",
    overhead="#6d7883",
    new_text="#56616d",
    firing="#ff7a5c",
    compaction="#c18ad6",
    tailoring="#35b58a",
    other="#9a9a9a",
    good_row="#1c2c3c",
    ramp=("#1d2733", "#22405f", "#2c6092", "#4a8bc4", "#8bbbe4", "#dcecfa"),
)
_COLOUR = re.compile(r"#[0-9a-f]{6}(?![0-9a-zA-Z_])")
_DARK_FOR_LIGHT = {
    getattr(LIGHT, field.name): getattr(DARK, field.name)
    for field in fields(Theme)
    if field.name not in {"name", "ramp"}
}
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


# Words inside an area: dark in both themes, but on the history, whose light colour is a dark one, as the page.
WORDS_ON_AREA = "#101418"
_DARK_AREAS = frozenset({"history"})


def words_on(area: str, theme: Theme) -> str:
    """The colour of words inside the area with this name."""
    return theme.page if area in _DARK_AREAS else WORDS_ON_AREA


def in_dark(svg: str) -> str:
    """An SVG drawn in the light theme, in the colours of the dark one; saves drawing it again."""
    return _COLOUR.sub(lambda found: _DARK_FOR_LIGHT.get(found[0], found[0]), svg)


def theme_named(name: str) -> Theme:
    """The theme `light` or `dark`.

    Raises:
        ConfigError: there is no such theme.
    """
    if name not in THEMES:
        raise ConfigError.for_field("theme", name, ", ".join(THEMES), hint=nearest_name(name, THEMES))
    return THEMES[name]
