"""What the explorer's controls can say, as a plain value, and the configuration that it means.

In: a configuration. Out: `Choices`, which the controls show and change, and the configuration back. Options without a
control stay as they were. Knows nothing of widgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.config import RunConfig, TriggerNode
from workbench.summary.checkers import ContextThreshold

DEFAULT_EVENTS, DEFAULT_TOKENS, DEFAULT_SHARE, DEFAULT_SILENCE_S = 20, 2000, 0.5, 300.0
DEFAULT_WORDS = 200
TRIGGERS = ("event", "token", "share", "silence")
ANY, ALL, KEPT = "any", "all", "kept"
_OPTIONS = ("event", "token", "context", "time")


@dataclass(frozen=True, slots=True)
class Choices:
    """One position of all controls."""

    summaries: bool
    """Summaries are made at all."""
    combine: str
    """`any` or `all` of the switched-on triggers; `kept`: the trigger tree of the file, which no control shows."""
    on: frozenset[str]
    """The triggers that are switched on, of `TRIGGERS`."""
    event: int
    token: int
    share: float
    """Of the window, 0 to 1."""
    silence_s: float
    counter: str
    """runes, tiktoken, scripts."""
    runes_per_token: float
    inject: bool
    """The summary goes into the prompt."""
    mode: str
    """system, user."""
    words: int
    """Limit of a summary; 0 = none."""
    skip_recent: int
    intra_run: bool
    compact: bool
    result_tokens: int
    """Tokens that a historical tool result may have."""


def choices_of(config: RunConfig) -> Choices:
    """The position of the controls that stands for a configuration."""
    combine, given = _trigger_of(config.trigger)
    summarizer = config.summarizer
    context = given.get("context")
    return Choices(
        summaries=summarizer is not None,
        combine=combine,
        on=frozenset(name for name, option in zip(TRIGGERS, _OPTIONS, strict=True) if option in given),
        event=given.get("event", DEFAULT_EVENTS),
        token=given.get("token", DEFAULT_TOKENS),
        share=DEFAULT_SHARE if context is None else context.ratio,
        silence_s=given.get("time", DEFAULT_SILENCE_S),
        counter=config.counter.kind,
        runes_per_token=config.counter.runes_per_token,
        inject=config.agent.add_session_summary,
        mode=config.agent.summary_injection_mode,
        words=DEFAULT_WORDS if summarizer is None else summarizer.max_summary_words,
        skip_recent=0 if summarizer is None else summarizer.skip_recent or 0,
        intra_run=config.agent.sync_summary_intra_run,
        compact=config.compaction.enabled,
        result_tokens=config.compaction.tool_result_max_tokens,
    )


def _trigger_of(node: TriggerNode | None) -> tuple[str, dict[str, Any]]:
    """How the checks of a trigger are combined, and each of them; a richer tree is kept as it is."""
    if node is None:
        return ALL, {}
    own = {name: getattr(node, name) for name in _OPTIONS if getattr(node, name) is not None}
    if node.any is None and node.all is None:
        return ALL, own
    if own or (node.any is not None and node.all is not None):
        return KEPT, {}
    given: dict[str, Any] = {}
    children = node.any if node.any is not None else node.all
    if not children:  # it never fires, while no checks at all let every chance pass
        return KEPT, {}
    for child in children:
        inner = {name: getattr(child, name) for name in _OPTIONS if getattr(child, name) is not None}
        if len(inner) != 1 or child.any is not None or child.all is not None or inner.keys() & given.keys():
            return KEPT, {}
        given |= inner
    return (ANY if node.any is not None else ALL), given


def configured(base: RunConfig, choices: Choices, *, name: str = "") -> RunConfig:
    """The configuration that these choices mean, everything else as in `base`."""
    agent = {
        "add_session_summary": choices.inject,
        "summary_injection_mode": choices.mode,
        "sync_summary_intra_run": choices.intra_run,
    }
    config = base.replace(
        name=name or base.name,
        counter={"kind": choices.counter, "runes_per_token": choices.runes_per_token},
        agent=agent,
        compaction={"enabled": choices.compact, "tool_result_max_tokens": choices.result_tokens},
        trigger=None,
    )
    if not choices.summaries:
        return config.replace(summarizer=None)
    summarizer: dict[str, Any] = {"max_summary_words": choices.words}
    if choices.skip_recent or (base.summarizer is not None and base.summarizer.skip_recent):
        summarizer["skip_recent"] = choices.skip_recent
    if config.summarizer is None:
        config = config.replace(summarizer=summarizer)
    else:
        config = config.replace(**{f"summarizer.{key}": value for key, value in summarizer.items()})
    trigger = base.trigger if choices.combine == KEPT else trigger_node(base, choices)
    return config if trigger is None else config.replace(trigger=trigger)


def trigger_node(base: RunConfig, choices: Choices) -> TriggerNode | None:
    """The trigger that is switched on; None without any: then every chance is taken."""
    checks = [single_trigger(base, choices, name) for name in TRIGGERS if name in choices.on]
    if not checks:
        return None
    if choices.combine == ANY and len(checks) > 1:
        return TriggerNode.parse({"any": checks})
    return TriggerNode.parse({key: value for check in checks for key, value in check.items()})


def single_trigger(base: RunConfig, choices: Choices, name: str) -> dict[str, Any]:
    """One trigger alone, as a file has it."""
    if name == "event":
        return {"event": choices.event}
    if name == "token":
        return {"token": choices.token}
    if name == "silence":
        return {"time": choices.silence_s}
    known = next((found for found in _contexts(base.trigger)), None)
    context = (known or ContextThreshold()).replace(ratio=choices.share)
    return {"context": context.model_dump(mode="json", exclude_none=True)}


def _contexts(node: TriggerNode | None) -> list[ContextThreshold]:
    if node is None:
        return []
    own = [node.context] if node.context is not None else []
    return own + [found for child in (*(node.any or ()), *(node.all or ())) for found in _contexts(child)]


def steps_around(value: float, lowest: float, highest: float) -> list[float]:
    """Round numbers from lowest to highest, some ten per decade, and the value itself."""
    found = {value}
    for exponent in range(-3, 10):
        for digit in (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9):
            step = digit * 10**exponent
            if lowest <= step <= highest and (step == int(step) or lowest < 1):
                found.add(int(step) if step == int(step) else round(step, 4))
    return sorted(found)
