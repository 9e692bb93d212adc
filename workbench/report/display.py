"""What a notebook shows for a result: the table of the report, without the page around it (WB-UI-05, WB-API-03).

In: a run, a run set, or a calibration. Out: HTML that stands alone in any notebook theme. Result classes call these from their
`_repr_html_`; text from outside is escaped by `markup.py` (SEC-07).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.report.markup import Markup, element, joined
from workbench.report.overview import Overview, overview, sentence
from workbench.report.tables import overview_table

if TYPE_CHECKING:
    from workbench.evaluate.calibrate import Calibration
    from workbench.report.frames import RunLike, Runs


def runs_html(runs: Runs, *, today: str | None = None) -> str:
    """Recommendation, provenance and table of a run set."""
    if not runs:
        return element("p", "No run to show.")
    view = overview(runs, today=today)
    return _block(view, [view.rule, *view.remarks] if len(view.rows) > 1 else [])


def run_html(run: RunLike) -> str:
    """One run: its sentence and its line of the table."""
    return _block(overview({run.name: run}), [sentence(run, None)])


def calibration_html(calibration: Calibration) -> str:
    """Finding, ratios, scripts, errors and thresholds of a calibration."""
    from workbench.report.calibration import calibration_markup

    return calibration_markup(calibration)


def _block(view: Overview, remarks: list[str]) -> Markup:
    small = [element("div", element("small", remark)) for remark in remarks]
    parts = [element("div", element("b", view.heading)), element("div", element("small", view.provenance))]
    return element("div", joined([*parts, overview_table(view), *small]))
