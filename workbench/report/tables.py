"""The tables of a page: configurations, causes of breaks, conversations, calls, runs.

In: an overview, runs, a selection of what is shown. Out: markup. Numbers stand to the right, an unknown one is a
dash whose tooltip gives the reason, red is for what needs action only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.evaluate.providers import CAUSES
from workbench.replay.trace import BREAK_CAUSES
from workbench.report.cache_words import (
    GAP_COLUMNS,
    NO_BREAK,
    REPORTED_COLUMNS,
    break_totals,
    gap_rows,
    gap_sentence,
    gaps_of,
    option_sentences,
    reported_of,
    reported_rows,
    reported_sentence,
)
from workbench.report.labels import UNKNOWN, counted, number, quoted, shorten
from workbench.report.markup import Content, Markup, element, joined
from workbench.report.overview import Cell, Overview, Row
from workbench.report.selection import MAX_CALL_ROWS, MAX_CONVERSATION_ROWS, MAX_PANELS, Selection
from workbench.report.shortening import COLUMNS, N_NAME_COLUMNS, shortening_sentences, shortenings, units

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs


def overview_table(view: Overview) -> Markup:
    """The configurations side by side, best first."""
    head = [element("th", "configuration", scope="col")]
    head += [element("th", column.title, scope="col", class_="number", title=column.doc) for column in view.columns]
    rows = [_overview_row(row, recommended=row.name == view.recommended) for row in view.rows]
    return _table(head, rows, class_="overview")


def _overview_row(row: Row, *, recommended: bool) -> Markup:
    # Spaces, because a notebook shows the table without the style sheet that sets tags and differences apart.
    tags = [joined([" ", element("span", tag, class_="tag")]) for tag in row.tags]
    cells = [element("th", element("span", row.name, class_="name"), *tags, scope="row")]
    cells += [_figure_cell(cell) for cell in row.cells]
    return element("tr", *cells, class_="recommended" if recommended else None)


def _figure_cell(cell: Cell) -> Markup:
    classes = ["number"]
    classes += ["unknown"] if cell.text == UNKNOWN else []
    classes += ["action"] if cell.needs_action else []
    change = joined([" ", element("span", cell.difference, class_="difference")]) if cell.difference else None
    return element("td", cell.text, change, class_=" ".join(classes), title=cell.note or None)


def _table(head: Sequence[Markup], rows: Iterable[Markup], *, class_: str | None = None) -> Markup:
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_=class_)
    return element("div", table, class_="wide")


def causes_section(runs: Runs, view: Overview) -> Markup:
    """Which cause cost how many cached tokens, per configuration (WB-CACHE-03)."""
    totals, by_rules = break_totals({row.name: runs[row.name] for row in view.rows})
    # From a dictionary and not from a set: ties keep the order of the runs, in every process.
    causes = sorted(
        dict.fromkeys(cause for total in totals.values() for cause in total),
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
            element("th", CAUSES.get(cause, cause), scope="row"),
            *(_cause_cell(totals[row.name].get(cause)) for row in view.rows),
        )
        for cause in causes
    ]
    meaning = "Lost tokens (calls): an earlier request still had them in the cache, and the call couldn't use them."
    if by_rules:
        meaning = "Lost tokens (calls): the provider would have read them from its cache after a call that only adds."
    options = (element("p", text) for text in option_sentences(runs, totals))
    return joined([heading, *options, element("p", meaning, class_="muted"), _table(head, rows, class_="causes")])


def gaps_section(runs: Runs, view: Overview) -> Markup | None:
    """Pauses against the lifetime of the cache, under the recommended configuration; None without cache rules."""
    run = runs[view.recommended or view.rows[0].name]
    found = gaps_of(run)
    if found is None:
        return None
    return joined(
        [
            element("h2", "Pauses and the lifetime of the cache"),
            element("p", gap_sentence(run, found)),
            _plain_table(GAP_COLUMNS, gap_rows(found)),
        ]
    )


def reported_section(runs: Runs) -> Markup | None:
    """Predicted against reported tokens; None without reported ones (WB-CACHE-04)."""
    reported = reported_of(runs)
    if not reported:
        return None
    return joined(
        [
            element("h2", "Predicted and reported cache reads"),
            element("p", reported_sentence(reported)),
            _plain_table(REPORTED_COLUMNS, reported_rows(reported)[:MAX_CONVERSATION_ROWS]),
        ]
    )


def _plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """One column of names, then figures."""
    head = [element("th", title, scope="col", class_="number" if i else None) for i, title in enumerate(columns)]
    body = [
        element(
            "tr",
            element("th", shorten(name, 60), scope="row"),
            *(element("td", text, class_="number") for text in figures),
        )
        for name, *figures in rows
    ]
    return _table(head, body)


def shortening_section(runs: Runs, view: Overview) -> Markup | None:
    """What compaction and tailoring saved, pass by pass, and what that cost; None where neither is on."""
    found = shortenings(runs, [row.name for row in view.rows])
    if not found:
        return None
    head = [
        element("th", title, scope="col", class_=None if index < N_NAME_COLUMNS else "number")
        for index, title in enumerate(COLUMNS)
    ]
    rows = []
    for one in found[:MAX_CONVERSATION_ROWS]:
        cells = [shorten(text, 60) for text in one.cells]
        names = [element("td", text) for text in cells[:N_NAME_COLUMNS]]
        figures = [element("td", text, class_="number") for text in cells[N_NAME_COLUMNS:]]
        rows.append(element("tr", *names, *figures))
    more = len(found) - MAX_CONVERSATION_ROWS
    remark = f"{units(runs, found)}." + (f" {more} more rows are in the run files." if more > 0 else "")
    return joined(
        [
            element("h2", "What compaction and tailoring saved"),
            *(element("p", sentence) for sentence in shortening_sentences(found)),
            element("p", remark, class_="muted"),
            _table(head, rows),
        ]
    )


def _run_heading(name: str, meaning: str) -> Markup:
    """A configuration at the head of a column: short, the whole name on pointing at it."""
    return element("th", shorten(name, 26), scope="col", class_="number run", title=meaning)


def _cause_cell(total: tuple[int, int] | None) -> Markup:
    if total is None:
        return element("td", "0", class_="number muted")
    calls, lost = total
    return element("td", number(lost), element("span", f"({number(calls)})", class_="difference"), class_="number")


def conversations_section(shown: Selection) -> Markup:
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
    shown: Selection, row: Mapping[str, Any], per_run: Mapping[str, Mapping[str, tuple[int, int, int | None]]]
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


def calls_section(shown: Selection) -> Markup:
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
        cells.append(element("td", "" if cause in NO_BREAK else BREAK_CAUSES.get(str(cause), str(cause))))
        rows.append(element("tr", *cells, class_="overflow" if row.get("overflow") else None))
    return _table(head, rows, class_="calls")


def _amount_cell(value: Any) -> Markup:
    if value is None:
        return element("td", UNKNOWN, class_="number unknown", title="a first call has no earlier request")
    return element("td", f"{value:,}", class_="number")


def runs_section(runs: Runs, view: Overview) -> Markup:
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
    table = _table(head, rows, class_="runs")
    if len(rows) > MAX_PANELS:
        table = element("details", element("summary", counted(len(rows), "run")), table)
    return joined([element("h2", "Runs"), table])
