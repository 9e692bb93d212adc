"""The runner: one top-level request from the user's message to the last event.

In: user, session, message, options. Out: the events of the run, each stored, and a summary job after each
that deserves one. Implements ASM-RUN-01 to -05, -11 to -14 and SUM-RNR-01 to -06.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from workbench.agent.agent import LLMAgent
from workbench.agent.flow import (
    BeforeStep,
    EventMaker,
    InvocationState,
    LLMFlow,
    RequestObserver,
)
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import Clock, SystemClock
from workbench.context.incremental import ContentAssembler
from workbench.context.preload import MemoryReader
from workbench.errors import ConfigError, SessionExistsError
from workbench.model.client import Model
from workbench.model.types import EMPTY_MESSAGE, SYSTEM, USER, Choice, Message, Response, response_of
from workbench.profiles import SEED, Profile
from workbench.service.service import SessionService
from workbench.session.types import Event, Session, SessionKey
from workbench.summary.context import (
    RequestStart,
    context_with_request_start,
    context_with_run_model,
)

logger = logging.getLogger(__name__)

UserMessageRewriter = Callable[[CallContext, Message], Awaitable[Sequence[Message]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of one run (ASM-RUN-13).

    Args:
        invocation_id: The id that this run's events carry; empty = one is made.
        messages: Fill an empty session with this history; its last user message may be the current one.
        model_context_window: This run's window for thresholds, in tokens; 0 = the model's own.
        user_message_rewriter: Turns the message into an ordered list; the last is the invocation's message.
    """

    request_id: str = ""
    invocation_id: str = ""
    event_filter_key: str = ""
    model: Model | None = None
    model_name: str = ""
    model_context_window: int = 0
    messages: Sequence[Message] = ()
    injected_context_messages: Sequence[Message] = ()
    late_context_messages: Sequence[Message] = ()
    user_message_rewriter: UserMessageRewriter | None = None
    include_contents: str = "default"
    ctx: CallContext = EMPTY_CONTEXT


_MAX_ASSEMBLERS = 256  # of sessions not at work now, so that a long-lived runner stays small


@dataclass(slots=True, kw_only=True)
class Runner:
    """Runs one agent over a session service.

    Args:
        app_name: The application; also the filter key of its events unless a run sets one.
        models: Models that a run may choose by name.
        memory_service: Where an agent's `preload_memory` reads; None preloads no memories.
        make_event: Completes each event (default: a random id where it has none).
        before_step: Awaited before each model step, when all earlier events are stored.
        on_request: Is shown every request exactly as sent.
    """

    app_name: str
    agent: LLMAgent
    session_service: SessionService
    models: dict[str, Model] = field(default_factory=dict)
    memory_service: MemoryReader | None = None
    clock: Clock = field(default_factory=SystemClock)
    profile: Profile = SEED
    make_event: EventMaker | None = None
    before_step: BeforeStep | None = None
    on_request: RequestObserver | None = None
    _assemblers: dict[tuple[SessionKey, str], ContentAssembler] = field(default_factory=dict)

    async def run(
        self, user_id: str, session_id: str, message: Message | str, options: RunOptions | None = None
    ) -> AsyncIterator[Event]:
        """Events of one top-level request, each already stored when it is yielded."""
        options = options if options is not None else RunOptions()
        started_ns = self.clock.now_ns()
        request_id = options.request_id or str(uuid4())
        message = Message(role=USER, content=message) if isinstance(message, str) else message
        if not message.role and (message.has_payload or message.tool_calls):
            message = replace(message, role=USER)
        session = await self._session(SessionKey(self.app_name, user_id, session_id))
        state = self._state(session, request_id, message, options, started_ns)
        async for event in self._persist_input(state, message, options):
            yield event
        async for event in self._run_agent(state):
            yield event

    # --- set up --------------------------------------------------------------------------------------

    async def _session(self, key: SessionKey) -> Session:
        session = await self.session_service.get_session(key)
        if session is not None:
            return session
        try:
            return await self.session_service.create_session(key.app_name, key.user_id, key.session_id)
        except SessionExistsError:  # somebody else was faster
            session = await self.session_service.get_session(key)
            if session is None:
                raise
            return session

    def _model(self, options: RunOptions) -> Model:
        """Run's model, else by name, else the agent's (ASM-RUN-12)."""
        if options.model is not None:
            return options.model
        if options.model_name:
            if options.model_name in self.models:
                return self.models[options.model_name]
            logger.warning("model %r isn't known to the runner; the agent's own is used", options.model_name)
        return self.agent.model

    def _state(
        self, session: Session, request_id: str, message: Message, options: RunOptions, started_ns: int
    ) -> InvocationState:
        if options.model_context_window < 0:
            raise ConfigError.for_field("model_context_window", options.model_context_window, "0 or more tokens")
        model = self._model(options)
        ctx = context_with_request_start(options.ctx, RequestStart(request_id, started_ns))
        ctx = context_with_run_model(ctx, model=model, model_context_window=options.model_context_window)
        agent = self.agent
        return InvocationState(
            agent=agent,
            assembler=self._assembler(session, agent),
            session=session,
            service=self.session_service,
            profile=self.profile,
            clock=self.clock,
            model=model,
            request_id=request_id,
            invocation_id=options.invocation_id or (str(uuid4()) if self.make_event is None else request_id),
            filter_key=options.event_filter_key or self.app_name,
            branch=agent.name,
            message=message,
            model_context_window=options.model_context_window,
            ctx=ctx,
            injected_context_messages=tuple(options.injected_context_messages),
            late_context_messages=tuple(options.late_context_messages),
            include_contents=options.include_contents,
            memory_service=self.memory_service,
            make_event=self.make_event if self.make_event is not None else _with_random_id,
            before_step=self.before_step,
            store_event=self._process,
            on_request=self.on_request,
        )

    def _assembler(self, session: Session, agent: LLMAgent) -> ContentAssembler:
        """One assembler per session and agent, so that a run goes on where the last one ended.

        One that was dropped is made again from the session, with the same requests.
        """
        key = (session.key, agent.name)
        assembler = self._assemblers.pop(key, None)
        if assembler is None:
            assembler = ContentAssembler(
                agent.settings,
                agent.compaction,
                counter=agent.compaction_counter,
                summary_formatter=agent.summary_formatter,
                skip_recent_func=agent.skip_recent_func,
                profile=self.profile,
                sanitize=True,
            )
        self._assemblers[key] = assembler  # the latest last
        if len(self._assemblers) > _MAX_ASSEMBLERS:
            del self._assemblers[next(iter(self._assemblers))]
        return assembler

    # --- input ---------------------------------------------------------------------------------------

    async def _persist_input(
        self, state: InvocationState, message: Message, options: RunOptions
    ) -> AsyncIterator[Event]:
        """Store seed history and the current turn (ASM-RUN-11, -14)."""
        seed = list(options.messages) if not state.session.events else []
        current_is_seeded = bool(seed) and _last_spoken(seed) == message
        seed_ids: list[str] = []
        turn_ids: list[str] = []
        for i, past in enumerate(seed):
            is_current = current_is_seeded and past == message and past is _last_spoken(seed)
            event = await self._store_input(state, past)
            (turn_ids if is_current else seed_ids).append(event.id)
            logger.debug("seeded message %d of %d", i + 1, len(seed))
        turn: Sequence[Message] = ()
        if not current_is_seeded and (message.has_payload or message.tool_calls):
            turn = [message]
            if options.user_message_rewriter is not None:
                turn = await options.user_message_rewriter(state.ctx, message)
                state.message = turn[-1] if turn else EMPTY_MESSAGE
        stored = []
        for part in turn:
            stored.append(await self._store_input(state, part))
            turn_ids.append(stored[-1].id)
        state.seed_history_ids = frozenset(seed_ids)
        state.current_turn_ids = frozenset(turn_ids)
        for event in stored:
            yield event

    async def _store_input(self, state: InvocationState, message: Message) -> Event:
        author = USER if message.is_user_like else state.agent.name
        event = state.new_event(response_of(message), author=author)
        stored = await self.session_service.append_event(state.session, event, ctx=state.ctx)
        return stored if stored is not None else event

    # --- the agent -----------------------------------------------------------------------------------

    async def _run_agent(self, state: InvocationState) -> AsyncIterator[Event]:
        flow = LLMFlow()
        async for event in flow.run(state):
            yield await self._process(_innermost(state), event)

    async def _process(self, state: InvocationState, event: Event) -> Event:
        """Fill error content, store, enqueue (ASM-RUN-03)."""
        event = _with_error_content(event)
        response = event.response
        is_complete = bool(event.state_delta) or (
            response is not None and not response.is_partial and response.is_valid_content
        )
        if not is_complete:
            return event
        try:
            stored = await self.session_service.append_event(state.session, event, ctx=state.ctx)
        except Exception:  # the user still gets the answer; only its storage failed
            logger.exception("event %s of session %s can't be stored", event.id, state.session.id)
            return event
        if stored is None:
            return event
        state.extend_fork_parent(stored)
        if self._may_enqueue(state, stored):
            await self._enqueue(state, stored)
        return stored

    def _may_enqueue(self, state: InvocationState, event: Event) -> bool:
        """At most one job per event, and none for these (ASM-RUN-04)."""
        response = event.response
        if response is None or not response.is_valid_content or event.skip_summarization:
            return False
        if response.is_user_message or response.is_tool_call:
            return False
        if response.error is not None and not self.profile.job_after_error_event:
            return False
        if not response.is_tool_result:
            return True
        return not state.agent.settings.sync_summary_intra_run and not _leaves_calls_open(state.session)

    async def _enqueue(self, state: InvocationState, event: Event) -> None:
        try:
            await self.session_service.enqueue_summary_job(
                state.session, event.filter_key, force=False, ctx=state.summary_ctx()
            )
        except Exception as error:  # a summary never breaks a run (SUM-RNR-03)
            logger.warning("summary after event %s failed: %s", event.id, error)


def _leaves_calls_open(session: Session) -> bool:
    """Whether calls of the round that the last event belongs to still wait for their results (SUM-RNR-04)."""
    answered: set[str] = set()
    for event in reversed(session.events):
        response = event.response
        if response is not None and response.is_tool_call:
            return any(call.id not in answered for call in event.message.tool_calls)
        if response is None or not response.is_tool_result:
            return False
        answered.update(message.tool_id for message in event.messages)
    return False


def _innermost(state: InvocationState) -> InvocationState:
    """The invocation that is at work: a transfer hands over to a child."""
    while state.active is not None:
        state = state.active
    return state


def _last_spoken(messages: Sequence[Message]) -> Message | None:
    """The last message that isn't system and isn't empty."""
    return next((m for m in reversed(messages) if m.role != SYSTEM and (m.has_payload or m.tool_calls)), None)


def _with_random_id(event: Event) -> Event:
    return event if event.id else event.replace(id=str(uuid4()))


def _with_error_content(event: Event) -> Event:
    """An error event without content says its error (ASM-EVT-09)."""
    response = event.response
    if response is None or response.error is None or event.message.content:
        return event
    text = f"type: {response.error.type}, message: {response.error.message}"
    first = response.choices[0] if response.choices else Choice()
    filled = replace(first, message=replace(first.message, role=first.message.role or "assistant", content=text))
    choices = (filled, *response.choices[1:])
    return event.replace(response=replace(response, choices=choices))


__all__ = ["Response", "RunOptions", "Runner"]
