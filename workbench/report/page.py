"""One self-contained HTML file per comparison: what to take, the table, why, and what it can't show (WB-UI-04).

In: a run set. Out: a file that loads nothing, runs no script and holds every figure in light and dark. It is
written whole or not at all (REL-07); all text from outside goes through `markup.py` (SEC-07).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from workbench.evaluate.net import NET_RULE
from workbench.recordings.joining import is_joined
from workbench.report.cache_words import break_totals
from workbench.report.comparison import comparison_section
from workbench.report.facts import facts_section
from workbench.report.labels import counted, listed, quoted, share, shorten, unbroken
from workbench.report.markup import Content, Markup, element, joined, verbatim
from workbench.report.overview import Overview, conversations_of, overview, sentence, summary_source
from workbench.report.palette import in_dark
from workbench.report.pictures import picture, svg_of
from workbench.report.selection import ReadOnce, Selection
from workbench.report.stylesheet import style_with
from workbench.report.tables import (
    calls_section,
    causes_section,
    conversations_section,
    gaps_section,
    overview_table,
    reported_section,
    runs_section,
    shortening_section,
)
from workbench.report.whole_file import write_whole

if TYPE_CHECKING:
    from workbench.evaluate.compare import Comparison
    from workbench.report.frames import RunLike, Runs
    from workbench.report.plots.style import ReportFigure


def page(
    runs: Runs,
    path: str | Path,
    *,
    title: str | None = None,
    problems: Iterable[object] | None = None,
    notes: Iterable[str] = (),
    today: str | None = None,
    comparison: Comparison | None = None,
) -> Path:
    """Write the report of a run set and return where it is.

    Args:
        runs: At least one run; the baseline without summaries should be among them.
        path: The file to write; its folder is made if need be.
        title: Replaces the computed heading.
        problems: What the loader couldn't read, one line each; without it the run set's own.
        notes: Further remarks for the reader, one paragraph each.
        today: Name of the configuration in production; without it the one called `today`.
        comparison: What `compare` found about these runs.
    """
    document = html_document(runs, title=title, problems=problems, notes=notes, today=today, comparison=comparison)
    return write_whole(path, document)


def html_document(
    runs: Runs,
    *,
    title: str | None = None,
    problems: Iterable[object] | None = None,
    notes: Iterable[str] = (),
    today: str | None = None,
    comparison: Comparison | None = None,
) -> str:
    """The text of the page; equal for equal runs, on any machine and at any time."""
    if not runs:
        return _document("No run to show", [element("h1", "No run to show")])
    found = list(getattr(runs, "problems", ()) if problems is None else problems)
    runs = {name: ReadOnce(run) for name, run in runs.items()}
    view = overview(runs, today=today, decision=None if comparison is None else comparison.decision)
    heading = unbroken(title or view.heading)
    shown = Selection.of(runs, view)
    # Dozens of configurations, as of a sweep, are compared in the table; one by one only those of the figures are.
    detailed = replace(view, rows=tuple(row for row in view.rows if row.name in shown.names))
    body = [
        _theme_switch(),
        element("h1", heading),
        element("p", unbroken(view.heading), class_="lead") if title else None,
        element("p", unbroken(view.reason), class_="lead") if view.reason else None,
        element("p", _provenance(runs, view), class_="muted"),
        overview_table(view),
        element("p", view.rule, class_="muted small") if len(view.rows) > 1 else None,
        *(element("p", unbroken(remark), class_="remark") for remark in view.remarks),
        *(element("p", note) for note in notes),
        _problems(found),
        _why(shown),
        _what_each_did(runs, detailed),
        None if comparison is None else comparison_section(comparison, shown.names),
        facts_section(runs, detailed),
        causes_section(runs, detailed),
        gaps_section(runs, view),
        reported_section(runs),
        shortening_section(runs, detailed),
        conversations_section(shown),
        calls_section(shown),
        _limits(runs, detailed),
        runs_section(runs, view),
    ]
    return _document(heading, body)


# --- first screen -----------------------------------------------------------------------------------------


def _provenance(runs: Runs, view: Overview) -> str:
    first = runs[view.rows[0].name]
    parts = [name for name in (_source_names(first.rows("conversations")),) if name]
    n_joined = sum(is_joined(str(row.get("format"))) for row in first.rows("conversations"))
    parts += [f"{counted(n_joined, 'conversation')} joined of short dialogues"] if n_joined else []
    return " · ".join([*parts, view.provenance, _dates(first)])


def _source_names(rows: Iterable[Mapping[str, Any]]) -> str:
    """The recording files by name; by folder where they all have the same name."""
    sources = (str(row["source"]).replace("\\", "/") for row in rows if row.get("source"))
    paths = dict.fromkeys(PurePosixPath(re.sub(r"(:\d+)+$", "", source)) for source in sources)
    names = dict.fromkeys(path.name for path in paths)
    if len(names) < len(paths):
        names = dict.fromkeys(path.parent.name or path.name for path in paths)
    known = [shorten(name, 40) for name in names if name]
    return listed(known) if len(known) <= 3 else f"{len(known)} recording files"


def _dates(run: RunLike) -> str:
    """When the recorded calls took place, not when this page was made."""
    conversations = run.rows("conversations")
    if conversations and all(row.get("assumed_time") for row in conversations):
        return "recorded without times (assumed clock)"
    times = [row["time_ns"] for row in run.rows("calls") if row.get("time_ns")]
    if not times:
        return "recorded at an unknown date"
    first, last = (datetime.fromtimestamp(ns / 1e9, UTC).date().isoformat() for ns in (min(times), max(times)))
    when = first if first == last else f"{first} to {last}"
    partly = " (in part an assumed clock)" if any(row.get("assumed_time") for row in conversations) else ""
    return f"recorded {when}{partly}"


def _problems(problems: Sequence[object]) -> Markup | None:
    if not problems:
        return None
    lines = [element("li", str(problem)) for problem in problems[:50]]
    if len(problems) > 50:
        lines.append(element("li", f"… and {len(problems) - 50} more"))
    return element(
        "details",
        element("summary", f"{counted(len(problems), 'problem')} in the recordings", class_="action"),
        element("ul", *lines),
    )


# --- why --------------------------------------------------------------------------------------------------


def _why(shown: Selection) -> Markup:
    from workbench.report import plots  # matplotlib loads only here

    chosen = {name: shown.runs[name] for name in shown.names}
    figures = []
    if len(shown.runs) > 1 and any(one.cost is not None for one in shown.view.decision.standings):
        figures.append(_figure(partial(plots.cost_recall, shown.runs, decision=shown.view.decision)))
    figures.append(_figure(partial(plots.tokens_per_call, chosen)))
    checking = {name: run for name, run in chosen.items() if run.facts.get("checks")}
    if checking:
        figures.append(_figure(partial(plots.trigger_value, checking)))
    figures += [_figure(partial(plots.prefix_reuse, run)) for run in _telling_prefixes(shown)]
    if len(chosen) > 1 and any(totals for totals in break_totals(chosen)[0].values()):
        figures.append(_figure(partial(plots.cache_breaks, chosen)))
    if mapped := _mapped_run(shown):
        figures.append(_figure(partial(plots.firing_map, mapped)))
    needing = {name: run for name, run in chosen.items() if run.rows("needed_facts")}
    if needing:
        figures.append(_figure(partial(plots.needed_facts, needing)))
    if shown.runs[shown.main].rows("coverage"):
        figures.append(_figure(partial(plots.coverage, shown.runs[shown.main])))
    left_out = len(shown.runs) - len(shown.names)
    remark = (
        "Each panel is one configuration; where a figure shows calls, they are those of the same recorded "
        "conversation, the one with the most calls."
    )
    if left_out:
        remark += (
            f" Figures and what follows show {len(shown.names)} configurations; {left_out} more stand in the table only, "
            "and `workbench report --run` shows them."
        )
    return joined([element("h2", "Why", id="why"), element("p", remark, class_="muted"), *figures])


def _telling_prefixes(shown: Selection) -> list[RunLike]:
    """The main configuration and the one that loses most of its cached prefix, if that is another."""
    losing = max(shown.names, key=lambda name: _lost_share(shown.runs[name]))
    return [shown.runs[name] for name in dict.fromkeys((shown.main, losing))]


def _lost_share(run: RunLike) -> float:
    reuse = run.facts.get("prefix_reuse")
    return 1.0 - reuse if reuse is not None else 0.0


def _mapped_run(shown: Selection) -> RunLike | None:
    """The run of the firing map: the main one if it checks a trigger, else the one that fires most."""
    order = sorted(shown.names, key=lambda name: (name != shown.main, -(shown.runs[name].facts.get("firings") or 0)))
    return next((shown.runs[name] for name in order if shown.runs[name].facts.get("checks")), None)


def _figure(draw: Callable[..., ReportFigure]) -> Markup:
    """One figure in both themes; the style sheet shows the one that fits."""
    figure = draw(theme="light")
    light = svg_of(figure)
    # Pixels inside a figure have no colour names: such a figure is drawn anew.
    dark = svg_of(draw(theme="dark")) if figure.has_pixels else in_dark(light)
    return element("figure", picture(figure, light, "on-light"), picture(figure, dark, "on-dark"))


def _what_each_did(runs: Runs, view: Overview) -> Markup:
    baseline = runs[view.baseline] if view.baseline else None
    lines = [element("li", unbroken(sentence(runs[row.name], baseline))) for row in view.rows]
    of_all = None
    if view.reason and (n := conversations_of(runs)):
        of_all = element("p", f"Over all {counted(n, 'conversation')}, like the table.", class_="muted")
    return joined([element("h2", "What each configuration did"), of_all, element("ul", *lines, class_="plain")])


# --- what this can't show ---------------------------------------------------------------------------------


def _limits(runs: Runs, view: Overview) -> Markup:
    """WB-RPL-17: what no replay can tell, and what the figures of this one mean."""
    lines = [
        "How the model would have acted on the other context: it answers here as it was recorded, tool calls included.",
        "Fewer tokens per request need not be fewer per task: an agent that forgot something may ask or search again.",
        "Waiting of conversations for each other in the summary queue: each is replayed alone.",
    ]
    if any(summary_source(run) == "extractive" for run in runs.values()):
        lines.append(
            "How good a model's summaries are: here the extractive source wrote them, by rule and without a model. "
            "What they keep is a ceiling, and their length is the source's own; a cassette or a live model gives the "
            "real value."
        )
    if view.recommended and view.decision.currency is None:
        lines.append(f"Money: {NET_RULE}. The provider's minimum lengths, lifetimes and write prices aren't in it.")
    shares = _shares(runs, view)
    reuse = (
        "prefix reuse: reused tokens / tokens of the longest earlier request of the conversation that was still "
        "alive. 1.00 means that nothing cached went unused. Shorter prompts after a summary lower it too, so a low "
        "value alone is no fault: the table of causes says what was lost."
    )
    paid = f"prefix share: reused tokens / prompt tokens. A bill depends on it{f'; here {shares}' if shares else ''}."
    meanings = [reuse, paid]
    return joined(
        [
            element("h2", "What a replay can't show"),
            element("ul", *(element("li", line) for line in lines)),
            element("h3", "Two figures that are easily confused"),
            element("ul", *(element("li", line) for line in meanings)),
        ]
    )


def _shares(runs: Runs, view: Overview) -> str:
    known = [
        f"{quoted(row.name)} {share(value)}"
        for row in view.rows
        if (value := runs[row.name].facts.get("prefix_share")) is not None
    ]
    return ", ".join(known)


# --- the document -----------------------------------------------------------------------------------------


def _theme_switch() -> Markup:
    """Light, dark or as the reader's system has it; works by style alone."""
    parts = []
    for value, label in (("auto", "as the system"), ("light", "light"), ("dark", "dark")):
        checked = "" if value == "auto" else None
        parts.append(element("input", type="radio", name="theme", id=f"theme-{value}", checked=checked))
        parts.append(element("label", label, for_=f"theme-{value}"))
    return element("div", *parts, class_="themes", role="group", aria_label="colours of this page")


def _document(title: str, body: Iterable[Content]) -> str:
    from workbench.report.fonts import glyphs_for  # loads matplotlib's font list

    content = joined(body, verbatim("\n"))
    # Tags and data addresses are plain letters: what is wide comes from names and notes.
    style = style_with(glyphs_for(title + content))
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; img-src data:; font-src data:; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", verbatim(style)),
    )
    return (
        verbatim("<!DOCTYPE html>\n")
        + element("html", head, element("body", element("main", content)), lang="en")
        + "\n"
    )
