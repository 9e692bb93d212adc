"""The planner: where a trigger fires, for any threshold, from sums instead of another replay (WB-TUNE-05, WB-RPL-01).

In: a conversation and a configuration. One exact replay under a trigger that never fires notes every moment at which
the engine checks, and what stands in the session then. Out: `ThresholdSums`, which answers for every trigger tree of
event, token, time and context checks, and every counter, from cumulative sums: a firing only moves the boundary, and
what a check measures is the difference of two sums.

That holds as long as nothing but the boundary depends on a summary, which `why_not` decides: it gives the reason why a
configuration needs an exact replay, and the empty text where the answers are the engine's own. Not part of `replay` or
`check`, which never plan.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from workbench.build import engine_counter
from workbench.clock import ns_from_timedelta
from workbench.config import RunConfig, TriggerNode
from workbench.errors import ReplayError
from workbench.model.windows import UNKNOWN_WINDOW
from workbench.recordings.types import Conversation
from workbench.replay.conversation import ConversationReplay
from workbench.service.summaries import FULL, SummaryCheck, observe_request_gap
from workbench.session.scope import counts_for_full_session, event_matches, in_scope
from workbench.session.types import Event
from workbench.summary.checkers import ContextThreshold
from workbench.summary.context import RequestStart
from workbench.summary.delta import delta_session
from workbench.summary.prompt import built_in_prompt
from workbench.summary.text import event_blocks, reasoning_texts
from workbench.tokens import SimpleTokenCounter

if TYPE_CHECKING:
    import numpy as np

    Ints = np.ndarray[Any, np.dtype[np.int64]]

_NEVER = 10**15
_NO_WINDOW = 987_654_321
"""Stands for "the model's window is unknown" in the replay that listens."""
_PROMPT_TOKENS = 4_000
"""A summary prompt of so many tokens surely fits beside some text: the smallest budget is 70 % of 8,192."""
_PATHS = frozenset({"async", "sync", "intra_run"})
_NS_PER_MS = 1_000_000
_SEVERAL_BRANCHES = "the conversation has several branches"
_SCALARS, _FIRST_CHUNK = 6, 48
"""How many moments are looked at one by one before whole stretches are; both are only a matter of speed."""


@dataclass(frozen=True, slots=True)
class Track:
    """What one check of the trigger measures at every moment, the boundary moved by each firing."""

    name: str
    unit: str
    """events, tokens, milliseconds."""
    threshold: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Firings:
    """Where a trigger fires."""

    moments: tuple[int, ...]
    """Indexes into `ThresholdSums.calls` and the tracks."""
    calls: tuple[int, ...]
    """For each firing the first call that sees its summary, as in the `checks` table."""

    def __len__(self) -> int:
        return len(self.moments)


@dataclass(frozen=True, slots=True)
class _Moment:
    """One check of the engine in the replay that listens."""

    call: int
    end: int
    """Absolute position behind the last event that a summary made here would cover."""
    first: int
    """Position of the oldest event that the session still holds."""
    time_ns: int
    live_end: int
    path: str
    filter_key: str
    started_ns: int
    gap_ns: int
    """Silence before the request; -1 when the engine observes none."""
    window: int


class _Heard:
    """What a replay that never fires has told: the moments of its checks, the events, and sums over their texts."""

    def __init__(self, moments: list[_Moment], events: list[Event]) -> None:
        self.moments, self.events = moments, events
        self.ends = [moment.end for moment in moments]
        self.firsts = [moment.first for moment in moments]
        self.n_blocks, self.n_reasoning, self.runes = [0], [0], [0]
        """Sums over the texts in front of each position; `runes` with a line break per text."""
        for event in events:
            blocks, reasoning = event_blocks(event), reasoning_texts(event)
            self.n_blocks.append(self.n_blocks[-1] + len(blocks))
            self.n_reasoning.append(self.n_reasoning[-1] + len(reasoning))
            chars = sum(map(len, blocks)) + sum(map(len, reasoning))
            self.runes.append(self.runes[-1] + chars + len(blocks) + len(reasoning))
        self.runes_at_ends = [self.runes[end] for end in self.ends]

    def __len__(self) -> int:
        return len(self.moments)

    def has_text(self, start: int, end: int) -> bool:
        """Something of the events at `start <= position < end` counts as text."""
        return end > start and (
            self.n_blocks[end] > self.n_blocks[start] or self.n_reasoning[end] > self.n_reasoning[start]
        )

    def fault(self, app_name: str, branch: str) -> str:
        """Why sums over these events can't stand for the engine; empty when they can."""
        return self._fault_of_moments() or self._fault_of_events(app_name, branch)

    def _fault_of_moments(self) -> str:
        for moment in self.moments:
            if moment.path not in _PATHS:
                return f"checks come by the path {moment.path}"
            is_last = moment.live_end >= len(self.events)
            if moment.path != "intra_run" and not is_last and self.events[moment.live_end].time_ns <= moment.time_ns:
                return "an event has the very time of the check before it, so a summary could come too late for it"
        for before, after in pairwise(self.moments):
            if after.end < before.end or after.first < before.first:
                return "what a summary would cover doesn't only grow"
        return ""

    def _fault_of_events(self, app_name: str, branch: str) -> str:
        if any(later.time_ns < earlier.time_ns for earlier, later in pairwise(self.events)):
            return "the times of the events don't ascend"
        if len({event.id for event in self.events}) < len(self.events):
            return "two events have the same id"
        for event in self.events:
            counts = counts_for_full_session(event, app_name)
            if not (event_matches(event, branch) and in_scope(event, branch) and counts):
                return _SEVERAL_BRANCHES
        return ""


class _Listener(ConversationReplay):
    """A replay that notes each check instead of its rows."""

    def __init__(self, conversation: Conversation, config: RunConfig, on_sent: Any) -> None:
        super().__init__(conversation, config, on_sent=on_sent)
        self.moments: list[_Moment] = []
        self.events: list[Event] = []
        self.faults: list[str] = []

    def on_check(self, check: SummaryCheck) -> None:
        session = check.session
        first = session.first_position
        if first > len(self.events):
            self.faults.append("more events than the session keeps lie between two checks")
            self.events.extend([Event()] * (first - len(self.events)))
        self.events.extend(session.events[len(self.events) - first :])
        call = len(self._trace.rows["calls"])
        source = delta_session(
            session,
            filter_key=check.filter_key,
            boundary=None,
            now_ns=check.time_ns,
            profile=self._config.engine_profile,
        )
        request = self._calls[max(call - 1, 0)].request
        start = RequestStart(request.message.request_id or request.id, request.message.time_ns)
        gap = observe_request_gap(session, check.filter_key, start, None)
        shares = check.trigger.checks[-1].children if check.trigger.checks else []
        self.moments.append(
            _Moment(
                call=call,
                end=source.end,
                first=first,
                time_ns=check.time_ns,
                live_end=session.end_position,
                path=check.path,
                filter_key=check.filter_key,
                started_ns=start.started_ns,
                gap_ns=gap.elapsed_ns if gap.available else -1,
                window=shares[-1].context_window if shares else 0,
            )
        )


def sums_key(config: RunConfig) -> str:
    """What of a configuration decides when the engine checks; equal keys can share their `ThresholdSums`."""
    return _listening(config).config_hash


def _listening(config: RunConfig) -> RunConfig:
    """A configuration that checks at the same moments and never fires; cheap in all else."""
    values = config.model_dump(mode="json", exclude_none=True)
    return RunConfig.from_values(
        {
            "profile": config.profile,
            "service": values["service"],
            "model": values["model"],
            "agent": {"sync_summary_intra_run": config.agent.sync_summary_intra_run},
            "summarizer": {},
            "trigger": {
                "any": [
                    {"event": _NEVER},
                    {"context": {"ratio": 1.0, "min_tokens": _NEVER, "fallback_window": _NO_WINDOW}},
                ]
            },
            "summaries": {"source": "sized", "sized_tokens": 1},
            "billing": {"encoding": "runes:4"},
        }
    )


class ThresholdSums:
    """Sums over one conversation, ready for any threshold.

    Args:
        conversation: As recorded.
        config: Decides when the engine checks: profile, service, intra-run summaries. Its trigger and counter don't
            matter, nor what it does with summaries.
        on_sent: Is called with `(CallFacts, SentRequest)` at each call of the replay.
    """

    def __init__(self, conversation: Conversation, config: RunConfig, *, on_sent: Any = None) -> None:
        self.key = sums_key(config)
        self.conversation = conversation.id
        listener = _Listener(conversation, _listening(config), on_sent)
        listener.run()
        branches = list(dict.fromkeys(m.filter_key for m in listener.moments if m.filter_key != FULL))
        branch = branches[0] if branches else FULL
        # Until the branch has a summary the full session is checked too, right behind it and with the same outcome.
        self._heard = _Heard([m for m in listener.moments if m.filter_key == branch], listener.events)
        faults = [*listener.faults, *([_SEVERAL_BRANCHES] if len(branches) > 1 else [])]
        self._fault = faults[0] if faults else self._heard.fault(conversation.app_name, branch)
        self._metrics: dict[str, _Metric] = {}
        self.calls = tuple(moment.call for moment in self._heard.moments)
        """For each check the call that follows it."""

    def __len__(self) -> int:
        return len(self._heard)

    def event_id(self, moment: int) -> str:
        """The newest event when a check ran, as in the `checks` table."""
        return self._heard.events[self._heard.moments[moment].live_end - 1].id

    # --- what can be proved ------------------------------------------------------------------------------

    def why_not(self, config: RunConfig) -> str:
        """Why these sums can't answer for a configuration; empty when they can."""
        return self._fault or _fault_of_config(config) or self._fault_of_use(config)

    def _fault_of_use(self, config: RunConfig) -> str:
        if sums_key(config) != self.key:
            return "its checks come at other moments"
        if _has_context(config.trigger) and len({moment.window for moment in self._heard.moments}) > 1:
            return "the window changes within the conversation"
        return self._metric(config).fault if _counts_tokens(config.trigger) else ""

    def _demand(self, config: RunConfig) -> None:
        fault = self.why_not(config)
        if fault:
            raise ReplayError(f"no plan for {config.label()!r}: {fault}", hint="replay it")

    # --- answers -----------------------------------------------------------------------------------------

    def firings(self, config: RunConfig) -> Firings:
        """Where the trigger of a configuration fires.

        Raises:
            ReplayError: these sums can't answer for this configuration (`why_not` says it beforehand), or a summary
                would be made of events without any text.
        """
        self._demand(config)
        return self._firings(self._gate(config))

    def counts(self, config: RunConfig, option: str, thresholds: Iterable[int]) -> list[int]:
        """How often a trigger of one check would fire, for each threshold: the whole range of a slider at once.

        Args:
            config: Its counter measures; its trigger doesn't matter.
            option: `event` or `token`.
        Raises:
            ReplayError: these sums can't answer for this configuration.
        """
        self._demand(config.replace(trigger={option: 0}))
        content = _Content(self._heard)
        leaves = (self._leaf_of(config, option, threshold) for threshold in thresholds)
        return [len(self._firings(_All((content, leaf)))) for leaf in leaves]

    def _firings(self, gate: _Gate) -> Firings:
        heard, n_moments = self._heard, len(self._heard)
        moments: list[int] = []
        boundary, at = -1, 0
        while (at := gate.first(boundary, at)) < n_moments:
            end = heard.ends[at]
            if heard.n_blocks[end] == heard.n_blocks[max(boundary + 1, heard.firsts[at])]:
                call = self.calls[at] - 1
                raise ReplayError(
                    f"no plan: the check after call {call} fires on events without text", hint="replay it"
                )
            moments.append(at)
            boundary = end - 1
            at += 1
        return Firings(tuple(moments), tuple(self.calls[i] for i in moments))

    def tracks(self, config: RunConfig, firings: Firings) -> list[Track]:
        """What each event, token, time and context check of the trigger measures at every moment, in order."""
        return [leaf.track(firings) for leaf in self._leaves(self._gate(config))]

    # --- the trigger -------------------------------------------------------------------------------------

    def _gate(self, config: RunConfig) -> _Gate:
        """A summary needs something to summarize, and every check of the trigger to pass."""
        return _All((_Content(self._heard), *self._checks(config, config.trigger)))

    def _checks(self, config: RunConfig, node: TriggerNode | None) -> list[_Gate]:
        """The checks of a node, as `workbench.build.trigger_checks` makes them."""
        if node is None:
            return []
        gates: list[_Gate] = [
            self._leaf_of(config, option, getattr(node, option))
            for option in ("event", "token", "time", "context")
            if getattr(node, option) is not None
        ]
        if node.any is not None:
            gates.append(_Any(self._children(config, node.any), len(self)))
        if node.all is not None:
            gates.append(_All(self._children(config, node.all)))
        return gates

    def _children(self, config: RunConfig, nodes: Sequence[TriggerNode]) -> tuple[_Gate, ...]:
        return tuple(_All(tuple(self._checks(config, child))) for child in nodes)

    def _leaf_of(self, config: RunConfig, option: str, threshold: Any) -> _Leaf | _Silence:
        if option == "event":
            return _Leaf(self._heard, "event_threshold", "events", threshold, _Counted(self._heard))
        if option == "token":
            return _Leaf(self._heard, "token_threshold", "tokens", threshold, self._metric(config))
        if option == "time":
            return _Silence(self._heard, ns_from_timedelta(timedelta(seconds=threshold)))
        limit = self._limit(threshold)
        return _Leaf(self._heard, "context_threshold", "tokens", limit, self._metric(config))

    def _limit(self, options: ContextThreshold) -> int:
        """A share of the window in tokens; the window is the same at every check, or `why_not` says so."""
        moments = self._heard.moments
        window = moments[0].window if moments else UNKNOWN_WINDOW
        if window == _NO_WINDOW:
            window = options.fallback_window or UNKNOWN_WINDOW
        return max(int(window * options.ratio), options.min_tokens)

    def _leaves(self, gate: _Gate) -> list[_Leaf | _Silence]:
        if isinstance(gate, _Leaf | _Silence):
            return [gate]
        return [leaf for child in getattr(gate, "gates", ()) for leaf in self._leaves(child)]

    def _metric(self, config: RunConfig) -> _Metric:
        counter = engine_counter(config)
        if counter.counter_id not in self._metrics:
            self._metrics[counter.counter_id] = (
                _Runes(self._heard, counter)
                if isinstance(counter, SimpleTokenCounter)
                else _LineSums(self._heard, counter)
            )
        return self._metrics[counter.counter_id]


def _fault_of_config(config: RunConfig) -> str:
    """What of a configuration makes more than the boundary depend on its summaries."""
    summarizer, profile = config.summarizer, config.engine_profile
    if summarizer is None:
        return "it makes no summaries"
    reasons = {
        "events are left out of summaries (skip_recent)": bool(summarizer.skip_recent),
        "summaries extend the main request (cache_safe_forking)": summarizer.cache_safe_forking,
        "the previous summary counts as new": profile.count_previous_summary,
        "summaries are made of what the model saw": profile.model_visible_view,
        f"profile {config.profile} reproduces defects of a release": profile.reference_quirks,
        "a source that is too large is summarised in part (lossless)": profile.overflow_policy != "bounded",
        f"summaries come from {config.summaries.source}": config.summaries.source not in {"extractive", "sized"},
        "summaries take time (latency_s)": bool(config.summaries.latency_s),
        "a full prompt makes a summary of its own (compaction)": config.compaction.enabled
        and config.agent.add_session_summary,
        "tailoring may stop a request": config.tailoring.enabled,
        "sessions expire": bool(config.service.session_ttl_s),
        "its summary prompt may not fit": not _prompt_fits(config),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _prompt_fits(config: RunConfig) -> bool:
    """A summary is never refused because of its prompt alone."""
    assert config.summarizer is not None
    prompt = config.summarizer.prompt or built_in_prompt(config.summarizer.max_summary_words)
    counter = engine_counter(config)
    return counter.count_text(prompt) + counter.count_text(config.summarizer.system_prompt) < _PROMPT_TOKENS


def _counts_tokens(node: TriggerNode | None) -> bool:
    return any(one.token is not None or one.context is not None for one in _nodes(node))


def _has_context(node: TriggerNode | None) -> bool:
    return any(one.context is not None for one in _nodes(node))


def _nodes(node: TriggerNode | None) -> Iterator[TriggerNode]:
    if node is not None:
        yield node
        for child in (*(node.any or ()), *(node.all or ())):
            yield from _nodes(child)


# --- gates: the first moment at which something passes --------------------------------------------------


class _Gate(Protocol):
    def first(self, boundary: int, at: int) -> int:
        """The first moment from `at` on that passes with this boundary; the number of moments when none does."""
        ...


@dataclass(frozen=True, slots=True)
class _All:
    gates: tuple[_Gate, ...]

    def first(self, boundary: int, at: int) -> int:
        while True:
            start = at
            for gate in self.gates:
                at = gate.first(boundary, at)
            if at == start:
                return at


@dataclass(frozen=True, slots=True)
class _Any:
    gates: tuple[_Gate, ...]
    n_moments: int

    def first(self, boundary: int, at: int) -> int:
        return min([gate.first(boundary, at) for gate in self.gates], default=self.n_moments)


class _Content:
    """There is something to summarize: with a summary before there always is (SUM-CHK-04)."""

    def __init__(self, heard: _Heard) -> None:
        self._heard = heard

    def first(self, boundary: int, at: int) -> int:
        heard = self._heard
        while at < len(heard):
            end, start = heard.ends[at], max(boundary + 1, heard.firsts[at])
            if end > start and (boundary >= 0 or heard.n_blocks[end] > heard.n_blocks[start]):
                return at
            at += 1
        return len(heard)


class _Metric(Protocol):
    """What a threshold measures; never falls while the boundary stays and nothing is trimmed."""

    fault: str

    def value(self, start: int, end: int) -> int:
        """Of the events at `start <= position < end`."""
        ...

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        """The first of the moments `lo..hi` with more than the threshold, all measured from `start`; `hi` if none."""
        ...

    def trimmed_above(self, threshold: int) -> list[int]:
        """All moments with more than the threshold when measured from the oldest event that is still there."""
        ...


class _Leaf:
    """One event, token or context check."""

    def __init__(self, heard: _Heard, name: str, unit: str, threshold: int, metric: _Metric) -> None:
        self._heard, self._metric = heard, metric
        self.name, self.unit, self.threshold = name, unit, threshold
        self._trimmed: list[int] | None = None

    def first(self, boundary: int, at: int) -> int:
        heard, start, n_moments = self._heard, boundary + 1, len(self._heard)
        # While the event behind the boundary is there, everything is measured from it.
        n_whole = n_moments
        if n_moments and heard.firsts[-1] > start:
            n_whole = bisect_right(heard.firsts, start)
        if at < n_whole:
            found = self._metric.first_above(start, at, n_whole, self.threshold)
            if found < n_whole:
                return found
            at = n_whole
        if at >= n_moments:
            return n_moments
        if self._trimmed is None:
            self._trimmed = self._metric.trimmed_above(self.threshold)
        place = bisect_left(self._trimmed, at)
        return self._trimmed[place] if place < len(self._trimmed) else n_moments

    def track(self, firings: Firings) -> Track:
        heard, values, boundary, fired = self._heard, [], -1, set(firings.moments)
        for at, (end, first) in enumerate(zip(heard.ends, heard.firsts, strict=True)):
            values.append(self._metric.value(max(boundary + 1, first), end))
            if at in fired:
                boundary = end - 1
        return Track(self.name, self.unit, self.threshold, tuple(values))


class _Silence:
    """A time check: how long it was quiet before the request, as the runner observed it."""

    def __init__(self, heard: _Heard, interval_ns: int) -> None:
        self._heard = heard
        self._interval_ns = interval_ns
        self._long = [i for i, moment in enumerate(heard.moments) if moment.gap_ns > interval_ns]

    def first(self, boundary: int, at: int) -> int:
        place = bisect_left(self._long, at)
        while place < len(self._long) and not self._is_observed(boundary, self._long[place]):
            place += 1
        return self._long[place] if place < len(self._long) else len(self._heard)

    def _is_observed(self, boundary: int, at: int) -> bool:
        """After a summary in the middle of a request its silence is used up (SUM-RNR-02)."""
        return boundary < 0 or self._heard.events[boundary].time_ns < self._heard.moments[at].started_ns

    def track(self, firings: Firings) -> Track:
        values, boundary, fired = [], -1, set(firings.moments)
        for at, moment in enumerate(self._heard.moments):
            observed = moment.gap_ns >= 0 and self._is_observed(boundary, at)
            values.append(int(moment.gap_ns / _NS_PER_MS) if observed else 0)
            if at in fired:
                boundary = moment.end - 1
        return Track("time_threshold", "milliseconds", int(self._interval_ns / _NS_PER_MS), tuple(values))


# --- metrics: sums over events ---------------------------------------------------------------------------


class _Counted:
    """The number of events; all of them count, since the conversation has one branch."""

    fault = ""

    def __init__(self, heard: _Heard) -> None:
        self._heard = heard

    def value(self, start: int, end: int) -> int:
        return max(end - start, 0)

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        return bisect_right(self._heard.ends, start + threshold, lo, hi)

    def trimmed_above(self, threshold: int) -> list[int]:
        heard = self._heard
        return [
            i for i, (end, first) in enumerate(zip(heard.ends, heard.firsts, strict=True)) if end - first > threshold
        ]


class _Runes:
    """Tokens by a counter that divides code points: sums of code points serve every ratio."""

    fault = ""

    def __init__(self, heard: _Heard, counter: SimpleTokenCounter) -> None:
        self._heard, self._counter = heard, counter
        self._needed: tuple[int, int] = (-1, 0)

    def _measured(self, start: int, end: int) -> int:
        """Code points of the joined texts of a range, -1 for a range without any."""
        heard = self._heard
        if end <= start:
            return -1
        n_blocks = heard.n_blocks[end] - heard.n_blocks[start]
        n_reasoning = heard.n_reasoning[end] - heard.n_reasoning[start]
        if not n_blocks and not n_reasoning:
            return -1
        return heard.runes[end] - heard.runes[start] - (n_blocks > 0) - (n_reasoning > 0)

    def value(self, start: int, end: int) -> int:
        runes = self._measured(start, end)
        return 0 if runes < 0 else self._counter.tokens_from_runes(runes, non_empty=True)

    def _runes_needed(self, threshold: int) -> int:
        """The least number of code points that is more than the threshold in tokens."""
        if self._needed[0] == threshold:
            return self._needed[1]
        if threshold == 0:
            needed = 0  # every text counts at least one token
        else:
            ratio = self._counter.approx_runes_per_token
            needed = max(math.floor((threshold + 1) * ratio) - 2, 0)
            while int(needed / ratio) <= threshold:
                needed += 1
        self._needed = (threshold, needed)
        return needed

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        needed = self._runes_needed(threshold)
        heard = self._heard
        at = bisect_left(heard.runes_at_ends, heard.runes[start] + needed, lo, hi)
        while at < hi and self._measured(start, heard.ends[at]) < needed:
            at += 1
        return at

    def trimmed_above(self, threshold: int) -> list[int]:
        needed, heard = self._runes_needed(threshold), self._heard
        pairs = zip(heard.firsts, heard.ends, strict=True)
        return [i for i, (first, end) in enumerate(pairs) if self._measured(first, end) >= needed]


class _LineSums:
    """Tokens by a counter that is exact on lines: tiktoken, and a counter by script, whose units are.

    A text's count is the sum over its lines where each starts with a letter (SUM-TOK-09): every line but the last with
    its line break.
    """

    def __init__(self, heard: _Heard, counter: Any) -> None:
        import numpy as np

        self._heard = heard
        self._from_units = getattr(counter, "tokens_from_units", None)
        self.fault = ""
        counts = getattr(counter, "unit_counter", counter)
        self._parts = [
            (*self._part(counts, texts_of), np.asarray(n_texts, dtype=np.int64))
            for texts_of, n_texts in ((event_blocks, heard.n_blocks), (reasoning_texts, heard.n_reasoning))
        ]
        self._ends = np.asarray(heard.ends, dtype=np.int64)
        self._firsts = np.asarray(heard.firsts, dtype=np.int64)
        self._needed: dict[int, int] = {}
        # One kind of text, and sums that only grow: then the first moment above a threshold is found by bisection.
        spoken = [open_ended[self._ends] for _, open_ended, n_texts in self._parts if n_texts[-1]]
        self._ascending = spoken[0].tolist() if len(spoken) == 1 and bool((np.diff(spoken[0]) >= 0).all()) else None

    def _part(self, counter: Any, texts_of: Callable[[Event], list[str]]) -> tuple[Ints, Ints]:
        """Two sums per position over the texts in front of it: all with their line break, and all but the last."""
        import numpy as np

        count_line = getattr(counter, "count_line", None) or (lambda text: counter.count_text(text + "\n"))
        whole, open_ended = [0], [0]
        for event in self._heard.events:
            total, last = whole[-1], open_ended[-1]
            for text in texts_of(event):
                if not text[0].isalpha():
                    self.fault = "a line that doesn't start with a letter isn't counted alone"
                line, bare = count_line(text), counter.count_text(text)
                last = total + bare
                total += line
            whole.append(total)
            open_ended.append(last)
        return np.asarray(whole, dtype=np.int64), np.asarray(open_ended, dtype=np.int64)

    def _measured(self, start: int, end: int) -> int:
        if end <= start:
            return 0
        return sum(
            int(open_ended[end]) - int(whole[start])
            for whole, open_ended, n_texts in self._parts
            if n_texts[end] > n_texts[start]
        )

    def value(self, start: int, end: int) -> int:
        found = self._measured(start, end)
        if self._from_units is None:
            return found
        return int(self._from_units(found, non_empty=self._heard.has_text(start, end)))

    def _least(self, threshold: int) -> int:
        """The least sum that is more than the threshold."""
        if self._from_units is None:
            return threshold + 1
        if threshold not in self._needed:
            low, high = 0, 1
            while self._from_units(high, non_empty=True) <= threshold:
                low, high = high, high * 2
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._from_units(middle, non_empty=True) <= threshold else (low, middle)
            self._needed[threshold] = high
        return self._needed[threshold]

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        least = self._least(threshold)
        if self._ascending is not None:
            before = sum(int(whole[start]) for whole, _, n_texts in self._parts if n_texts[-1])
            at = bisect_left(self._ascending, before + least, lo, hi)
            while at < hi and self._measured(start, self._heard.ends[at]) < least:
                at += 1
            return at
        for at in range(lo, min(lo + _SCALARS, hi)):
            end = self._heard.ends[at]
            if end > start and self._measured(start, end) >= least:
                return at
        at, size = min(lo + _SCALARS, hi), _FIRST_CHUNK
        while at < hi:
            above = self._above(start, at, min(at + size, hi), least)
            if len(above):
                return at + int(above[0])
            at, size = at + size, size * 4
        return hi

    def _above(self, start: int | Ints, lo: int, hi: int, least: int) -> Ints:
        """Which of the moments `lo..hi` measure at least so much, as offsets from `lo`."""
        import numpy as np

        ends = self._ends[lo:hi]
        total = np.zeros(len(ends), dtype=np.int64)
        for whole, open_ended, n_texts in self._parts:
            total += np.where(n_texts[ends] > n_texts[start], open_ended[ends] - whole[start], 0)
        return np.flatnonzero((total >= least) & (ends > start))

    def trimmed_above(self, threshold: int) -> list[int]:
        return [int(i) for i in self._above(self._firsts, 0, len(self._ends), self._least(threshold))]


__all__ = ["Firings", "ThresholdSums", "Track", "sums_key"]
