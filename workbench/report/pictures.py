"""Figures inside HTML: an SVG in an address, so that one drawing serves a page, a widget and both themes.

In: a figure. Out: its SVG, and the element that shows it. matplotlib loads with the first figure, not with this module.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from workbench.report.markup import Markup, element

if TYPE_CHECKING:
    from workbench.report.plots.style import ReportFigure


def picture(figure: ReportFigure, svg: str, class_: str) -> Markup:
    """The element that shows an SVG of a figure at its own size, with the finding as its text."""
    width, height = (str(round(inches * 100)) for inches in figure.get_size_inches())
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return element("img", src=address, alt=figure.finding, width=width, height=height, class_=class_)


def svg_of(figure: ReportFigure) -> str:
    """The figure with its text as outlines: no face of the reader's machine is needed."""
    import matplotlib as mpl  # loads only for figures

    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "workbench", "svg.image_inline": True}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    # Without the prologue, which names a document type by its address.
    return text.getvalue()[text.getvalue().index("<svg") :]
