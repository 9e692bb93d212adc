"""One self-contained HTML file per comparison: what to take, the table, why, and what it can't show (WB-UI-04).

In: a run set. Out: a file that loads nothing, runs no script and holds every figure in light and dark. It is
written whole or not at all (REL-07); all text from outside goes through `markup.py` (SEC-07).
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from workbench.replay.trace import BREAK_CAUSES
from workbench.report.labels import UNKNOWN, counted, listed, number, quoted, share, shorten
from workbench.report.markup import Content, Markup, element, joined, verbatim
from workbench.report.overview import Cell, Overview, Row, overview, sentence, summary_source
from workbench.report.palette import in_dark
from workbench.report.stylesheet import style_with
from workbench.report.whole_file import write_whole

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs
    from workbench.report.plots.style import ReportFigure

# Figures and lists stop here; the page says so where it happens.
MAX_PANELS = 6
MAX_CONVERSATION_ROWS = 500
MAX_CALL_ROWS = 1_500

_NO_BREAK = frozenset({None, "", "first_call"})


def page(
    runs: Runs,
    path: str | Path,
    *,
    title: str | None = None,
    problems: Iterable[object] | None = None,
    notes: Iterable[str] = (),
    today: str | None = None,
) -> Path:
    """Write the report of a run set and return where it is.

    Args:
        runs: At least one run; the baseline without summaries should be among them.
        path: The file to write; its folder is made if need be.
        title: Replaces the computed heading.
        problems: What the loader couldn't read, one line each; without it the run set's own.
        notes: Further remarks for the reader, one paragraph each.
        today: Name of the configuration in production; without it the one called `today`.
    """
    document = html_document(runs, title=title, problems=problems, notes=notes, today=today)
    return write_whole(path, document)


def html_document(
    runs: Runs,
    *,
    title: str | None = None,
    problems: Iterable[object] | None = None,
    notes: Iterable[str] = (),
    today: str | None = None,
) -> str:
    """The text of the page; equal for equal runs, on any machine and at any time."""
    if not runs:
        return _document("No run to show", [element("h1", "No run to show")])
    found = list(getattr(runs, "problems", ()) if problems is None else problems)
    runs = {name: _ReadOnce(run) for name, run in runs.items()}
    view = overview(runs, today=today)
    heading = title or view.heading
    shown = _Shown.of(runs, view)
    body = [
        _theme_switch(),
        element("h1", heading),
        element("p", view.heading, class_="lead") if title else None,
        element("p", _provenance(runs, view), class_="muted"),
        overview_table(view),
        element("p", view.rule, class_="muted small") if len(view.rows) > 1 else None,
        *(element("p", remark, class_="remark") for remark in view.remarks),
        *(element("p", note) for note in notes),
        _problems(found),
        _why(shown),
        _what_each_did(runs, view),
        _causes(runs, view),
        _conversations(shown),
        _calls(shown),
        _limits(runs, view),
        _runs_footer(runs, view),
    ]
    return _document(heading, body)


class _ReadOnce:
    """A run whose tables are read once for the whole page: a stored run opens its file for every reading."""

    def __init__(self, run: RunLike) -> None:
        self.name, self.facts, self.config = run.name, run.facts, run.config
        self._run = run
        self._tables: dict[str, list[dict[str, Any]]] = {}

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        if table not in self._tables:
            self._tables[table] = self._run.rows(table)
        rows = self._tables[table]
        return rows if conversation is None else [row for row in rows if row["conversation"] == conversation]


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the page shows in detail: a few configurations, and the calls of the main one."""

    runs: Runs
    view: Overview
    names: tuple[str, ...]
    """Configurations of the figures and of the conversation table, in the order of the table."""
    main: str
    """The configuration whose calls are listed: the recommended one, else the first."""
    conversations: tuple[dict[str, Any], ...]
    """Rows of the conversations, most calls first."""
    with_calls: tuple[str, ...]
    """Conversations whose calls are listed."""

    @classmethod
    def of(cls, runs: Runs, view: Overview) -> _Shown:
        wanted = [name for name in (view.recommended, view.baseline, view.today) if name]
        wanted += [row.name for row in view.rows if row.name not in wanted]
        names = tuple(row.name for row in view.rows if row.name in wanted[:MAX_PANELS])
        main = view.recommended or view.rows[0].name
        rows = sorted(runs[main].rows("conversations"), key=lambda row: -(row.get("calls") or 0))
        listed_calls, room = [], MAX_CALL_ROWS
        for row in rows[:MAX_CONVERSATION_ROWS]:
            room -= row.get("calls") or 0
            if room < 0:
                break
            listed_calls.append(row["conversation"])
        return cls(runs, view, names, main, tuple(rows), tuple(listed_calls))

    def anchor(self, conversation: str) -> str:
        """Anchors are numbers: names from outside are no ids."""
        return f"calls-{self.with_calls.index(conversation) + 1}"


# --- first screen -----------------------------------------------------------------------------------------


def overview_table(view: Overview) -> Markup:
    """The configurations side by side, best first."""
    head = [element("th", "configuration", scope="col")]
    head += [element("th", column.title, scope="col", class_="number", title=column.doc) for column in view.columns]
    rows = [_overview_row(row, recommended=row.name == view.recommended) for row in view.rows]
    return _table(head, rows, class_="overview")


def _overview_row(row: Row, *, recommended: bool) -> Markup:
    tags = [element("span", tag, class_="tag") for tag in row.tags]
    cells = [element("th", element("span", row.name, class_="name"), *tags, scope="row")]
    cells += [_figure_cell(cell) for cell in row.cells]
    return element("tr", *cells, class_="recommended" if recommended else None)


def _figure_cell(cell: Cell) -> Markup:
    classes = ["number"]
    classes += ["unknown"] if cell.text == UNKNOWN else []
    classes += ["action"] if cell.needs_action else []
    change = element("span", cell.difference, class_="difference") if cell.difference else None
    return element("td", cell.text, change, class_=" ".join(classes), title=cell.note or None)


def _table(head: Sequence[Markup], rows: Iterable[Markup], *, class_: str | None = None) -> Markup:
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_=class_)
    return element("div", table, class_="wide")


def _provenance(runs: Runs, view: Overview) -> str:
    first = runs[view.rows[0].name]
    parts = [name for name in (_source_names(first.rows("conversations")),) if name]
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


def _why(shown: _Shown) -> Markup:
    from workbench.report import plots  # matplotlib loads only here

    chosen = {name: shown.runs[name] for name in shown.names}
    figures = [_figure(partial(plots.tokens_per_call, chosen))]
    checking = {name: run for name, run in chosen.items() if run.facts.get("checks")}
    if checking:
        figures.append(_figure(partial(plots.trigger_value, checking)))
    figures += [_figure(partial(plots.prefix_reuse, run)) for run in _telling_prefixes(shown)]
    if mapped := _mapped_run(shown):
        figures.append(_figure(partial(plots.firing_map, mapped)))
    left_out = len(shown.runs) - len(shown.names)
    remark = "Each panel is one configuration on the same recorded conversation, the one with the most calls."
    if left_out:
        remark += f" The figures show {len(shown.names)} configurations; {left_out} more stand in the table only."
    return joined([element("h2", "Why", id="why"), element("p", remark, class_="muted"), *figures])


def _telling_prefixes(shown: _Shown) -> list[RunLike]:
    """The main configuration and the one that loses most of its cached prefix, if that is another."""
    losing = max(shown.names, key=lambda name: _lost_share(shown.runs[name]))
    return [shown.runs[name] for name in dict.fromkeys((shown.main, losing))]


def _lost_share(run: RunLike) -> float:
    reuse = run.facts.get("prefix_reuse")
    return 1.0 - reuse if reuse is not None else 0.0


def _mapped_run(shown: _Shown) -> RunLike | None:
    """The run of the firing map: the main one if it checks a trigger, else the one that fires most."""
    order = sorted(shown.names, key=lambda name: (name != shown.main, -(shown.runs[name].facts.get("firings") or 0)))
    return next((shown.runs[name] for name in order if shown.runs[name].facts.get("checks")), None)


def _figure(draw: Callable[..., ReportFigure]) -> Markup:
    """One figure in both themes; the style sheet shows the one that fits."""
    figure = draw(theme="light")
    light = _svg(figure)
    # Pixels inside a figure have no colour names: such a figure is drawn anew.
    dark = _svg(draw(theme="dark")) if figure.has_pixels else in_dark(light)
    return element("figure", _picture(figure, light, "on-light"), _picture(figure, dark, "on-dark"))


def _picture(figure: ReportFigure, svg: str, class_: str) -> Markup:
    width, height = (str(round(inches * 100)) for inches in figure.get_size_inches())
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return element("img", src=address, alt=figure.finding, width=width, height=height, class_=class_)


def _svg(figure: ReportFigure) -> str:
    """The figure with its text as outlines: no face of the reader's machine is needed."""
    import matplotlib as mpl  # loads only for figures

    picture = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "workbench", "svg.image_inline": True}):
        figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return picture.getvalue()


def _what_each_did(runs: Runs, view: Overview) -> Markup:
    baseline = runs[view.baseline] if view.baseline else None
    lines = [element("li", sentence(runs[row.name], baseline)) for row in view.rows]
    return joined([element("h2", "What each configuration did"), element("ul", *lines, class_="plain")])


def _causes(runs: Runs, view: Overview) -> Markup:
    """Which cause cost how many cached tokens, per configuration (WB-CACHE-03)."""
    totals = {row.name: _break_totals(runs[row.name]) for row in view.rows}
    causes = sorted(
        {cause for total in totals.values() for cause in total},
        key=lambda cause: -sum(total.get(cause, (0, 0))[1] for total in totals.values()),
    )
    heading = element("h2", "What broke the cached prefix")
    if not causes:
        return joined([heading, element("p", "Nothing did: no request broke an earlier one's prefix.")])
    head = [element("th", "cause", scope="col")]
    head += [_run_heading(row.name, row.name) for row in view.rows]
    rows = [
        element(
            "tr",
            element("th", BREAK_CAUSES.get(cause, cause), scope="row"),
            *(_cause_cell(totals[row.name].get(cause)) for row in view.rows),
        )
        for cause in causes
    ]
    meaning = "Lost tokens (calls): an earlier request still had them in the cache, and the call couldn't use them."
    return joined([heading, element("p", meaning, class_="muted"), _table(head, rows)])


def _run_heading(name: str, meaning: str) -> Markup:
    """A configuration at the head of a column: short, the whole name on pointing at it."""
    return element("th", shorten(name, 26), scope="col", class_="number run", title=meaning)


def _break_totals(run: RunLike) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for row in run.rows("calls"):
        cause = row.get("break_cause")
        if cause is not None and cause not in _NO_BREAK:
            calls, lost = totals.get(cause, (0, 0))
            totals[cause] = (calls + 1, lost + (row.get("lost_tokens") or 0))
    return totals


def _cause_cell(total: tuple[int, int] | None) -> Markup:
    if total is None:
        return element("td", "0", class_="number muted")
    calls, lost = total
    return element("td", number(lost), element("span", f"({number(calls)})", class_="difference"), class_="number")


# --- conversations and calls ------------------------------------------------------------------------------


def _conversations(shown: _Shown) -> Markup:
    """One row per conversation: peak and firings under each shown configuration, a link to its calls."""
    per_run = {name: _by_conversation(shown.runs[name]) for name in shown.names}
    head = [element("th", "conversation", scope="col"), element("th", "calls", scope="col", class_="number")]
    head += [_run_heading(name, f"{name}: largest prompt in tokens, summaries written") for name in shown.names]
    rows = [_conversation_row(shown, row, per_run) for row in shown.conversations[:MAX_CONVERSATION_ROWS]]
    more = len(shown.conversations) - MAX_CONVERSATION_ROWS
    remark = "Largest prompt in tokens, and how many summaries were written."
    if more > 0:
        remark += f" The {MAX_CONVERSATION_ROWS} with the most calls; {more} more are in the run files."
    return joined(
        [element("h2", "Conversations", id="conversations"), element("p", remark, class_="muted"), _table(head, rows)]
    )


def _by_conversation(run: RunLike) -> dict[str, tuple[int, int, int | None]]:
    """Largest prompt, written summaries and window per conversation."""
    figures: dict[str, tuple[int, int, int | None]] = {}
    for row in run.rows("calls"):
        peak, written, _ = figures.get(row["conversation"], (0, 0, None))
        figures[row["conversation"]] = (max(peak, row.get("prompt_tokens") or 0), written, row.get("window"))
    for row in run.rows("summaries"):
        if row.get("status") == "written" and row["conversation"] in figures:
            peak, written, window = figures[row["conversation"]]
            figures[row["conversation"]] = (peak, written + 1, window)
    return figures


def _conversation_row(
    shown: _Shown, row: Mapping[str, Any], per_run: Mapping[str, Mapping[str, tuple[int, int, int | None]]]
) -> Markup:
    conversation = row["conversation"]
    name: Content = shorten(conversation, 60)
    if conversation in shown.with_calls:
        name = element("a", name, href=f"#{shown.anchor(conversation)}")
    cells = [element("th", name, scope="row"), element("td", number(row.get("calls") or 0), class_="number")]
    for run_name in shown.names:
        figures = per_run[run_name].get(conversation)
        if figures is None:
            cells.append(element("td", UNKNOWN, class_="number unknown", title="no call in this run"))
            continue
        peak, written, window = figures
        over = window is not None and peak > window
        cells.append(
            element(
                "td",
                element("span", number(peak), class_="action" if over else None),
                element("span", f"▼ {written}", class_="difference") if written else None,
                class_="number",
            )
        )
    return element("tr", *cells)


def _calls(shown: _Shown) -> Markup:
    """Every call of the longest conversations under the main configuration, folded."""
    by_conversation: dict[str, list[Mapping[str, Any]]] = {}
    for row in shown.runs[shown.main].rows("calls"):
        by_conversation.setdefault(row["conversation"], []).append(row)
    summaries = {
        (row["conversation"], row.get("call"))
        for row in shown.runs[shown.main].rows("summaries")
        if row.get("status") == "written"
    }
    blocks = [
        element(
            "details",
            element("summary", shorten(conversation, 80), f" · {counted(len(calls), 'call')}"),
            element("div", _call_table(calls, summaries), id=shown.anchor(conversation)),
        )
        for conversation in shown.with_calls
        if (calls := by_conversation.get(conversation))
    ]
    if not blocks:
        return joined([])
    left_out = len(shown.conversations) - len(shown.with_calls)
    remark = f"Under {quoted(shown.main)}. ▼ = the first call that sees a new summary."
    if left_out:
        remark += (
            f" The longest conversations, up to {number(MAX_CALL_ROWS)} calls; {left_out} more are in the run file."
        )
    return joined([element("h2", "Calls"), element("p", remark, class_="muted"), *blocks])


_CALL_COLUMNS = (
    ("prompt", "prompt_tokens"),
    ("system", "system_tokens"),
    ("schemas", "schema_tokens"),
    ("summary", "summary_tokens"),
    ("history", "history_tokens"),
    ("tool results", "tool_result_tokens"),
    ("current", "current_tokens"),
    ("reused", "prefix_tokens"),
    ("lost", "lost_tokens"),
)


def _call_table(calls: Sequence[Mapping[str, Any]], summaries: set[tuple[str, Any]]) -> Markup:
    head = [element("th", "call", scope="col", class_="number")]
    head += [element("th", title, scope="col", class_="number") for title, _ in _CALL_COLUMNS]
    head.append(element("th", "the prefix broke because", scope="col"))
    rows = []
    for row in calls:
        new_summary = (row["conversation"], row.get("call")) in summaries
        mark = element("span", "▼ ", class_="firing") if new_summary else None
        cells = [element("td", mark, number(row.get("call") or 0), class_="number")]
        cells += [_amount_cell(row.get(column)) for _, column in _CALL_COLUMNS]
        cause = row.get("break_cause")
        cells.append(element("td", "" if cause in _NO_BREAK else BREAK_CAUSES.get(str(cause), str(cause))))
        rows.append(element("tr", *cells, class_="overflow" if row.get("overflow") else None))
    return _table(head, rows, class_="calls")


def _amount_cell(value: Any) -> Markup:
    if value is None:
        return element("td", UNKNOWN, class_="number unknown", title="a first call has no earlier request")
    return element("td", f"{value:,}", class_="number")


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
    if view.recommended:
        lines.append(
            f"Money: {view.rule.split(';', 1)[-1].strip()} The provider's minimum lengths, lifetimes and write prices "
            "aren't in it."
        )
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


def _runs_footer(runs: Runs, view: Overview) -> Markup:
    head = [element("th", title, scope="col") for title in ("configuration", "run", "configuration hash", "data hash")]
    rows = []
    for row in view.rows:
        facts = runs[row.name].facts
        cells = [element("td", row.name)]
        cells += [
            element("td", str(facts.get(key) or UNKNOWN), class_="hash")
            for key in ("run_id", "config_hash", "data_hash")
        ]
        rows.append(element("tr", *cells))
    return joined([element("h2", "Runs"), _table(head, rows)])


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
