"""What a person sees: terminal text, figures, HTML pages, notebook displays.

In: runs. Out: `page` writes a report, `frame` gives a data frame, `explore` gives controls for a
notebook, the other names give a figure each. pandas, matplotlib and ipywidgets load with the first use, not with this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Bound here and at once: a later import of the module of the same name doesn't rebind it.
from workbench.report.page import page

if TYPE_CHECKING:
    from workbench.report.explorer import explore
    from workbench.report.frames import frame
    from workbench.report.plots import (
        cache_breaks,
        calibration_error,
        cost_recall,
        coverage,
        firing_map,
        needed_facts,
        prefix_reuse,
        tokens_per_call,
        trigger_value,
    )

__all__ = [
    "cache_breaks",
    "calibration_error",
    "cost_recall",
    "coverage",
    "explore",
    "firing_map",
    "frame",
    "needed_facts",
    "page",
    "prefix_reuse",
    "tokens_per_call",
    "trigger_value",
]

_HOME = {
    "cache_breaks": "workbench.report.plots",
    "calibration_error": "workbench.report.plots",
    "explore": "workbench.report.explorer",
    "cost_recall": "workbench.report.plots",
    "coverage": "workbench.report.plots",
    "frame": "workbench.report.frames",
    "firing_map": "workbench.report.plots",
    "needed_facts": "workbench.report.plots",
    "prefix_reuse": "workbench.report.plots",
    "tokens_per_call": "workbench.report.plots",
    "trigger_value": "workbench.report.plots",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
