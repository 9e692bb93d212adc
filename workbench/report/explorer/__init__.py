"""The explorer: one conversation, the options that matter as controls, and what they do at once (WB-UI-03).

In: recordings and a configuration. Out: `Explorer`, which a notebook shows. What the controls say is `choices.py`, the
work in the background `work.py`, figures and words `views.py`; `panel.py` puts them together and holds no rules.
"""

from __future__ import annotations

from workbench.report.explorer.panel import Explorer, explore

__all__ = ["Explorer", "explore"]
