"""The page in a real browser: its policy lets the style and the figures through, in light and in dark."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.report.fakes import fake_run, fake_runs
from workbench.report import page
from workbench.report.palette import DARK, LIGHT, THEMES

pytestmark = pytest.mark.network

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def shoot(tmp_path_factory) -> Callable[[Path, str], np.ndarray]:
    """Takes the picture of a page as a reader with that system theme sees it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser on this machine; on Debian: apt-get install chromium")
    folder = tmp_path_factory.mktemp("browser")

    def shoot(report: Path, theme: str) -> np.ndarray:
        target = folder / f"{report.stem}-{theme}.png"
        preferred = {"dark": 0, "light": 1}[theme]
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--virtual-time-budget=5000",
                f"--user-data-dir={folder / 'profile'}",
                f"--blink-settings=preferredColorScheme={preferred}",
                "--window-size=1120,1600",
                f"--screenshot={target}",
                report.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        return imread(target)[:, :, :3]

    return shoot


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    return page(fake_runs((20, 5)), tmp_path_factory.mktemp("report") / "report.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_follows_the_theme_of_the_system(shoot, report, theme):
    """WB-UI-04."""
    picture = shoot(report, theme)
    colours = THEMES[theme]
    assert np.allclose(picture[2, 2] * 255, rgb(colours.page), atol=1)
    other = DARK if theme == "light" else LIGHT
    for area in ("history", "tool_results"):
        assert share_of(picture, getattr(colours, area)) > 0.005, f"{area} is drawn in its colour of this theme"
        assert share_of(picture, getattr(other, area)) < 0.0005, f"{area} isn't drawn in the other theme's"


def test_a_wide_character_behind_latin_ones_is_no_box(shoot, tmp_path):
    """WB-UI-02a: also the first of a page; two characters look different, two boxes don't."""
    run = fake_run("plain", {"plain": 3})
    amounts = [
        shoot(page({run.name: run}, tmp_path / f"{name}.html", title=f"237.59{character}"), "light")
        for name, character in (("yuan", "元"), ("one", "一"), ("again", "元"))
    ]
    assert np.array_equal(amounts[0], amounts[2])
    assert not np.array_equal(amounts[0], amounts[1])


def rgb(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def share_of(picture: np.ndarray, colour: str) -> float:
    return float(np.all(np.abs(picture * 255 - rgb(colour)) < 2, axis=-1).mean())
