"""What runs kept, as a person reads it in the terminal: facts, survival, checks of summaries, probes (WB-RET-02 to -05).

In: `Kept` of one or more runs. Out: plain text; the section of the page is in `facts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workbench.errors import NotEnoughDataError
from workbench.evaluate.kept import CHECKS, Kept, SummaryFindings, shortage_of
from workbench.replay.needed_states import LOST, RECOVERABLE, VISIBLE, VISIBLE_SUMMARY
from workbench.report.facts import SURVIVAL_HEAD, step_in_words, survival_cells
from workbench.report.labels import counted, listed, number, percent, quoted, share, shorten
from workbench.report.terminal import LINE_WIDTH, broken, figures_table, text_table

MAX_EXAMPLES = 10


def kept_text(kept: Iterable[Kept]) -> str:
    """What `--facts` prints, one part per run."""
    return "\n\n".join("\n".join(_lines(one)) for one in kept)


def _lines(one: Kept) -> Iterator[str]:
    for line in (_facts_sentence(one), *_summary_sentences(one.summaries)):
        yield from broken(f"{quoted(one.run)}: {line}", LINE_WIDTH)
    if examples := one.retention.examples(MAX_EXAMPLES):
        yield ""
        rows = [
            [
                shorten(fact.value, 30),
                fact.kind,
                shorten(fact.conversation, 24),
                fact.source_position,
                fact.call,
                step_in_words(fact.step),
            ]
            for fact in examples
        ]
        yield from text_table(
            ("lost fact", "class", "conversation", "said in event", "needed at call", "taken by"), rows
        ).split("\n")
    if one.survival:
        yield ""
        yield from figures_table(SURVIVAL_HEAD, map(survival_cells, one.survival)).split("\n")
    if one.probes:
        yield ""
        yield from _probe_lines(one)


def _facts_sentence(one: Kept) -> str:
    found = one.retention
    n = len(found.headline)
    if not n:
        return "no later answer needed a fact of what was said well before it."
    visible = sum(found.states[state] for state in VISIBLE)
    said = f"{number(visible)} of {counted(n, 'needed fact')} visible"
    try:
        recall, floor = found.recall(), found.floor()
        said += f", recall {share(recall.share)} ({share(recall.low)} to {share(recall.high)}), {share(floor.share)} with empty summaries"
    except NotEnoughDataError:
        said += f"; no share of them: {shortage_of(found)}"
    lost = found.states[LOST]
    if lost:
        steps = listed(f"{number(n)} by {step_in_words(step)}" for step, n in found.lost_by_step().items())
        said += f"; {number(lost)} lost, taken out of sight: {steps}"
    return f"{said}."


def _summary_sentences(found: SummaryFindings | None) -> Iterator[str]:
    if found is None or not found.summaries:
        return
    faults = [f"{number(n)} {CHECKS[fault]}" for fault, n in found.faults.items() if n]
    said = listed(faults) if faults else "every check passed"
    rate = "" if found.invented_rate is None else f"; {percent(found.invented_rate)} of their numbers are invented"
    yield f"{counted(found.summaries, 'summary', 'summaries')} checked without a model: {said}{rate}."


def _probe_lines(one: Kept) -> Iterator[str]:
    """How many answers the request says, and those that it doesn't."""
    n = sum(state.is_visible for state in one.probes)
    in_summary = sum(state.state == VISIBLE_SUMMARY for state in one.probes)
    only = f", {number(in_summary)} of them only by the summary" if in_summary else ""
    yield from broken(
        f"{quoted(one.run)}: the requests answer {number(n)} of {counted(len(one.probes), 'probe')}{only}.", LINE_WIDTH
    )
    missing = [state for state in one.probes if not state.is_visible]
    if not missing:
        return
    rows = [
        [
            shorten(state.probe.id, 20),
            shorten(state.probe.question, 30),
            shorten(state.probe.answer, 18),
            state.call,
            "by a search" if state.state == RECOVERABLE else "lost",
            step_in_words(state.step),
        ]
        for state in missing[:MAX_EXAMPLES]
    ]
    yield from text_table(("probe", "question", "answer", "at call", "answer is", "taken by"), rows).split("\n")
    if len(missing) > MAX_EXAMPLES:
        yield f"… and {len(missing) - MAX_EXAMPLES} more; --json has them all"
