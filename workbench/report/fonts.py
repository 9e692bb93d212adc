"""Faces for figures, so that Chinese, Japanese and Korean names show as characters and not as boxes.

In: the faces of this machine. Out: the family list for matplotlib, labels in which every character has a glyph,
and the few glyphs that a page takes along. An installed face wins over the font package; with neither, one
warning gives the command (WB-UI-02a).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from workbench.report.labels import display_width, printable

BASE_FAMILY = "DejaVu Sans"
FONT_PACKAGE = "cvttf_NotoSansCJK_Regular"
INSTALL_HINT = "pip install cvttf-notosanscjk-regular (or, on Debian: apt-get install fonts-noto-cjk)"
PROBES = "汉あ한"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

KNOWN_FAMILIES = (
    "Noto Sans CJK SC", "Noto Sans CJK TC", "Noto Sans CJK HK", "Noto Sans CJK JP", "Noto Sans CJK KR",
    "Source Han Sans SC", "Source Han Sans CN", "Source Han Sans TC", "Source Han Sans", "Source Han Sans K",
    "PingFang SC", "PingFang TC", "Heiti TC", "Hiragino Sans", "Hiragino Sans GB", "Apple SD Gothic Neo",
    "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "SimHei", "Meiryo", "NanumGothic",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip


class MissingGlyphWarning(UserWarning):
    """A label holds characters that no face of this machine can draw."""


@cache
def families() -> tuple[str, ...]:
    """The family list for figures: the base face, then as few CJK faces as cover all three scripts."""
    chosen = families_from(font_manager.get_font_names())
    if not _covered(PROBES, chosen) and (path := packaged_face()) is not None:
        font_manager.fontManager.addfont(path)
        chosen = (BASE_FAMILY, font_manager.FontProperties(fname=path).get_name())
    for family in chosen[1:]:
        _offer_as_bold(family)
    return chosen


def _offer_as_bold(family: str) -> None:
    """Lets bold titles use a face that exists in regular weight only, without a log line for each size."""
    entries = [entry for entry in font_manager.fontManager.ttflist if entry.name == family]
    if entries and all(entry.weight in (400, "normal", "regular") for entry in entries):
        font_manager.fontManager.ttflist.append(replace(entries[0], weight=700))


def cjk_font_name() -> str:
    """The CJK faces in use, for people; empty when there is none."""
    return ", ".join(families()[1:])


def families_from(installed: Iterable[str]) -> tuple[str, ...]:
    """The base face and those installed known faces that each draw one more of the probes."""
    available = set(installed)
    chosen: tuple[str, ...] = (BASE_FAMILY,)
    for family in KNOWN_FAMILIES:
        if family in available and any(not _covered(probe, chosen) and _covered(probe, (family,)) for probe in PROBES):
            chosen = (*chosen, family)
    return chosen


def packaged_face() -> Path | None:
    """The font file of the font package, which isn't imported; None when it isn't installed."""
    spec = find_spec(FONT_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("*.otf")):
            return path
    return None


def drawable(text: str) -> str:
    """`text` on one line, a replacement mark for each character that no face draws; warns once a process."""
    text = "".join(c for c in printable(text) if display_width(c) or _has_glyph(c))
    missing = {character for character in text if not character.isspace() and not _has_glyph(character)}
    if missing:
        _warn_once()
    return "".join(REPLACEMENT if character in missing else character for character in text)


def glyphs_for(text: str) -> bytes | None:
    """A WOFF font with just the wide characters of `text`, for a page; None when there are none or no package.

    Only the font package is cut: its licence (SIL Open Font License) allows it, that of an installed face may not.
    """
    wanted = {character for character in set(text) if display_width(character) == 2}
    path = packaged_face()
    if not wanted or path is None:
        return None
    # Half a second that only a page with such characters pays.
    from fontTools.subset import Options, Subsetter  # type: ignore[import-untyped]
    from fontTools.ttLib import TTFont  # type: ignore[import-untyped]

    options = Options(layout_features=[], hinting=False, name_IDs=[], notdef_outline=True, desubroutinize=True)
    options.drop_tables += ["BASE", "GPOS", "GSUB", "VORG", "vhea", "vmtx"]
    cut = Subsetter(options)
    cut.populate(unicodes=[ord(character) for character in wanted])
    with TTFont(path, lazy=True, recalcTimestamp=False) as face:
        cut.subset(face)
        face.flavor = "woff"
        packed = io.BytesIO()
        face.save(packed)
    return packed.getvalue()


@cache
def _warn_once() -> None:
    # Cached, so that the first call of the process is the only one that speaks.
    warnings.warn(
        f"no installed font draws some characters of the labels; for Chinese, Japanese and Korean: {INSTALL_HINT}",
        MissingGlyphWarning,
        stacklevel=2,
    )


@cache
def _has_glyph(character: str) -> bool:
    return _covered(character, families())


def _covered(characters: str, names: tuple[str, ...]) -> bool:
    return all(any(_face(name).get_char_index(ord(character)) for name in names) for character in characters)


@cache
def _face(family: str) -> FT2Font:
    return font_manager.get_font(font_manager.findfont(family, fallback_to_default=False))
