"""What a run weighs until it has a price: the rule of the recommendation, and which run is the baseline.

In: runs, or the rows of their calls and summaries. Out: net tokens. One rule serves reports, comparisons and
sweeps, for whole runs and call by call (WB-TUNE-06).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from workbench.config import RunConfig

# What a token costs, as a share of a prompt token that isn't in the cache. Summaries are made by the main model
# unless told otherwise, and a saving that leaves their calls out is none (WB-COST-02, WB-TUNE-06).
CACHED_PRICE = 0.1
SUMMARY_PRICE = 1.0
NET_RULE = (
    f"net tokens = prompt tokens, the reused prefix at a cached price of {CACHED_PRICE}, plus all tokens of the "
    "summary model at full price, but for the part of a fork that repeats its parent"
)


@runtime_checkable
class RunLike(Protocol):
    """What an evaluation needs of a run: one configuration over a set of conversations."""

    @property
    def name(self) -> str:
        """Name of the configuration."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Key figures as in `workbench replay --json`; None where a figure is unknown."""
        ...

    @property
    def config(self) -> Any:
        """The configuration; has `model_dump()`, or is a mapping itself."""
        ...

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        """Rows of one trace table, of one conversation or all, in the order of the trace."""
        ...


Runs = Mapping[str, RunLike]


class RunRows(Protocol):
    """What has rows of trace tables."""

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        """Rows of one trace table, of one conversation or all, in the order of the trace."""
        ...


def rows_by_conversation(
    run: RunRows, tables: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Sequence[Mapping[str, Any]]]]]:
    """Each conversation's row with its rows of some tables, in the run's order.

    A stored run reads one conversation after the other; rows that are in memory already are grouped.
    """
    read = getattr(run, "by_conversation", None)
    if read is not None:
        yield from read(tables)
        return
    grouped: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in tables}
    for name, groups in grouped.items():
        for row in run.rows(name):
            groups.setdefault(row["conversation"], []).append(row)
    for row in run.rows("conversations"):
        yield row, {name: groups.get(row["conversation"], []) for name, groups in grouped.items()}


class Configured(Protocol):
    """What has a configuration: a run, or a call of one."""

    @property
    def config(self) -> Any:
        """The configuration; has `model_dump()`, or is a mapping itself."""
        ...


def settings_of(run: Configured) -> Mapping[str, Any]:
    """The configuration of a run as plain values; empty when it has none."""
    config = run.config
    if hasattr(config, "model_dump"):
        config = config.model_dump()
    return config if isinstance(config, Mapping) else {}


def is_baseline(run: RunLike) -> bool:
    """Whether a run sends the whole history: no summaries, compaction, tailoring or history limit."""
    settings = settings_of(run)
    return bool(settings) and not settings.get("summarizer") and not shortened_by(settings)


def shortened_by(settings: Mapping[str, Any]) -> list[str]:
    """What besides summaries makes requests shorter than the history, as predicates of a sentence."""
    agent = settings.get("agent") or {}
    return [
        words
        for words, on in (
            ("compacts tool results", switched_on(settings.get("compaction"))),
            ("drops rounds that do not fit", switched_on(settings.get("tailoring"))),
            ("limits the history", bool(agent.get("max_history_runs"))),
        )
        if on
    ]


def without_shortening(config: RunConfig, *, name: str = "no summary") -> RunConfig:
    """The baseline of a configuration: the same model, counters and cache, and the whole history in every request."""
    kept = config.model_dump(mode="json", exclude_none=True)
    for table in ("summarizer", "trigger", "summaries", "compaction", "tailoring"):
        kept.pop(table, None)
    for option in ("add_session_summary", "max_history_runs", "sync_summary_intra_run"):
        kept["agent"].pop(option, None)
    return type(config).from_values({**kept, "name": name})


def switched_on(part: Any) -> bool:
    """A table of a configuration is there and enabled."""
    return bool(part.get("enabled", True)) if isinstance(part, Mapping) and part else bool(part)


def net_tokens(run: RunLike) -> float | None:
    """What the rule weighs: prompts with the reused prefix at the cached price, and the summary calls.

    None where a part of it is unknown.
    """
    prompts, summaries = net_prompt_tokens(run), summary_model_tokens(run)
    if prompts is None or (summaries is None and settings_of(run).get("summarizer")):
        return None
    # A fork repeats its parent's prompt, which the provider has in its cache.
    forked = run.facts.get("summary_prefix_tokens") or 0
    return prompts + SUMMARY_PRICE * (summaries or 0) - (1 - CACHED_PRICE) * forked


def net_prompt_tokens(run: RunLike) -> float | None:
    """Prompt tokens with the reused prefix at the cached price; None where one of them is unknown."""
    prompt, prefix = run.facts.get("prompt_tokens"), run.facts.get("prefix_tokens")
    if prompt is None:
        return None
    if prefix is None:
        # Conversations of one call have no earlier request: there is nothing that could be reused.
        calls, conversations = run.facts.get("calls"), run.facts.get("conversations")
        return float(prompt) if calls is not None and conversations is not None and calls <= conversations else None
    return float(prompt - (1 - CACHED_PRICE) * prefix)


def summary_model_tokens(run: RunLike) -> int | None:
    """Tokens that the summary model read and wrote, retries included."""
    tokens = run.facts.get("summary_tokens")
    return None if tokens is None else int(tokens)


def net_of_call(row: Mapping[str, Any]) -> float:
    """Net tokens of one row of `calls`; a first call has no earlier request and reuses nothing."""
    return float(row["prompt_tokens"] - (1 - CACHED_PRICE) * (row.get("prefix_tokens") or 0))


def net_of_summary(row: Mapping[str, Any]) -> float:
    """Net tokens of one row of `summaries`: what the summary model read and wrote."""
    tokens = (row.get("request_tokens") or 0) + (row.get("completion_tokens") or 0)
    return SUMMARY_PRICE * tokens - (1 - CACHED_PRICE) * (row.get("prefix_tokens") or 0)
