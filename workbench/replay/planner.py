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

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from workbench.build import engine_counter
from workbench.clock import ns_from_timedelta
from workbench.config import RunConfig, TriggerNode
from workbench.errors import ReplayError
from workbench.model.windows import UNKNOWN_WINDOW
from workbench.recordings.types import Conversation
from workbench.replay.conversation import ConversationReplay
from workbench.replay.threshold_sums import (
    SEVERAL_BRANCHES,
    AllOf,
    AnyOf,
    Content,
    EventSums,
    Firings,
    Gate,
    Heard,
    LineSums,
    Metric,
    Moment,
    RuneSums,
    Silence,
    Threshold,
    Track,
)
from workbench.service.summaries import FULL, SummaryCheck, observe_request_gap
from workbench.session.types import Event
from workbench.summary.checkers import ContextThreshold
from workbench.summary.context import RequestStart
from workbench.summary.delta import delta_session
from workbench.summary.prompt import built_in_prompt
from workbench.tokens import SimpleTokenCounter

_KEPT = 64
_NEVER = 10**15
_NO_WINDOW = 987_654_321
"""Stands for "the model's window is unknown" in the replay that listens."""
_PROMPT_TOKENS = 4_000
"""A summary prompt of so many tokens surely fits beside some text: the smallest budget is 70 % of 8,192."""


class _Listener(ConversationReplay):
    """A replay that notes each check instead of its rows."""

    def __init__(self, conversation: Conversation, config: RunConfig, on_sent: Any) -> None:
        super().__init__(conversation, config, on_sent=on_sent)
        self.moments: list[Moment] = []
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
            Moment(
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
        self._heard = Heard([m for m in listener.moments if m.filter_key == branch], listener.events)
        faults = [*listener.faults, *([SEVERAL_BRANCHES] if len(branches) > 1 else [])]
        self._fault = faults[0] if faults else self._heard.fault(conversation.app_name, branch)
        self._metrics: dict[str, Metric] = {}
        self._found: OrderedDict[str, Firings] = OrderedDict()
        """By configuration: whoever draws one asks for the same several times."""
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
        key = config.config_hash
        if key not in self._found:
            self._demand(config)
            self._found[key] = self._firings(self._gate(config))
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
        return self._found[key]

    def counts(self, config: RunConfig, option: str, thresholds: Iterable[int]) -> list[int]:
        """How often a trigger of one check would fire, for each threshold: the whole range of a slider at once.

        Args:
            config: Its counter measures; its trigger doesn't matter.
            option: `event` or `token`.
        Raises:
            ReplayError: these sums can't answer for this configuration.
        """
        self._demand(config.replace(trigger={option: 0}))
        content = Content(self._heard)
        leaves = (self._leaf_of(config, option, threshold) for threshold in thresholds)
        return [len(self._firings(AllOf((content, leaf)))) for leaf in leaves]

    def _firings(self, gate: Gate) -> Firings:
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

    def _gate(self, config: RunConfig) -> Gate:
        """A summary needs something to summarize, and every check of the trigger to pass."""
        return AllOf((Content(self._heard), *self._checks(config, config.trigger)))

    def _checks(self, config: RunConfig, node: TriggerNode | None) -> list[Gate]:
        """The checks of a node, as `workbench.build.trigger_checks` makes them."""
        if node is None:
            return []
        gates: list[Gate] = [
            self._leaf_of(config, option, getattr(node, option))
            for option in ("event", "token", "time", "context")
            if getattr(node, option) is not None
        ]
        if node.any is not None:
            gates.append(AnyOf(self._children(config, node.any), len(self)))
        if node.all is not None:
            gates.append(AllOf(self._children(config, node.all)))
        return gates

    def _children(self, config: RunConfig, nodes: Sequence[TriggerNode]) -> tuple[Gate, ...]:
        return tuple(AllOf(tuple(self._checks(config, child))) for child in nodes)

    def _leaf_of(self, config: RunConfig, option: str, threshold: Any) -> Threshold | Silence:
        if option == "event":
            return Threshold(self._heard, "event_threshold", "events", threshold, EventSums(self._heard))
        if option == "token":
            return Threshold(self._heard, "token_threshold", "tokens", threshold, self._metric(config))
        if option == "time":
            return Silence(self._heard, ns_from_timedelta(timedelta(seconds=threshold)))
        limit = self._limit(threshold)
        return Threshold(self._heard, "context_threshold", "tokens", limit, self._metric(config))

    def _limit(self, options: ContextThreshold) -> int:
        """A share of the window in tokens; the window is the same at every check, or `why_not` says so."""
        moments = self._heard.moments
        window = moments[0].window if moments else UNKNOWN_WINDOW
        if window == _NO_WINDOW:
            window = options.fallback_window or UNKNOWN_WINDOW
        return max(int(window * options.ratio), options.min_tokens)

    def _leaves(self, gate: Gate) -> list[Threshold | Silence]:
        if isinstance(gate, Threshold | Silence):
            return [gate]
        return [leaf for child in getattr(gate, "gates", ()) for leaf in self._leaves(child)]

    def _metric(self, config: RunConfig) -> Metric:
        counter = engine_counter(config)
        if counter.counter_id not in self._metrics:
            self._metrics[counter.counter_id] = (
                RuneSums(self._heard, counter)
                if isinstance(counter, SimpleTokenCounter)
                else LineSums(self._heard, counter)
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


__all__ = ["Firings", "ThresholdSums", "Track", "sums_key"]
