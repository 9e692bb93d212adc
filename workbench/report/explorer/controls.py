"""The explorer's controls: one widget per choice, and what each position means in words (WB-UI-03).

In: the choices of a configuration, conversations, configurations to compare with. Out: `make_controls`, widgets by the
name of the choice that they make, and a sentence for each position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from workbench.config import RunConfig
from workbench.recordings.types import Conversation
from workbench.report.explorer.choices import ALL, ANY, KEPT, TRIGGERS, Choices, steps_around
from workbench.report.explorer.views import duration_words
from workbench.report.labels import counted, number, percent, shorten

SIDE_PX = 348
_LABEL_PX = 122
_SHARES = tuple(n / 20 for n in range(1, 21))
_SILENCES_S = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
_DIFF, WHOLE_PROMPT = "diff", "whole"
WITH_WORDS = (*TRIGGERS, "runes_per_token", "mode", "words", "skip_recent", "result_tokens")
SLIDERS = {"silence": "silence_s"}
"""Triggers whose slider isn't called as they are."""


def layout_of(**style: str) -> widgets.Layout:
    return widgets.Layout(**style)


def slider_options(values: Sequence[float], name: str) -> list[tuple[str, float]]:
    words: Callable[[float], str] = {"share": percent, "silence_s": duration_words}.get(name, lambda v: f"{v:,}")
    return [(words(value), value) for value in dict.fromkeys(values)]


def make_controls(
    start: Choices, conversations: Sequence[Conversation], references: Sequence[RunConfig], base: RunConfig
) -> dict[str, Any]:
    """Every control by the name of the choice it makes."""
    wide, beside = layout_of(width=f"{SIDE_PX - 10}px"), layout_of(width=f"{SIDE_PX - _LABEL_PX - 10}px")
    label = {"description_width": f"{_LABEL_PX - 12}px"}

    def checkbox(words: str, *, on: bool, narrow: bool = False) -> widgets.Checkbox:
        layout = layout_of(width=f"{_LABEL_PX}px") if narrow else wide
        return widgets.Checkbox(value=on, description=words, indent=False, layout=layout)

    def choice(words: str, options: Sequence[Any], value: Any, layout: Any = wide) -> widgets.Dropdown:
        return widgets.Dropdown(options=options, value=value, description=words, style=label, layout=layout)

    def stepped(name: str, values: Sequence[float], value: float, words: str = "", layout: Any = beside) -> Any:
        options = slider_options(sorted({*values, value}), name)
        return widgets.SelectionSlider(options=options, value=value, description=words, style=label, layout=layout)

    combined = [("any of these", ANY), ("all of these", ALL)]
    if start.combine == KEPT:
        combined.insert(0, ("the file's own tree", KEPT))
    n_events = max(len(one.events) for one in conversations)
    longest = max(range(len(conversations)), key=lambda i: len(conversations[i].calls))
    names = [(f"{shorten(one.id, 30)} ({counted(len(one.calls), 'call')})", i) for i, one in enumerate(conversations)]
    return {
        "conversation": choice("conversation", names, longest),
        "against": choice("compared with", [(shorten(one.label(), 34), i) for i, one in enumerate(references)], 0),
        "summaries": checkbox("make summaries", on=start.summaries),
        "combine": choice("fires on", combined, start.combine),
        "on_event": checkbox("events", on="event" in start.on, narrow=True),
        "event": stepped("event", [int(n) for n in steps_around(2, 1, max(n_events, 10))], start.event),
        "on_token": checkbox("tokens", on="token" in start.on, narrow=True),
        "token": stepped("token", [int(n) for n in steps_around(100, 100, 200_000)], start.token),
        "on_share": checkbox("window share", on="share" in start.on, narrow=True),
        "share": stepped("share", _SHARES, start.share),
        "on_silence": checkbox("silence", on="silence" in start.on, narrow=True),
        "silence_s": stepped("silence_s", _SILENCES_S, start.silence_s),
        "counter": choice(
            "tokens are",
            [
                ("characters ÷ ratio", "runes"),
                (f"counted ({shorten(base.counter.encoding, 16)})", "tiktoken"),
                *([("characters by script", "scripts")] if start.counter == "scripts" else []),
            ],
            start.counter,
        ),
        "runes_per_token": widgets.FloatSlider(
            value=start.runes_per_token, min=min(0.8, start.runes_per_token), max=max(6.0, start.runes_per_token),
            step=0.1, readout_format=".1f", description="chars per token", style=label, layout=wide,
        ),
        "inject": checkbox("put it into", on=start.inject, narrow=True),
        "mode": widgets.Dropdown(
            options=[("the system message", "system"), ("the first user message", "user")],
            value=start.mode, layout=beside,
        ),
        "words": stepped("words", (0, 50, 80, 100, 150, 200, 250, 300, 400, 600, 1000), start.words, "words", wide),
        "skip_recent": stepped("skip_recent", (*range(13), 16, 20, 30, 40), start.skip_recent, "spare newest", wide),
        "intra_run": checkbox("also between the calls of one request", on=start.intra_run),
        "compact": checkbox("compact over", on=start.compact, narrow=True),
        "result_tokens": stepped(
            "result_tokens", (0, 50, 100, 200, 300, 500, 1024, 2048, 4096, 8192), start.result_tokens
        ),
        "call": widgets.IntSlider(value=0, min=0, max=0, description="call", style=label, layout=layout_of(width="520px")),
        "view": widgets.ToggleButtons(
            options=[("what differs", _DIFF), ("whole prompt", WHOLE_PROMPT)],
            value=_DIFF, style={"button_width": "110px"},
        ),
        "name": widgets.Text(
            value="explored", description="name", style=label, layout=layout_of(width=f"{SIDE_PX - 10}px")
        ),
    }  # fmt: skip


# --- words -----------------------------------------------------------------------------------------------


def counter_words(choices: Choices, found: dict[str, Any] | None) -> str:
    how = {
        "runes": f"{number(choices.token)} tokens are {number(choices.token * choices.runes_per_token)} characters",
        "tiktoken": "every text is tokenized",
        "scripts": "each script by its own ratio",
    }[choices.counter]
    if found is None or found["estimate_share"] is None:
        return how
    return f"{how}; {percent(found['estimate_share'])} of billed"


def injection_words(choices: Choices) -> str:
    if not choices.inject:
        return "off: summaries are written, but no prompt holds one"
    return {"system": "never trimmed; breaks the cached prefix", "user": "the system prefix stays as it is"}[
        choices.mode
    ]


def size_words(choices: Choices, found: dict[str, Any] | None) -> str:
    limit = f"about {counted(choices.words, 'word')}" if choices.words else "no limit"
    size = None if found is None else found["summary_size"]
    return limit if size is None else f"{limit}; {number(size)} tokens each, on average"


def compaction_words(choices: Choices, found: dict[str, Any] | None) -> str:
    if not choices.compact:
        return "off: tool results stay whole"
    limit = (
        f"older results over {counted(choices.result_tokens, 'token')}"
        if choices.result_tokens
        else "no limit for older results"
    )
    return limit if found is None else f"{limit}: {found['compacted_results']} replaced"
