"""What was lost, in words and tables: recall per configuration, chance control, examples (WB-RET-01b, -03).

In: runs. Out: the section of the page, and its words for figures. A share stands only where there are facts enough
for one; else the counts, and what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.errors import NotEnoughDataError
from workbench.evaluate.kept import survival_of
from workbench.evaluate.retention import LostFact, Recall, Retention, SurvivalPoint, retention
from workbench.replay.needed import MAX_CHANCE, MIN_CONVERSATIONS, MIN_FACTS
from workbench.replay.needed_states import LOST, RECOVERABLE, VISIBLE_RAW, VISIBLE_SUMMARY
from workbench.report.labels import UNKNOWN, counted, listed, number, percent, quoted, share, shorten
from workbench.report.markup import Markup, element, joined
from workbench.report.overview import Overview, summary_source

if TYPE_CHECKING:
    from workbench.report.frames import Runs

MAX_EXAMPLES = 12
_STEPS = {
    "summary": "the summary",
    "summary_input_cut": "the cut of what the summary model read",
    "policy": "compaction pass 0",
    "historical": "compaction pass 1",
    "oversized": "compaction pass 2",
    "resume_tail": "the resume tail",
    "tailoring": "tailoring",
    "history_limit": "the history limit",
    "event_limit": "the event limit",
    "session_expired": "the end of an expired session",
    "branch": "the filter of another agent",
    "timeline": "the filter of another request",
    "foreign": "the retelling of another agent's message",
    "pairing": "the pairing of calls and results",
    "not_stored": "the session, which never had it",
}


def step_in_words(step: str) -> str:
    """What removed a fact."""
    return _STEPS.get(step, step.replace("_", " "))


def facts_section(runs: Runs, view: Overview) -> Markup | None:
    """Recall with floor and interval, the chance control, and lost facts; None where no run looked for any."""
    kept = {row.name: retention(runs[row.name]) for row in view.rows}
    first = next(iter(kept.values()))
    if not any(one.rows for one in kept.values()):
        return None
    return joined(
        [
            element("h2", "What was lost", id="facts"),
            element("p", _meaning(runs, first), class_="muted"),
            _recall_table(kept),
            _shortage(first),
            _chance_table(first),
            *(_survival_table(name, one) for name, one in kept.items()),
            *(_examples(name, one) for name, one in kept.items()),
        ]
    )


def _meaning(runs: Runs, first: Retention) -> str:
    words = (
        "A needed fact is a string that the recorded answer used and that was said well before it. Visible: the "
        "request still says it, in a message or in its summary."
    )
    if any(summary_source(run) == "extractive" for run in runs.values()):
        words += (
            " The floor is the recall with empty summaries. The extractive source picks facts by the same rules that "
            "count them here, so its recall is a ceiling: a model's summaries lie between the two, and only a "
            "cassette or a live model gives the value."
        )
    if first.left_out:
        words += f" Not counted: class {listed(first.left_out)}."
    return words


_HEADS = ("configuration", "needed", "in a message", "only in the summary", "by a search", "lost", "floor", "recall")


def _recall_table(kept: dict[str, Retention]) -> Markup:
    head = [element("th", _HEADS[0], scope="col")]
    head += [element("th", title, scope="col", class_="number") for title in _HEADS[1:]]
    rows = []
    for name, one in kept.items():
        states = one.states
        cells = [element("th", shorten(name, 60), scope="row")]
        figures = [len(one.headline), *(states[s] for s in (VISIBLE_RAW, VISIBLE_SUMMARY, RECOVERABLE))]
        cells += [element("td", number(value), class_="number") for value in figures]
        cells.append(element("td", number(states[LOST]), class_="number action" if states[LOST] else "number"))
        cells += [_share_cell(one, "floor"), _share_cell(one, "recall")]
        rows.append(element("tr", *cells))
    return _wide(head, rows)


def _share_cell(one: Retention, which: str) -> Markup:
    try:
        recall: Recall = one.floor() if which == "floor" else one.recall()
    except NotEnoughDataError as error:
        return element("td", UNKNOWN, class_="number unknown", title=str(error))
    interval = element("span", f" {share(recall.low)} to {share(recall.high)}", class_="difference")
    return element("td", share(recall.share), interval, class_="number", title="95 % interval over conversations")


def _shortage(first: Retention) -> Markup | None:
    try:
        first.recall()
    except NotEnoughDataError as error:
        return element(
            "p",
            f"No share: it takes {MIN_FACTS} facts from {MIN_CONVERSATIONS} conversations, and there are too few "
            f"({error}).",
            class_="remark",
        )
    return None


def _chance_table(first: Retention) -> Markup:
    if not first.chance:
        words = "No chance control: it compares each conversation with the one before it, and there is only one."
        return element("p", words, class_="remark")
    head = [element("th", "class", scope="col")]
    head += [element("th", title, scope="col", class_="number") for title in ("needed", "by chance", "share")]
    head.append(element("th", "", scope="col"))
    rows = [
        element(
            "tr",
            element("th", one.kind, scope="row"),
            element("td", number(one.needed), class_="number"),
            element("td", number(one.by_chance), class_="number"),
            element("td", UNKNOWN if one.share is None else percent(one.share), class_="number"),
            element("td", "left out" if one.is_left_out else ""),
        )
        for one in first.chance
    ]
    words = (
        "Chance control: how many facts the same answers would need of another conversation's history. A class above "
        f"{percent(MAX_CHANCE)} is left out."
    )
    return joined([element("h3", "How much of it is chance"), element("p", words, class_="muted"), _wide(head, rows)])


def _survival_table(name: str, one: Retention) -> Markup | None:
    """How recall decays with each further summary; None where no fact went through one."""
    points = survival_of(one)
    if not points:
        return None
    head = [element("th", title, scope="col", class_="number" if i else None) for i, title in enumerate(SURVIVAL_HEAD)]
    rows = []
    for point in points:
        kind, *figures = survival_cells(point)
        cells = [element("td", text, class_="number") for text in figures]
        rows.append(element("tr", element("th", kind, scope="row"), *cells))
    words = f"{quoted(name)}: facts that only a summary can say, by how many summaries in a row they went through"
    return element("details", element("summary", words), _wide(head, rows))


SURVIVAL_HEAD = ("class", "summaries gone through", "needed", "still said", "share")


def survival_cells(point: SurvivalPoint) -> list[str]:
    """One line of the decay of recall (WB-RET-05)."""
    still = UNKNOWN if point.share is None else share(point.share)
    figures = (point.summaries, sum(point.needed), sum(point.visible))
    return [point.kind or "all that count", *map(number, figures), still]


def _examples(name: str, one: Retention) -> Markup | None:
    examples = one.examples(MAX_EXAMPLES)
    if not examples:
        return None
    head = [
        element("th", title, scope="col")
        for title in ("fact", "class", "conversation", "first said", "needed", "taken by")
    ]
    rows = [element("tr", *(element("td", text) for text in _example_cells(fact))) for fact in examples]
    lost = counted(one.states[LOST], "lost fact")
    return element(
        "details",
        element("summary", f"{quoted(name)}: {lost}, {_steps_in_words(one)}"),
        _wide(head, rows),
    )


def _example_cells(fact: LostFact) -> Sequence[str]:
    return (
        shorten(fact.value, 60),
        fact.kind,
        shorten(fact.conversation, 40),
        f"event {fact.source_position}, {fact.source_role}",
        f"call {fact.call}",
        step_in_words(fact.step),
    )


def _steps_in_words(one: Retention) -> str:
    steps = list(one.lost_by_step().items())[:3]
    return "; ".join(f"{n:,} taken by {step_in_words(step)}" for step, n in steps)


def _wide(head: Sequence[Markup], rows: Sequence[Markup]) -> Markup:
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    return element("div", table, class_="wide")
