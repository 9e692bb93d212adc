"""Figures, one function each: runs or a calibration in, a matplotlib figure out (WB-UI-02).

The title of a figure is what the data show; where they show nothing, the title says that.
"""

from workbench.report.plots.breaks import cache_breaks
from workbench.report.plots.calibration import calibration_error
from workbench.report.plots.events import coverage
from workbench.report.plots.facts import needed_facts
from workbench.report.plots.firing import firing_map
from workbench.report.plots.prefix import prefix_reuse
from workbench.report.plots.tokens import tokens_per_call
from workbench.report.plots.tradeoff import cost_recall
from workbench.report.plots.trigger import trigger_value

__all__ = [
    "cache_breaks",
    "calibration_error",
    "cost_recall",
    "coverage",
    "firing_map",
    "needed_facts",
    "prefix_reuse",
    "tokens_per_call",
    "trigger_value",
]
