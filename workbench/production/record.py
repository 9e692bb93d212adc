"""The decision record: what was compared, on which data, with which result, and what a replay can't show (WB-EXP-01).

In: a configuration and its stamp. Out: Markdown. Names and texts of configurations and recordings are shown as text:
nothing in them becomes a heading, a link or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from workbench.config import RunConfig, option_named, options, toml_value
from workbench.evaluate.compare import MIN_CONVERSATIONS
from workbench.evaluate.evidence import Evidence
from workbench.evaluate.net import NET_RULE
from workbench.production.stamp import (
    NO_INTERVALS,
    PROGRAM,
    UNKNOWN,
    Stamp,
    change_words,
    counter_words,
    figure_words,
    one_line,
)

CANNOT_SHOW = (
    "How the model would have acted on another context: it answers as it was recorded, tool calls included.",
    "Tokens per task: an agent that forgot something may ask again, which costs calls that no recording has.",
    "How conversations wait for each other in the summary queue: each one was replayed alone.",
    "What the provider's cache really does: its rules were simulated as published.",
)
_EXTRACTIVE = (
    "How good a model's summaries are: these were written by rule, without a model, so facts that a request still "
    "says are a ceiling."
)
_SIZED = "What a summary says: these had a given length and no content."
_MAX_CHARS = 80


def record_text(config: RunConfig, stamp: Stamp) -> str:
    """The record."""
    return "\n".join(_lines(config, stamp)).rstrip() + "\n"


def _lines(config: RunConfig, stamp: Stamp) -> Iterator[str]:
    evidence = stamp.evidence
    yield f"# Decision: {_text(stamp.name)} goes to production"
    yield ""
    yield _decision(evidence)
    yield ""
    yield from _bullets(
        f"Configuration: {_text(stamp.name)}, profile {stamp.profile}, hash `{stamp.config_hash}`",
        f"Counter it was tuned with: {_text(counter_words(stamp.counter))}",
        f"Exported on {stamp.date} by {PROGRAM} {stamp.version}",
    )
    if evidence is not None:
        yield from _data(evidence)
        yield from _compared(evidence)
        yield from _result(evidence)
    yield from _watch(evidence)
    yield from _settings(config)
    yield from _limits(config)


def _decision(evidence: Evidence | None) -> str:
    if evidence is None:
        return "It was exported without a replay: nothing is known about what it does."
    if evidence.unreachable:
        return f"**It never fires on these recordings** and was exported all the same: {_text(evidence.unreachable)}."
    if not evidence.reference:
        return "It was replayed, and compared with nothing."
    said = f"Against {_text(evidence.reference)} it is {evidence.verdict}."
    return f"{said} Why it: {_text(evidence.reason)}." if evidence.reason else said


def _data(evidence: Evidence) -> Iterator[str]:
    yield "\n## On which data\n"
    yield from _bullets(
        f"{evidence.conversations:,} conversations, {evidence.events:,} events, {evidence.calls:,} model requests",
        f"Data hash `{evidence.data_hash}`",
        f"Run {_text(evidence.run_id)}, configuration hash `{evidence.config_hash}`",
    )


def _compared(evidence: Evidence) -> Iterator[str]:
    yield "\n## What was compared\n"
    heads = ("configuration", "run", "net tokens", "prompt tokens", "firings", "summaries", "requests over the window")
    rows = [
        (
            f"**{_text(one.name)}**" if one.name == evidence.run else _text(one.name),
            _text(one.run_id),
            _count(one.net_tokens),
            _count(one.prompt_tokens),
            _count(one.firings),
            _count(one.summaries),
            _count(one.overflow_calls),
        )
        for one in evidence.compared
    ]
    yield from _table(heads, rows, n_texts=2)
    yield ""
    yield f"{NET_RULE[0].upper()}{NET_RULE[1:]}."


def _result(evidence: Evidence) -> Iterator[str]:
    yield "\n## With which result\n"
    if evidence.conversations < MIN_CONVERSATIONS:
        yield f"{NO_INTERVALS}\n"
    yield from _table(
        ("figure", "value, with 95 % interval"), [(one.doc, figure_words(one)) for one in evidence.figures], n_texts=2
    )
    if evidence.changes:
        yield f"\nAgainst {_text(evidence.reference)}, paired by conversation:\n"
        rows = [(one.doc, change_words(one)) for one in evidence.changes]
        yield from _table(("figure", "change, with 95 % interval"), rows, n_texts=2)
    if evidence.warnings:
        yield "\nWarnings:\n"
        yield from _bullets(*map(_text, evidence.warnings))


def _watch(evidence: Evidence | None) -> Iterator[str]:
    yield "\n## To watch in production\n"
    if evidence is None:
        yield "Firings per 100 model requests, the cached share of prompt tokens, requests over the context window: no"
        yield "replay says what to expect."
        return
    yield "Values far from these mean that production isn't what was replayed:\n"
    yield from _table(
        ("figure", "in the replay"), [(one.doc, figure_words(one)) for one in evidence.watched], n_texts=2
    )


def _settings(config: RunConfig) -> Iterator[str]:
    yield "\n## What differs from the defaults\n"
    known = {option.path for option in options()}
    rows = []
    for path, value in _leaves(config):
        about = option_named(path) if path in known else None
        default, doc = (about.default, about.doc) if about else ("", "")
        rows.append((f"`{path}`", _code(value), _code(default) if default else "", _text(_sentence(doc))))
    if rows:
        yield from _table(("option", "value", "default", "meaning"), rows, n_texts=4)
    else:
        yield "Nothing."
    yield "\nThe whole configuration:\n"
    text = config.to_toml().rstrip("\n")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    yield f"{fence}toml"
    yield text
    yield fence


def _leaves(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Dotted path and value of each option that isn't at its default; a trigger tree is one value."""
    for table, values in config.to_values().items():
        if table == "name":
            continue
        if isinstance(values, dict) and table != "trigger":
            if not values:
                yield table, "{ }"
            for name, value in values.items():
                yield f"{table}.{name}", toml_value(value)
        else:
            yield table, toml_value(values)


def _limits(config: RunConfig) -> Iterator[str]:
    yield "\n## What a replay can't show\n"
    of_summaries = {"extractive": (_EXTRACTIVE,), "sized": (_SIZED,)} if config.summarizer is not None else {}
    yield from _bullets(*CANNOT_SHOW, *of_summaries.get(config.summaries.source, ()))


# --- Markdown -----------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Text that stays text: every mark of Markdown and HTML is escaped."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&])", r"\\\1", one_line(text)).replace("://", ":\\//")


def _code(text: str) -> str:
    """A value in a code span inside a table; long ones are cut, the whole text stands below."""
    line = one_line(text)
    line = line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}".replace("|", "\\|")


def _sentence(doc: str) -> str:
    """The first sentence, without sources."""
    first = re.split(r"(?<=[.;:])\s", doc, maxsplit=1)[0]
    return re.sub(r"\s*\(?\b(?:SUM|ASM|WB|REL|SEC|DA|D)-?[A-Z]*-?\d+[^)]*\)?", "", first).rstrip(".;: ")


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _bullets(*items: str) -> Iterator[str]:
    return (f"- {item}" for item in items)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, n_texts: int) -> Iterator[str]:
    """Rows of a table; the columns behind the first `n_texts` are numbers."""
    marks = ["---" if i < n_texts else "---:" for i in range(len(heads))]
    return (f"| {' | '.join(row)} |" for row in (heads, marks, *rows))
