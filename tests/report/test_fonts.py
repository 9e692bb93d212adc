"""Faces for Chinese, Japanese and Korean labels."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from workbench.report import fonts

# A private-use character: no face has it.
NOWHERE = "\uf8f0"


@pytest.fixture(autouse=True)
def warn_again():
    fonts._warn_once.cache_clear()
    yield
    fonts._warn_once.cache_clear()


def drawn(text: str) -> np.ndarray:
    """The pixels of one label."""
    figure = Figure(figsize=(1, 1), dpi=80)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.2, 0.3, text, size=36, family=list(fonts.families()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


@pytest.mark.parametrize("character", list(fonts.PROBES))
def test_chinese_japanese_and_korean_are_drawn_and_not_the_missing_glyph(character):
    """WB-UI-02a."""
    missing, empty, made = drawn(NOWHERE), drawn(" "), drawn(character)
    assert not np.array_equal(made, missing)
    assert not np.array_equal(made, empty)


def test_characters_of_one_script_are_told_apart():
    assert not np.array_equal(drawn("汉"), drawn("字"))


def test_an_installed_face_comes_before_the_package():
    """WB-UI-02a."""
    assert fonts.families_from([]) == (fonts.BASE_FAMILY,)
    assert fonts.families_from(["Some Latin Face"]) == (fonts.BASE_FAMILY,)
    assert fonts.cjk_font_name() in fonts.families()


def test_without_a_face_one_warning_gives_the_command(monkeypatch):
    """WB-UI-02a."""
    monkeypatch.setattr(fonts, "_has_glyph", lambda character: character.isascii())
    with pytest.warns(fonts.MissingGlyphWarning, match="pip install cvttf-notosanscjk-regular"):
        assert fonts.drawable("客服-01") == "\ufffd\ufffd-01"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fonts.drawable("客服-02") == "\ufffd\ufffd-02"


def test_a_package_that_is_not_installed_is_no_error(monkeypatch):
    monkeypatch.setattr(fonts, "FONT_PACKAGE", "no_such_font_package")
    assert fonts.packaged_face() is None
    assert fonts.glyphs_for("客服") is None


def test_a_page_carries_just_the_wide_characters_it_shows():
    from fontTools.ttLib import TTFont

    packed = fonts.glyphs_for("客服-01 客服-02")
    with TTFont(io.BytesIO(packed)) as face:
        assert {chr(code) for code in face.getBestCmap()} == set("客服")
    assert len(packed) < 20_000
    assert fonts.glyphs_for("plain") is None
    assert packed == fonts.glyphs_for("客服-01 客服-02"), "equal pages are equal bytes"
