"""The tables of a trace: what a replay writes down, column by column.

In: nothing. Out: `TABLES`, the one description that the run file, the data frames, `workbench sql` and the
README share. A trace row is a plain tuple in column order. Implements WB-RPL-03 to -06, -11, -13, -18, -19
and the rows of WB-RET-01.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column: DuckDB type and meaning; `hashed` says whether it takes part in `trace_hash`."""

    name: str
    type: str
    doc: str
    hashed: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a run file."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def as_dict(self) -> dict[str, object]:
        """Name, meaning and columns as JSON values."""
        columns = [{"name": column.name, "type": column.type, "doc": column.doc} for column in self.columns]
        return {"name": self.name, "doc": self.doc, "columns": columns}


def _table(name: str, doc: str, *columns: tuple[str, str, str] | tuple[str, str, str, bool]) -> Table:
    return Table(name, doc, tuple(Column(*column) for column in columns))


_CONVERSATION = ("conversation", "VARCHAR", "id of the conversation")

CONVERSATIONS = _table(
    "conversations",
    "One row per replayed conversation.",
    _CONVERSATION,
    ("position", "INTEGER", "place in the run, from 0"),
    ("source", "VARCHAR", "file and place it was read from", False),
    ("format", "VARCHAR", "recording format"),
    ("events", "INTEGER", "events of the recording"),
    ("requests", "INTEGER", "top-level requests: human turns"),
    ("calls", "INTEGER", "main-model calls"),
    ("greetings", "INTEGER", "assistant messages before any user message: history, no call"),
    ("assumed_time", "BOOLEAN", "the recording has no times; a synthetic clock was used"),
    ("duration_s", "DOUBLE", "seconds from the first to the last event"),
    ("content_hash", "VARCHAR", "sha256 of the recorded events"),
    ("model", "VARCHAR", "the recorded model; empty if the recording doesn't say"),
)

CALLS = _table(
    "calls",
    "One row per main-model call: the request this configuration would have sent, after tailoring.",
    _CONVERSATION,
    ("call", "INTEGER", "index of the call in its conversation, from 0"),
    ("request", "INTEGER", "index of the top-level request it belongs to, from 0"),
    ("event_id", "VARCHAR", "the recorded assistant event that answers it"),
    ("time_ns", "BIGINT", "virtual time of the call, nanoseconds since 1970 UTC"),
    ("messages", "INTEGER", "messages in the request"),
    ("prompt_tokens", "INTEGER", "tokens of the request by the billing counter; sum of the columns below"),
    ("system_tokens", "INTEGER", "instruction and other system messages, without the summary"),
    ("summary_tokens", "INTEGER", "the injected summary (message with it minus message without)"),
    ("history_tokens", "INTEGER", "user and assistant messages of the past"),
    ("tool_result_tokens", "INTEGER", "tool messages"),
    ("schema_tokens", "INTEGER", "tool declarations"),
    ("current_tokens", "INTEGER", "the current user message"),
    ("overhead_tokens", "INTEGER", "per-message and per-request overhead of the billing rule"),
    ("estimated_tokens", "INTEGER", "tokens of the messages by the engine's counter"),
    ("window", "INTEGER", "context window of the model; null if unknown"),
    ("window_share", "DOUBLE", "prompt_tokens / window; null if unknown"),
    ("overflow", "BOOLEAN", "prompt_tokens exceed the window; null if unknown"),
    ("summary_key", "VARCHAR", "filter key of the summary in the request; null without one"),
    ("boundary_event_id", "VARCHAR", "last event that this summary covers; null without one"),
    ("summary_age_events", "INTEGER", "events after that boundary; null without one"),
    ("prefix_tokens", "INTEGER", "leading tokens equal to an earlier request; null on a first call"),
    ("reusable_tokens", "INTEGER", "tokens of the longest earlier request still alive; null on a first call"),
    ("prefix_call", "INTEGER", "newest earlier call with this whole prefix; null if it is another conversation's"),
    ("recent_prefix_tokens", "INTEGER", "leading tokens equal to the call just before; null on a first call"),
    ("partial_tokens", "INTEGER", "end of the prefix that is the beginning of a changed message; null on a first call"),
    ("break_cause", "VARCHAR", "why the prefix is shorter than it could be; null when it isn't"),
    ("break_part", "INTEGER", "index of the first differing part (0 = tools, if any); null without a break"),
    ("lost_tokens", "INTEGER", "after a break: tokens of the call before that this one had to send anew"),
    ("pass0_results", "INTEGER", "tool results replaced by policy (compaction pass 0)"),
    ("pass1_results", "INTEGER", "historical tool results replaced (pass 1)"),
    ("pass2_results", "INTEGER", "oversized tool results cut (pass 2)"),
    ("pass0_saved_tokens", "INTEGER", "what pass 0 took out of this request, by the engine's counter"),
    ("pass1_saved_tokens", "INTEGER", "the same for pass 1"),
    ("pass2_saved_tokens", "INTEGER", "the same for pass 2"),
    ("compaction_saved_tokens", "INTEGER", "the same for all of compaction, resume tail included"),
    ("tailored_messages", "INTEGER", "messages dropped by token tailoring"),
    ("tailored_tokens", "INTEGER", "tokens dropped by token tailoring, by the engine's counter"),
    ("recorded_prompt_tokens", "INTEGER", "what the recording's provider reported; null if it didn't"),
    ("recorded_completion_tokens", "INTEGER", "the same for the answer"),
    ("recorded_cached_tokens", "INTEGER", "the same for tokens read from the prompt cache"),
    ("answer_tokens", "INTEGER", "tokens of the recorded answer by the billing counter"),
    ("model", "VARCHAR", "the model that the call goes to; empty if nobody names it"),
)

CHECKS = _table(
    "checks",
    "One row per trigger evaluation, fired or not.",
    _CONVERSATION,
    ("check", "INTEGER", "index of the evaluation in its conversation, from 0"),
    ("call", "INTEGER", "index of the next call at that moment; a summary made here is seen from there on"),
    ("event_id", "VARCHAR", "newest event when the check ran"),
    ("time_ns", "BIGINT", "virtual time"),
    ("filter_key", "VARCHAR", "key that would be summarised; empty = full session"),
    ("path", "VARCHAR", "async, sync (queue full or no worker), intra_run, pre_call, manual, copy"),
    ("fired", "BOOLEAN", "the check passed"),
    ("name", "VARCHAR", "deciding check: event_threshold, token_threshold, ..., always, force"),
    ("metric", "VARCHAR", "what it measured: events, tokens, duration, custom"),
    ("value", "DOUBLE", "what it measured, in `unit`"),
    ("threshold", "DOUBLE", "the limit; firing needs value > threshold"),
    ("unit", "VARCHAR", "events, tokens, milliseconds"),
    ("context_window", "INTEGER", "window used by a context threshold, else 0"),
    ("threshold_ratio", "DOUBLE", "its ratio, else 0"),
    ("reason", "VARCHAR", "in words: why it fired or what stopped it"),
    ("detail", "VARCHAR", "JSON: every evaluated check with its counter, nested trees as a truth table"),
)

SUMMARIES = _table(
    "summaries",
    "One row per attempt of a summary, also failed ones and copies to another key.",
    _CONVERSATION,
    ("summary", "INTEGER", "index of the attempt in its conversation, from 0"),
    ("call", "INTEGER", "index of the first call that can see it"),
    ("started_ns", "BIGINT", "virtual time at which its delta was read"),
    ("written_ns", "BIGINT", "virtual time at which it was stored or failed"),
    ("filter_key", "VARCHAR", "key it is stored under; empty = full session"),
    ("status", "VARCHAR", "written, copied, failed, discarded"),
    ("error", "VARCHAR", "kind and text of the failure; null without one"),
    ("mode", "VARCHAR", "standalone, cache_safe_fork, custom_response"),
    ("trigger", "VARCHAR", "name of the trigger that started it"),
    ("events_covered", "INTEGER", "events between the old boundary and the new one"),
    ("covered_tokens", "INTEGER", "tokens of those events by the billing counter"),
    ("boundary_event_id", "VARCHAR", "last covered event"),
    ("cutoff_ns", "BIGINT", "its time"),
    ("estimated_tokens", "INTEGER", "estimate of the request by the engine's counter"),
    ("request_tokens", "INTEGER", "tokens of the requests by the billing counter, retries included"),
    ("prefix_tokens", "INTEGER", "leading tokens of these requests that a main call had sent before"),
    ("completion_tokens", "INTEGER", "tokens of the text by the billing counter"),
    ("words", "INTEGER", "words of the text (WB-RPL-07b)"),
    ("model_calls", "INTEGER", "calls of the summary model, 2 = retried"),
    ("dropped_chars", "INTEGER", "characters of the source that were cut before the model read it"),
    ("dropped_rounds", "INTEGER", "source rounds dropped from a fork"),
    ("text", "VARCHAR", "the summary"),
)

COMPACTIONS = _table(
    "compactions",
    "One row per tool result when it is first rewritten in a request, and again when its form changes.",
    _CONVERSATION,
    ("call", "INTEGER", "first call whose request holds this form"),
    ("event_id", "VARCHAR", "event of the result"),
    ("tool_call_id", "VARCHAR", "the call it answers"),
    ("tool_name", "VARCHAR", "the tool"),
    ("pass", "INTEGER", "0 policy, 1 historical, 2 oversized, 3 resume tail"),
    ("tokens_before", "INTEGER", "by the compaction counter"),
    ("tokens_after", "INTEGER", "by the compaction counter"),
)

COVERAGE = _table(
    "coverage",
    "One row per range of events that came into another state with a call; each event has its last row's state.",
    _CONVERSATION,
    ("call", "INTEGER", "first call with this state"),
    (
        "first_position",
        "INTEGER",
        "first event of the range; events count from 0 in the order in which they were stored",
    ),
    ("last_position", "INTEGER", "last event of the range"),
    ("event_id", "VARCHAR", "the first event; null for one that no run saw"),
    ("state", "VARCHAR", "raw, covered, covered_cut, raw_and_covered, rewritten, dropped, hidden; lost is a violation"),
    ("detail", "VARCHAR", "the rule, the step or the filter; empty where the state says it all"),
)

VIOLATIONS = _table(
    "violations",
    "One row per fault of a request, at the first call that has it: of the engine, or of a configuration.",
    _CONVERSATION,
    ("call", "INTEGER", "the call"),
    ("kind", "VARCHAR", "protocol: a provider may refuse it; coverage: an event is lost, or there twice"),
    ("rule", "VARCHAR", "what is broken"),
    ("message", "INTEGER", "index of the message in the request; null when it's about something missing"),
    ("event_id", "VARCHAR", "the stored event behind it; null without one"),
    ("step", "VARCHAR", "the step that did it: selection, projection, injection, compaction, tailoring, ..."),
    ("detail", "VARCHAR", "the tool call id, or the role"),
)

NEEDED_FACTS = _table(
    "needed_facts",
    "One row per fact and call that needs it: the recorded answer used it, and it was said well before.",
    _CONVERSATION,
    ("call", "INTEGER", "the call that needs it"),
    ("kind", "VARCHAR", "class of the fact: url, email, ..., identifier, number, quoted, name, cjk, hangul, code"),
    ("value", "VARCHAR", "the fact, as the answer has it"),
    ("source_position", "INTEGER", "recorded event that said it first, from 0"),
    ("source_event_id", "VARCHAR", "its id"),
    ("source_role", "VARCHAR", "who said it first: user, assistant, tool, system"),
    ("state", "VARCHAR", "visible_raw, visible_summary, recoverable, lost"),
    ("step", "VARCHAR", "what took that event out of the request; empty while a message says the fact"),
    ("summaries", "INTEGER", "summaries in a row that the event went through; 0 when none covers it"),
)

FACT_CHANCE = _table(
    "fact_chance",
    "One row per conversation and class of facts: how many are found needed with another conversation's history.",
    _CONVERSATION,
    ("compared_with", "VARCHAR", "the other conversation"),
    ("kind", "VARCHAR", "class of the facts"),
    ("needed", "INTEGER", "needed facts of this class"),
    ("by_chance", "INTEGER", "what the same answers would need of the other conversation's history"),
)

TABLES = {
    table.name: table
    for table in (
        CONVERSATIONS, CALLS, CHECKS, SUMMARIES, COMPACTIONS, COVERAGE, VIOLATIONS, NEEDED_FACTS, FACT_CHANCE
    )
}  # fmt: skip

# Causes of a prefix break (WB-CACHE-03), in the words of the trace.
BREAK_CAUSES = {
    "first_call": "no earlier request",
    "instruction_changed": "the instruction changed",
    "tools_changed": "the tool declarations changed",
    "model_changed": "the model changed, and its cache had nothing",
    "summary_appeared": "a first summary took the place of history",
    "summary_updated_system": "a new summary changed the system message",
    "summary_updated_user": "a new summary changed the user block",
    "summary_moved": "the summary block moved to another message",
    "compaction_placeholder": "a tool result became a placeholder (pass 0 or 1)",
    "compaction_truncation": "a tool result was cut (pass 2)",
    "tailoring": "tailoring dropped a round",
    "history_limit": "the history limit or event limit moved",
    "resume_tail": "the resume tail of an intra-run summary changed",
    "covered_turn_ended": "a summarised turn ended, and its user message left with it",
    "preload_changed": "preloaded memory or recall changed",
    "expired": "the cached prefix had expired",
    "other": "another change",
}
