"""The replay of a suite: every conversation once, through the production engine, and what its summary model was asked.

In: a `Suite`. Out: a `Replayed`: the rows of all traces, requests without their instruction, and requests that the
cassette has no answer to. A check plays; only `record` asks the source that the configuration names (WB-REG-04).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from workbench.build import billing_counter
from workbench.call import CallContext
from workbench.config import RunConfig
from workbench.errors import CassetteMissError, ConfigError
from workbench.evaluate.probes import Probe, load_probes, probe_states
from workbench.model.cassette import Cassette, CassetteModel
from workbench.model.cassette_entry import request_fields
from workbench.model.client import Model
from workbench.model.sized import SizedModel
from workbench.model.types import Message, Request, Response
from workbench.recordings import Recordings, load_recordings
from workbench.recordings.types import Conversation
from workbench.regression.suite import Suite
from workbench.replay.conversation import grown_seeds, replay_conversation
from workbench.replay.needed import NeededFacts, RecordedTexts, needed_facts, term_counts
from workbench.replay.runs import with_unique_ids
from workbench.replay.sources import OnceExtractive, summary_model
from workbench.replay.trace import TABLES
from workbench.replay.workers import worker_pool
from workbench.tokens import LineCounter

Row = dict[str, Any]
_service_log = logging.getLogger("workbench.service.summaries")
_AROUND: Final = 24
"""Characters that are shown on each side of a difference."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A summary request that the cassette has no answer to; the replay of its conversation ends there."""

    conversation: str
    call: int
    """The first call that would see the summary."""
    place: str
    """Where the closest recorded request first differs; empty when the cassette has none."""
    closest: str
    """Line of the closest entry."""
    recorded: str
    """What that one has there."""
    now: str
    """What the request has there."""


@dataclass(frozen=True, slots=True)
class BarePrompt:
    """A summary request that lacks a text that it must hold."""

    conversation: str
    call: int
    lacks: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What became of one probe."""

    conversation: str
    id: str
    call: int
    state: str
    step: str


@dataclass(frozen=True)
class Replayed:
    """Everything that expectations are judged by."""

    config: RunConfig
    conversations: tuple[Conversation, ...]
    tables: dict[str, list[Row]]
    n_prompts: dict[str, int]
    """Summary requests by conversation."""
    bare_prompts: tuple[BarePrompt, ...]
    misses: tuple[Miss, ...]
    probes: tuple[ProbeResult, ...]
    data_hash: str
    problems: tuple[Any, ...] = ()

    def rows(self, table: str, conversation: str | None = None) -> list[Row]:
        """Rows of one trace table, in order."""
        if conversation is None:
            return self.tables[table]
        return self._by_conversation[table].get(conversation, [])

    @cached_property
    def _by_conversation(self) -> dict[str, dict[str, list[Row]]]:
        grouped: dict[str, dict[str, list[Row]]] = {name: {} for name in self.tables}
        for name, rows in self.tables.items():
            for row in rows:
                grouped[name].setdefault(row["conversation"], []).append(row)
        return grouped


def replay_suite(suite: Suite, *, jobs: int = 1, record: bool = False, model: Model | None = None) -> Replayed:
    """Replay all recordings of a suite.

    Args:
        jobs: Processes; the result is the same.
        record: Ask the configuration's own summary source for what the cassette lacks, and keep the answers.
        model: Asked in its place.
    Raises:
        RecordingError: nothing could be loaded.
        ConfigError: there is nobody to ask.
        CassetteFormatError, ModelError: the cassette can't be read, or the model fails.
    """
    record = record or model is not None
    recordings = load_recordings(list(suite.sources), format=suite.rules.format)
    conversations = tuple(with_unique_ids(recordings))
    tasks = _tasks(suite, conversations, recordings, record=record)
    if jobs < 1:
        raise ConfigError.for_field("jobs", jobs, "1 or more")
    if jobs == 1 or record:
        parts = [_replay_one(task, model) for task in tasks]
    else:
        with worker_pool(jobs) as pool:
            parts = list(pool.map(_replay_one, tasks))
    if record and suite.cassette is not None:
        Cassette(suite.cassette).tidy()
    tables: dict[str, list[Row]] = {name: [row for part in parts for row in part.tables[name]] for name in TABLES}
    return Replayed(
        config=suite.config,
        conversations=conversations,
        tables=tables,
        n_prompts={task.conversation.id: part.n_prompts for task, part in zip(tasks, parts, strict=True)},
        bare_prompts=tuple(one for part in parts for one in part.bare_prompts),
        misses=tuple(part.miss for part in parts if part.miss is not None),
        probes=tuple(one for part in parts for one in part.probes),
        data_hash=recordings.data_hash,
        problems=recordings.problems,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """One conversation with all that its replay needs, in any process."""

    suite: Suite
    conversation: Conversation
    position: int
    seeds: tuple[tuple[str, ...], ...]
    needed: NeededFacts
    probes: tuple[Probe, ...]
    record: bool


@dataclass(slots=True)
class _Part:
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    n_prompts: int = 0
    bare_prompts: list[BarePrompt] = field(default_factory=list)
    miss: Miss | None = None
    probes: list[ProbeResult] = field(default_factory=list)


def _tasks(suite: Suite, conversations: Sequence[Conversation], recordings: Recordings, *, record: bool) -> list[_Task]:
    counts = term_counts(recordings)
    probes = [probe for path in suite.probes for probe in load_probes(path)]
    _check_probes(probes, conversations, suite)
    tasks = []
    before: RecordedTexts | None = None
    seeds: tuple[tuple[str, ...], ...] = ()
    for position, conversation in enumerate(conversations):
        texts = RecordedTexts(conversation)
        own = tuple(probe for probe in probes if probe.conversation == conversation.id)
        used = seeds if suite.config.cache.scope == "corpus" else ()
        needed = needed_facts(texts, counts, other=before)
        tasks.append(_Task(suite, conversation, position, used, needed, own, record))
        before = texts
        seeds = grown_seeds(seeds, conversation)
    return tasks


def _check_probes(probes: Sequence[Probe], conversations: Sequence[Conversation], suite: Suite) -> None:
    known = {conversation.id for conversation in conversations}
    twice = next((name for name, n in Counter(probe.id for probe in probes).items() if n > 1), None)
    if twice is not None:
        raise ConfigError(f"{suite.path}: probes: two are named {twice!r}", field="probes", hint="give each its own id")
    if lost := next((probe for probe in probes if probe.conversation not in known), None):
        raise ConfigError(
            f"{suite.path}: probes: {lost.id} asks about conversation {lost.conversation!r}, which isn't recorded here",
            field="probes",
            hint="name its recording too, or leave the probe out",
        )


def _replay_one(task: _Task, model: Model | None = None) -> _Part:
    suite, conversation = task.suite, task.conversation
    config = suite.config if task.record else _to_play(suite)
    listener = _Listener(_source(suite, config, model, record=task.record), suite.rules.summaries.prompt_holds)
    part = _Part()
    try:
        with _told_once(listener):
            trace = replay_conversation(
                conversation,
                config,
                position=task.position,
                cache_seed=task.seeds,
                on_sent=listener.on_sent,
                needed=task.needed,
                source=listener,
            )
    except CassetteMissError as error:
        part.miss = _miss(conversation.id, listener, error, suite)
    else:
        for name, table in TABLES.items():
            part.tables[name] = [dict(zip(table.column_names, row, strict=True)) for row in trace.rows[name]]
        if task.probes:
            # The same summaries once more: a cassette and the offline sources answer alike.
            states = probe_states(conversation, task.probes, _to_play(suite))
            part.probes = [ProbeResult(conversation.id, s.probe.id, s.call, s.state, s.step) for s in states]
    part.n_prompts = listener.n_requests
    part.bare_prompts = [BarePrompt(conversation.id, call, lacks) for call, lacks in listener.bare]
    return part


# --- who is asked ---------------------------------------------------------------------------------------


class _Listener:
    """Another model, with what is remarkable about its requests."""

    def __init__(self, model: Model, must_hold: Sequence[str]) -> None:
        self._model = model
        self.name = model.name
        self.context_window = model.context_window
        self.n_requests = 0
        self.bare: list[tuple[int, str]] = []
        """First call that can see the summary, and the text that its request lacks."""
        self.missed: tuple[int, Request] | None = None
        self._must_hold = must_hold
        self._n_calls = 0

    def on_sent(self, facts: Any, sent: Any) -> None:
        self._n_calls = facts.call + 1

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        self.n_requests += 1
        if self._must_hold:
            text = "\n".join(_texts_of(request.messages))
            self.bare += [(self._n_calls, wanted) for wanted in self._must_hold if wanted not in text]
        try:
            async for response in self._model.generate(ctx, request):
                yield response
        except CassetteMissError:
            self.missed = self.missed or (self._n_calls, request)
            raise


@contextmanager
def _told_once(listener: _Listener) -> Iterator[None]:
    """What is missing in a cassette is a finding, so the service's log needn't warn of it too."""

    def is_news(record: logging.LogRecord) -> bool:
        return listener.missed is None

    _service_log.addFilter(is_news)
    try:
        yield
    finally:
        _service_log.removeFilter(is_news)


def _texts_of(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        yield message.content
        yield from (part.text for part in message.content_parts if part.type == "text")


class _NothingRecorded:
    """A cassette without a file, or without an entry."""

    name = ""
    context_window = 0

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        raise CassetteMissError("nothing is recorded")
        yield  # makes it a generator


def _has_answers(suite: Suite) -> bool:
    return suite.cassette is None or (suite.cassette.exists() and len(Cassette(suite.cassette)) > 0)


def _to_play(suite: Suite) -> RunConfig:
    """The configuration with summaries from the cassette; one without entries can't be opened as a source."""
    return suite.to_play if _has_answers(suite) else suite.config.replace(summaries={"source": "sized"})


def _source(suite: Suite, config: RunConfig, model: Model | None, *, record: bool) -> Model:
    """Who makes the summaries; what is recorded already is never asked again."""
    billing = billing_counter(config)
    summaries = config.summaries
    if config.summarizer is not None and not record and not _has_answers(suite):
        return _NothingRecorded()
    if not record or config.summarizer is None:
        return summary_model(config, billing)
    if suite.cassette is None:
        raise ConfigError(
            f"{suite.path}: cassette is missing", field="cassette", hint='name a file, e.g. cassette = "answers.jsonl"'
        )
    if model is not None:
        return CassetteModel(Cassette(suite.cassette), model, "auto", name=summaries.model)
    if summaries.source == "cassette":
        raise ConfigError(
            f"{suite.path}: summaries.source = 'cassette' names nobody to ask",
            field="summaries.source",
            value="cassette",
            allowed="live, extractive or sized, to record",
            hint="a check plays the cassette whatever the source is",
        )
    if summaries.source == "live":
        return summary_model(config.replace(summaries={"cassette": str(suite.cassette)}), billing)
    return CassetteModel(Cassette(suite.cassette), _offline(config, billing), "auto")


def _offline(config: RunConfig, billing: LineCounter) -> Model:
    if config.summaries.source == "sized":
        return SizedModel(config.summaries.sized_tokens, billing)
    return OnceExtractive()


# --- what isn't recorded --------------------------------------------------------------------------------


def _miss(conversation: str, listener: _Listener, error: CassetteMissError, suite: Suite) -> Miss:
    call, request = listener.missed or (0, Request())
    if suite.cassette is None or not _has_answers(suite):
        return Miss(conversation, call, "", "", "", "")
    cassette = Cassette(suite.cassette)
    cassette.entries()
    fields = request_fields(listener.name, request)
    closest = cassette.closest(fields)
    if closest is None:
        return Miss(conversation, call, "", "", "", "")
    place = closest.field if closest.position is None else f"{closest.field} at character {closest.position:,}"
    recorded = _excerpt(closest.entry.request, closest.field, closest.position)
    now = _excerpt(fields, closest.field, closest.position)
    return Miss(conversation, call, place, error.closest, recorded, now)


def _excerpt(fields: Any, path: str, position: int | None) -> str:
    """What stands at a path such as `messages[1].content`, around a character of it."""
    value: Any = fields
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return "nothing"
    if position is None or not isinstance(value, str):
        return str(value)[: 2 * _AROUND]
    start, end = max(position - _AROUND, 0), position + _AROUND
    return f"{'…' if start else ''}{value[start:end]}{'…' if end < len(value) else ''}"
