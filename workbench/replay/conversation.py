"""One conversation through the production engine, under one configuration.

In: a recorded conversation, a configuration. Out: the rows of its trace. The recorded answers come from a
recorded model, recorded tool results from a recorded tool executor, time from the virtual loop; everything
else is the runner, service, summarizer and assembly that serve production (WB-RPL-01). Implements the call
time and delays of WB-RPL-08 and the mapping of WB-REC-04.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.agent.flow import InvocationState, SentRequest
from workbench.agent.runner import Runner, RunOptions
from workbench.agent.tools import ToolRound
from workbench.build import billing_counter, build_agent, build_service, engine_counter
from workbench.call import CallContext
from workbench.config import RunConfig
from workbench.facts import words
from workbench.model.client import Model
from workbench.model.types import EMPTY_MESSAGE, Message, Request, Response, ToolCall
from workbench.recordings.types import Conversation, RecordedRequest, is_answer, is_tool_round
from workbench.replay.audit import Audit
from workbench.replay.cache import part_text, tools_text
from workbench.replay.loop import VirtualLoop
from workbench.replay.meter import CallFacts, CallMeter
from workbench.replay.models import UNNAMED, CallModel, ModelPlan, model_plan
from workbench.replay.needed import NeededFacts
from workbench.replay.needed_rows import FactRecorder
from workbench.replay.sources import WatchedModel, summary_model
from workbench.replay.trace import TABLES
from workbench.service.service import SessionService
from workbench.service.summaries import SummaryAttempt, SummaryCheck
from workbench.session.types import Event, Session, SessionKey
from workbench.store.memory import InMemoryStore
from workbench.summary.context import context_with_run_model
from workbench.summary.report import Check, Trigger
from workbench.tokens import LineCounter

Row = tuple[object, ...]
AtEnd = Callable[[SessionService, Session], Awaitable[None]]
_MAX_SEEDS = 32


@dataclass(slots=True)
class ConversationTrace:
    """The rows of one conversation under one configuration, by table."""

    conversation: str
    position: int
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})

    def digest(self) -> str:
        """sha256 over every hashed column of every row, in order."""
        hasher = hashlib.sha256()
        for name, table in TABLES.items():
            kept = [i for i, column in enumerate(table.columns) if column.hashed]
            for row in self.rows[name]:
                line = json.dumps([name, *(row[i] for i in kept)], ensure_ascii=False, separators=(",", ":"))
                hasher.update(line.encode("utf-8", "surrogatepass"))
        return hasher.hexdigest()


class RecordedModel:
    """The main model of a replay: answers what was answered, when it was answered."""

    def __init__(self, script: Script, *, name: str, context_window: int, facts: FactRecorder) -> None:
        self.name = name
        self.context_window = context_window
        self._script = script
        self._facts = facts

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        await self._facts.search()  # what the model could find now, before anything else is stored
        yield await self._script.answer()


class RecordedTools:
    """The tools of a replay: give the recorded results, if there are any."""

    answers_all = True

    def __init__(self, script: Script) -> None:
        self._script = script

    async def execute(self, ctx: CallContext, calls: Sequence[ToolCall]) -> ToolRound:
        event = await self._script.tool_results()
        if event is None:
            return ToolRound(())
        return ToolRound(event.messages, event.skip_summarization)


class _CallReached(BaseException):
    """The call to look at was measured. No `Exception`: nothing on its way may take it for a failure.

    Carries the trace as it was then: summaries that are being written are cancelled, and say so.
    """

    def __init__(self, trace: ConversationTrace) -> None:
        super().__init__()
        self.trace = ConversationTrace(
            trace.conversation, trace.position, {name: list(rows) for name, rows in trace.rows.items()}
        )


class Script:
    """Where a replay stands inside one recorded request, and what comes next."""

    def __init__(self, loop: VirtualLoop, service: SessionService, plan: ModelPlan, facts: FactRecorder) -> None:
        self._loop = loop
        self._service = service
        self._plan = plan
        self._facts = facts
        self._models: dict[CallModel, RecordedModel] = {}
        self._next_call = 0
        self._steps: Sequence[Event] = ()
        self._next = 0
        self._delay_ns = 0
        self._last_recorded: Event | None = None
        self._expected: Event | None = None

    def begin(self, request: RecordedRequest) -> None:
        """Start a request; its message is the event that is stored next."""
        self._steps = request.steps
        self._next = 0
        self._last_recorded = self._expected = request.message
        self._delay_ns = max(self._loop.now_ns() - request.message.time_ns, 0)

    @property
    def model(self) -> RecordedModel:
        """The model that the next call goes to."""
        wanted = self._plan.at(self._next_call)
        if wanted not in self._models:
            self._models[wanted] = RecordedModel(
                self, name=wanted.name or UNNAMED, context_window=wanted.context_window or 0, facts=self._facts
            )
        return self._models[wanted]

    @property
    def has_rest(self) -> bool:
        """Whether something recorded isn't stored yet."""
        return self._next < len(self._steps)

    def make_event(self, event: Event) -> Event:
        """Give an event of the engine the identity of the recorded one it stands for."""
        recorded, self._expected = self._expected, None
        if recorded is None:
            return event.replace(id=f"{event.request_id}:{event.time_ns}")
        return event.replace(
            id=recorded.id,
            author=recorded.author or event.author,
            filter_key=recorded.filter_key or event.filter_key,
            branch=recorded.branch or event.branch,
            invocation_id=recorded.invocation_id or event.invocation_id,
            state_delta=recorded.state_delta,
            tag=recorded.tag,
        )

    async def before_step(self, state: InvocationState) -> None:
        """Store what the recording has between two calls, then wait for the call's time (WB-RPL-08)."""
        while self._next < len(self._steps) and not is_answer(self._steps[self._next]):
            event = self._steps[self._next]
            if is_tool_round(event):  # one event per call of the round: the engine stores the later ones too
                await self.tool_results()
                assert state.store_event is not None
                await state.store_event(state, self.make_event(event.replace(time_ns=self._loop.now_ns())))
            else:
                await self.append(state.session, event)
                self._next += 1
        if self._next >= len(self._steps):
            state.ended = True
            return
        if state.model is not self.model:  # within one request: a new one begins with its own
            state.model = self.model
            state.ctx = context_with_run_model(
                state.ctx, model=state.model, model_context_window=state.model_context_window
            )
        call_ns = self._last_recorded.time_ns if self._last_recorded is not None else 0
        await self._loop.sleep_until(call_ns + self._delay_ns)
        self._delay_ns = max(self._delay_ns, self._loop.now_ns() - call_ns)

    async def answer(self) -> Response:
        """The recorded answer, at its time; a later call of the same request keeps the run going."""
        event = self._steps[self._next]
        self._next += 1
        self._next_call += 1
        await self._loop.sleep_until(event.time_ns + self._delay_ns)
        self._last_recorded = self._expected = event
        response = event.response
        assert response is not None
        continues = any(is_answer(step) for step in self._steps[self._next :])
        if continues and not response.is_tool_call:
            return replace(response, done=False)
        return response if response.done and not response.is_partial else replace(response, done=True, is_partial=False)

    async def tool_results(self) -> Event | None:
        """The recorded results that follow the answer just given, None if it has none."""
        if self._next >= len(self._steps) or not is_tool_round(self._steps[self._next]):
            return None
        event = self._steps[self._next]
        self._next += 1
        await self._loop.sleep_until(event.time_ns + self._delay_ns)
        self._last_recorded = self._expected = event
        return event

    async def append(self, session: Session, event: Event) -> None:
        """Store a recorded event that no part of the engine makes."""
        await self._loop.sleep_until(event.time_ns + self._delay_ns)
        self._last_recorded = event
        await self._service.append_event(session, event.replace(time_ns=self._loop.now_ns()))

    async def append_rest(self, session: Session) -> None:
        """What is recorded behind the last answer."""
        for event in self._steps[self._next :]:
            await self.append(session, event)
        self._next = len(self._steps)


class ConversationReplay:
    """Replays one conversation under one configuration; `run()` once."""

    def __init__(
        self,
        conversation: Conversation,
        config: RunConfig,
        *,
        position: int = 0,
        cache_seed: Sequence[Sequence[str]] = (),
        on_sent: Any = None,
        until_call: int | None = None,
        needed: NeededFacts | None = None,
        at_end: AtEnd | None = None,
        source: Model | None = None,
    ) -> None:
        self._until_call = until_call
        self._at_end = at_end
        self._conversation = conversation
        self._config = config
        self._trace = ConversationTrace(conversation.id, position)
        self._loop = VirtualLoop()
        self._billing: LineCounter = billing_counter(config)
        self._meter = CallMeter(
            self._billing,
            engine_counter(config),
            per_message=config.billing.per_message,
            per_request=config.billing.per_request,
        )
        for texts in cache_seed:
            self._meter.tree.seed(texts)
        self._calls = conversation.calls
        self._plan = model_plan(conversation, config)
        self._on_sent = on_sent
        self._rewritten: dict[tuple[str, str], int] = {}
        self._audit = Audit(conversation.id, config, self._trace.rows["coverage"], self._trace.rows["violations"])
        self._facts = FactRecorder(conversation.id, config, needed, self._audit.coverage, self._trace.rows)
        self._source: Model = summary_model(config, self._billing) if source is None else WatchedModel(source)

    def run(self) -> ConversationTrace:
        """The whole trace of this conversation."""
        conversation = self._conversation
        first = next(iter(conversation.events), None)
        self._loop.set_time(first.time_ns if first is not None else 0)
        self._trace.rows["conversations"].append(self._conversation_row())
        try:
            with _rare_collections():
                self._loop.run(self._replay())
        except _CallReached as reached:
            self._trace = reached.trace
        finally:
            self._loop.close()
        if isinstance(self._source, WatchedModel) and self._source.failure is not None:
            raise self._source.failure
        return self._trace

    async def _replay(self) -> None:
        conversation, config = self._conversation, self._config
        key = SessionKey(conversation.app_name, conversation.user_id, conversation.id)
        store = InMemoryStore(event_limit=config.service.event_limit)
        service = build_service(config, store, summary_model=self._source, clock=self._loop, observer=self)
        session = await service.create_session(key.app_name, key.user_id, key.session_id)
        script = Script(self._loop, service, self._plan, self._facts)
        self._facts.begin(service)
        for event in conversation.seed_events:
            await script.append(session, event)
        self._audit.on_session(session)
        runner = self._runner(service, script)
        for request in conversation.requests:
            await self._replay_request(request, runner, service, script, key)
        await service.wait_for_summaries()
        if self._at_end is not None:
            await self._at_end(service, await _session(service, key))
        await service.close()

    def _runner(self, service: SessionService, script: Script) -> Runner:
        conversation, config = self._conversation, self._config
        agent = build_agent(
            config,
            script.model,
            name=_agent_name(conversation),
            instruction=conversation.instruction,
            tool_specs=conversation.tools,
            tool_executor=RecordedTools(script),
        )
        return Runner(
            app_name=conversation.app_name,
            agent=agent,
            session_service=service,
            clock=self._loop,
            profile=config.engine_profile,
            make_event=script.make_event,
            before_step=script.before_step,
            on_request=lambda sent: self._measure(sent, script),
        )

    async def _replay_request(
        self,
        request: RecordedRequest,
        runner: Runner,
        service: SessionService,
        script: Script,
        key: SessionKey,
    ) -> None:
        await self._loop.sleep_until(request.inputs[0].time_ns)
        script.begin(request)
        if request.earlier or not request.answers:
            session = await _session(service, key)
            for event in request.inputs if not request.answers else request.earlier:
                await script.append(session, event)
            if not request.answers:
                await script.append_rest(session)
                return
            await self._loop.sleep_until(request.message.time_ns)
            script.begin(request)
        options = RunOptions(
            model=script.model,
            request_id=request.message.request_id or request.id,
            # What is recorded of this run is the run's own, so that a summary in its middle spares its newest round.
            invocation_id=request.message.invocation_id,
            # A branch that the application chose for this run decides what the run sees.
            event_filter_key=request.message.filter_key,
        )
        async for _ in runner.run(key.user_id, key.session_id, request.message.message, options):
            pass
        if script.has_rest:  # what is recorded behind the final answer; a run that failed leaves more
            await script.append_rest(await _session(service, key))

    # --- what is written down ------------------------------------------------------------------------

    def _measure(self, sent: SentRequest, script: Script) -> None:
        rows = self._trace.rows["calls"]
        call = self._calls[len(rows)]
        boundary = sent.assembly.summary.boundary if sent.assembly.summary is not None else None
        position = sent.session.position_of(boundary.last_event_id) if boundary is not None else None
        model = self._plan.at(len(rows))
        facts = CallFacts(
            conversation=self._conversation.id,
            call=len(rows),
            request=call.request.index,
            event_id=call.event.id,
            time_ns=self._loop.now_ns(),
            model=model.name,
            window=model.window,
            answer=call.event.message if call.event.response is not None else EMPTY_MESSAGE,
            usage=self._conversation.usage.get(call.event.id),
            boundary_position=position,
            end_position=sent.session.end_position,
        )
        rows.append(self._meter.row(facts, sent))
        self._note_rewrites(sent, len(rows) - 1)
        self._audit.on_call(len(rows) - 1, sent, self._meter.n_shared)
        self._facts.on_call(len(rows) - 1, sent, self._meter.n_shared)
        if self._on_sent is not None:
            self._on_sent(facts, sent)
        if facts.call == self._until_call or self._source_failed:
            raise _CallReached(self._trace)

    @property
    def _source_failed(self) -> bool:
        """The trace is worth nothing from here on, and each further summary would fail again, some after a time-out."""
        return isinstance(self._source, WatchedModel) and self._source.failure is not None

    def _note_rewrites(self, sent: SentRequest, call: int) -> None:
        for rewrite in sent.assembly.new_rewrites:
            key = (rewrite.event_id, rewrite.tool_call_id)
            if self._rewritten.get(key) == rewrite.by_pass:
                continue
            self._rewritten[key] = rewrite.by_pass
            self._trace.rows["compactions"].append(
                (
                    self._conversation.id,
                    call,
                    rewrite.event_id,
                    rewrite.tool_call_id,
                    rewrite.tool_name,
                    rewrite.by_pass,
                    rewrite.tokens_before,
                    rewrite.tokens_after,
                )
            )

    def on_check(self, check: SummaryCheck) -> None:
        """A trigger was evaluated."""
        rows = self._trace.rows["checks"]
        trigger = check.trigger
        decisive = deciding_check(trigger)
        newest = check.session.events[-1].id if check.session.events else ""
        rows.append(
            (
                self._conversation.id,
                len(rows),
                len(self._trace.rows["calls"]),
                newest,
                check.time_ns,
                check.filter_key,
                check.path,
                trigger.fired,
                trigger.name,
                decisive.metric,
                float(decisive.value),
                float(decisive.threshold),
                decisive.unit,
                decisive.context_window,
                float(decisive.threshold_ratio),
                reason_in_words(trigger, decisive),
                json.dumps([_check_tree(one) for one in trigger.checks], ensure_ascii=False, separators=(",", ":")),
            )
        )

    def on_attempt(self, attempt: SummaryAttempt) -> None:
        """A summary was written or copied, or failed."""
        self._audit.on_attempt(attempt)
        rows = self._trace.rows["summaries"]
        call, summary = attempt.report.call, attempt.summary
        text = summary.summary if summary is not None else ""
        boundary = summary.boundary if summary is not None else None
        requests = [_request_texts(request) for request in call.requests]
        request_tokens = sum(self._billing.count_text(text) for texts in requests for text in texts)
        is_copy = attempt.status == "copied"
        error = None if attempt.error is None else f"{type(attempt.error).__name__}: {attempt.error}"
        rows.append(
            (
                self._conversation.id,
                len(rows),
                len(self._trace.rows["calls"]),
                attempt.started_ns,
                attempt.finished_ns,
                attempt.filter_key,
                attempt.status,
                error,
                None if is_copy else call.mode,
                attempt.report.trigger.name,
                attempt.events_covered,
                self._covered_tokens(attempt),
                None if boundary is None else boundary.last_event_id,
                None if boundary is None else boundary.cutoff_ns,
                call.estimated_prompt_tokens,
                request_tokens,
                sum(self._meter.tree.match(texts) for texts in requests),
                0 if is_copy else self._billing.count_text(text),
                words(text),
                len(call.requests),
                call.dropped_chars,
                call.dropped_rounds,
                text,
            )
        )

    def _covered_tokens(self, attempt: SummaryAttempt) -> int:
        session, boundary = attempt.session, None if attempt.summary is None else attempt.summary.boundary
        last = None if boundary is None else session.position_of(boundary.last_event_id)
        if last is None or not attempt.events_covered:
            return 0
        end = last + 1 - session.first_position
        events = session.events[end - attempt.events_covered : end]
        return sum(self._billing.count_text(part_text(message)) for event in events for message in event.messages)

    def _conversation_row(self) -> Row:
        conversation = self._conversation
        return (
            conversation.id,
            self._trace.position,
            conversation.place,
            conversation.format,
            len(conversation.events),
            len(conversation.requests),
            len(conversation.calls),
            conversation.greetings,
            conversation.assumed_time,
            conversation.duration_s,
            conversation.content_hash,
            conversation.model,
        )


def replay_conversation(
    conversation: Conversation,
    config: RunConfig,
    *,
    position: int = 0,
    cache_seed: Sequence[Sequence[str]] = (),
    on_sent: Any = None,
    until_call: int | None = None,
    needed: NeededFacts | None = None,
    at_end: AtEnd | None = None,
    source: Model | None = None,
) -> ConversationTrace:
    """Push one conversation through the engine under one configuration.

    Args:
        cache_seed: Part texts of requests of other conversations that the cache has seen.
        on_sent: Called with `(CallFacts, SentRequest)` at each call; for looking at exact requests.
        until_call: Stop when this call is measured; None = go to the end.
        needed: The conversation's needed facts, to follow what becomes of them; None = don't.
        at_end: What else to do with the session when the recording has ended; its rows are part of the trace.
        source: Who makes the summaries; None = the source that the configuration names.
    """
    return ConversationReplay(
        conversation,
        config,
        position=position,
        cache_seed=cache_seed,
        on_sent=on_sent,
        until_call=until_call,
        needed=needed,
        at_end=at_end,
        source=source,
    ).run()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the cycle collector run seldom: a replay keeps its whole history and makes no cycles call by call, so
    each of its runs would visit everything and free nothing (a third of the time at 10,000 events)."""
    before = gc.get_threshold()
    if before[0]:  # 0: somebody has switched it off
        gc.set_threshold(max(before[0], 50_000), max(before[1], 20), max(before[2], 100))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def cache_seed_of(conversation: Conversation) -> list[str]:
    """The parts that other conversations may share: tool declarations and the instruction."""
    texts = [tools_text(conversation.tools)] if conversation.tools else []
    if conversation.instruction:
        texts.append(part_text(Message(role="system", content=conversation.instruction)))
    return texts


def grown_seeds(seeds: tuple[tuple[str, ...], ...], conversation: Conversation) -> tuple[tuple[str, ...], ...]:
    """What a cache with `cache.scope = corpus` has seen after one more conversation; the oldest is forgotten."""
    seed = tuple(cache_seed_of(conversation))
    return (*seeds, seed)[-_MAX_SEEDS:] if seed and seed not in seeds else seeds


def deciding_check(trigger: Trigger) -> Check:
    """The single check whose value decided: for a tree, the leaf that passed or stopped it."""
    stopped = [check for check in trigger.checks if check.passed == trigger.fired]
    check = next((one for one in stopped if one.name == trigger.name), stopped[-1] if stopped else None)
    if check is None:
        return Check(
            name=trigger.name,
            passed=trigger.fired,
            metric=trigger.metric,
            value=trigger.value,
            threshold=trigger.threshold,
            unit=trigger.unit,
        )
    while check.children:
        inner = [child for child in check.children if child.evaluated and child.passed == check.passed]
        if not inner:
            break
        check = inner[-1]
    return check


def reason_in_words(trigger: Trigger, decisive: Check) -> str:
    """Why a trigger fired, or what stopped it, in one short sentence."""
    if not trigger.fired:
        return trigger.stopped_by or f"{decisive.name} said no"
    if not decisive.unit:
        return f"{trigger.name or 'no check'}: fires whenever there is something new"
    return f"{decisive.name}: {decisive.value:,.0f} {decisive.unit} > {decisive.threshold:,.0f}"


def _check_tree(check: Check) -> dict[str, object]:
    tree: dict[str, object] = {
        "check": check.label or check.name,
        "passed": check.passed if check.evaluated else None,
        "value": check.value,
        "threshold": check.threshold,
        "unit": check.unit,
    }
    if check.counter:
        tree["counter"] = check.counter
    if check.children:
        tree["children"] = [_check_tree(child) for child in check.children]
    return tree


async def _session(service: SessionService, key: SessionKey) -> Session:
    """The session, made anew when it has expired, as the runner does."""
    session = await service.get_session(key)
    return session if session is not None else await service.create_session(key.app_name, key.user_id, key.session_id)


def _request_texts(request: Request) -> list[str]:
    head = [tools_text(request.tools)] if request.tools else []
    return [*head, *(part_text(message) for message in request.messages)]


def _agent_name(conversation: Conversation) -> str:
    """Who answers; a recording with several agents replays as the one that answers first."""
    first = next((call.event.author for call in conversation.calls if call.event.author), "")
    return first or "assistant"
