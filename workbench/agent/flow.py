"""The loop of model and tool calls of one agent invocation.

In: an invocation's state. Out: events, one by one; whoever takes them (the runner) stores each before the
next step begins, so that assembly sees it. Implements ASM-CHAIN-01, -02, -06, ASM-RETRY, ASM-INTRA-01 to
-04, ASM-RUN-07 to -09 and the producer side of ASM-VIEW.

One step: assemble -> overview and guidance -> sanitise -> near the window: one summary attempt and rebuild
-> before-model calls -> fork parent -> tailoring -> model -> tools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from workbench.agent.agent import LLMAgent
from workbench.agent.sub_agents import TRANSFER_TOOL, CurrentInvocation, child_state, transfer_result, transfer_spec
from workbench.agent.tools import TOOL_ERROR_PREFIX, ToolRound
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import Clock
from workbench.context.assemble import Assembly, Invocation
from workbench.context.incremental import ContentAssembler
from workbench.context.preload import MemoryReader, load_memory_block, load_recall_block
from workbench.context.recall import RecallRun, call_on_demand_tool, on_demand_overview, on_demand_tools
from workbench.context.recall.tools import SESSION_LOAD, SESSION_SEARCH
from workbench.context.tailor import (
    Tailored,
    input_token_budget,
    strategy_named,
    tailor_assembly,
    tokens_of_assembly,
    window_for_tailoring,
)
from workbench.errors import ModelError, TokenTailoringOverflowError, WorkbenchError
from workbench.model.client import Model
from workbench.model.types import (
    ASSISTANT,
    EMPTY_MESSAGE,
    SYSTEM,
    TOOL,
    Message,
    Request,
    Response,
    ResponseError,
    ToolCall,
    ToolSpec,
    response_of,
)
from workbench.model.windows import UNKNOWN_WINDOW, resolve_context_window
from workbench.profiles import Profile
from workbench.service.service import SessionService
from workbench.service.summaries import context_with_path
from workbench.session.types import Event, Session, Summary
from workbench.summary.context import context_with_cache_safe_fork_request
from workbench.summary.view import SummaryView, ViewItem, context_with_summary_view

logger = logging.getLogger(__name__)

PRE_CALL_MINIMUM_TOKENS = 2000
_HISTORY_TOOLS = (SESSION_SEARCH, SESSION_LOAD)


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request as it left for the model, with all that explains it (ASM-CHAIN-06)."""

    request: Request
    assembly: Assembly
    kept: tuple[int, ...] | None
    """Per message of `request`: index of its message in `assembly`, -1 for none; None = all, in order."""
    tailored: Tailored | None
    session: Session
    rebuilt: bool
    """A summary made right before this call changed it."""
    invocation: Invocation
    """Who asked, with which filters and which message."""


RequestObserver = Callable[[SentRequest], None]
EventMaker = Callable[[Event], Event]
BeforeStep = Callable[["InvocationState"], Awaitable[None]]
StoreEvent = Callable[["InvocationState", Event], Awaitable[Event]]


@dataclass(slots=True)
class InvocationState:
    """What one agent invocation knows while it runs."""

    agent: LLMAgent
    assembler: ContentAssembler
    session: Session
    service: SessionService
    profile: Profile
    clock: Clock
    model: Model
    request_id: str
    invocation_id: str
    filter_key: str
    branch: str
    message: Message = EMPTY_MESSAGE
    model_context_window: int = 0
    ctx: CallContext = EMPTY_CONTEXT
    parent_invocation_id: str = ""
    current_turn_ids: frozenset[str] = frozenset()
    seed_history_ids: frozenset[str] = frozenset()
    injected_context_messages: tuple[Message, ...] = ()
    late_context_messages: tuple[Message, ...] = ()
    include_contents: str = "default"
    memory_service: MemoryReader | None = None
    make_event: EventMaker = lambda event: event
    before_step: BeforeStep | None = None
    store_event: StoreEvent | None = None
    """How the runner stores an event and what follows from it; for what comes from outside the flow."""
    on_request: RequestObserver | None = None
    n_steps: int = 0
    ended: bool = False
    active: InvocationState | None = None
    """The child invocation that took over."""
    view: SummaryView | None = None
    """What the last request showed, under profiles that summarise that."""
    transfer_to: tuple[LLMAgent, str] | None = None
    """Who shall take over after this step, and with which message."""
    _memory_block: str = ""
    _recall_block: str = ""
    _base: tuple[Request, str] | None = field(default=None)
    _invocation: Invocation | None = field(default=None)
    _fork_base: Request | None = field(default=None)
    _fork_tail: list[Message] = field(default_factory=list)

    def invocation(self, *, can_load_windows: bool) -> Invocation:
        """What assembly needs to know; one object for the whole run, which lets assembly go on where it was."""
        if self._invocation is None or self._invocation.can_load_windows != can_load_windows:
            self._invocation = Invocation(
                session=self.session,
                agent_name=self.agent.name,
                invocation_id=self.invocation_id,
                request_id=self.request_id,
                filter_key=self.filter_key,
                branch=self.branch,
                message=self.message,
                injected_context_messages=self.injected_context_messages,
                late_context_messages=self.late_context_messages,
                current_turn_ids=self.current_turn_ids,
                seed_history_ids=self.seed_history_ids,
                include_contents=self.include_contents,
                can_load_windows=can_load_windows,
                few_shot=tuple(tuple(example) for example in self.agent.few_shot),
                memory_block=self._memory_block,
                recall_block=self._recall_block,
            )
        return self._invocation

    async def preload(self) -> None:
        """Read memories and events of other sessions, once, so that all requests of the run begin alike."""
        settings = self.agent.settings
        if self.memory_service is not None:
            self._memory_block = await load_memory_block(
                self.memory_service,
                self.session,
                self.message,
                settings.preload_memory,
                playbook=settings.preload_memory_playbook,
            )
        self._recall_block = await load_recall_block(
            self.service,
            self.session,
            self.message,
            settings.preload_session_recall,
            min_score=settings.preload_session_recall_min_score,
            mode=settings.preload_session_recall_search_mode,
        )

    def base(self) -> tuple[Request, str]:
        """Instruction, tools and generation settings, and the overview of on-demand history; made once a run."""
        if self._base is None:
            agent = self.agent
            specs, overview = agent.all_specs, ""
            if agent.sub_agents:
                specs = (*specs, transfer_spec(tuple(agent.sub_agents)))
            if agent.settings.enable_on_demand_session:
                specs = (*specs, *on_demand_tools(self.service))
                overview = on_demand_overview(self.service)
            text = agent.system_text()
            messages = (Message(role=SYSTEM, content=text),) if text else ()
            self._base = Request(messages=messages, tools=specs, generation_config=agent.generation_config), overview
        return self._base

    def new_event(self, response: Response, *, author: str = "", skip_summarization: bool = False) -> Event:
        """An event of this invocation, stamped now; the runner's event maker may complete it."""
        event = Event(
            author=author or self.agent.name,
            time_ns=self.clock.now_ns(),
            response=response,
            request_id=self.request_id,
            invocation_id=self.invocation_id,
            parent_invocation_id=self.parent_invocation_id,
            branch=self.branch,
            filter_key=self.filter_key,
            skip_summarization=skip_summarization,
        )
        return self.make_event(event)

    def set_fork_parent(self, request: Request | None) -> None:
        """Remember the final request for later forks (ASM-VIEW-03)."""
        self._fork_base = request
        self._fork_tail = []  # a new list: snapshots of the old one stay as they are

    def extend_fork_parent(self, event: Event) -> None:
        """Append a persisted response; every result of a parallel batch, unless the reference's defect is
        asked for (ASM-VIEW-04, B-24)."""
        if self._fork_base is None or event.response is None or event.response.is_user_message:
            return
        messages = [m for m in event.messages if m.has_payload or m.tool_calls or m.tool_id]
        self._fork_tail.extend(messages[:1] if self.profile.reference_quirks else messages)

    def fork_parent(self) -> Request | None:
        """The request to fork from: the last one sent, with what came after it."""
        if self._fork_base is None or not self._fork_tail:
            return self._fork_base
        return self._fork_base.replace(messages=(*self._fork_base.messages, *self._fork_tail))

    def _fork_snapshot(self) -> Callable[[], Request | None] | None:
        """`fork_parent` as of now, made when it is asked for."""
        base, tail, n_tail = self._fork_base, self._fork_tail, len(self._fork_tail)
        if base is None:
            return None
        return lambda: base.replace(messages=(*base.messages, *tail[:n_tail])) if n_tail else base

    def summary_ctx(self, path: str = "") -> CallContext:
        """The context of a summary call made by this invocation: parent request, view, and by which way."""
        ctx = context_with_path(self.ctx, path) if path else self.ctx
        ctx = context_with_cache_safe_fork_request(ctx, self._fork_snapshot())
        return ctx if self.view is None else context_with_summary_view(ctx, self.view)

    def bind_view(self, sent: SentRequest, *, bound: bool) -> None:
        """Remember what the request shows of the session (ASM-VIEW-01, -02)."""
        if self.profile.model_visible_view:
            self.view = view_of(sent, self.filter_key, bound=bound)


class LLMFlow:
    """Runs one invocation to its end."""

    async def run(self, state: InvocationState) -> AsyncIterator[Event]:
        """Events of the invocation. An error of a step becomes an error event (ASM-RUN-08)."""
        await state.preload()
        while not state.ended:
            if state.n_steps and state.agent.settings.sync_summary_intra_run:
                await self._summarize_intra_run(state)
            if state.before_step is not None:
                await state.before_step(state)
                if state.ended:
                    return
            last: Event | None = None
            try:
                async for event in self._step(state):
                    yield event
                    last = event
            except WorkbenchError as error:
                logger.warning("step of agent %s failed: %s", state.agent.name, error)
                yield state.new_event(_error_response(error))
                return
            except Exception as error:  # a model, tool or hook of somebody else's
                logger.exception("step of agent %s failed", state.agent.name)
                yield state.new_event(_error_response(WorkbenchError(f"{type(error).__name__}: {error}")))
                return
            state.n_steps += 1
            if state.transfer_to is not None:
                async for event in self._transfer(state):
                    yield event
                return
            if last is None or last.response is None or last.response.is_final:
                return

    async def _transfer(self, state: InvocationState) -> AsyncIterator[Event]:
        """Say so, hand the message over, and let the other agent go on."""
        assert state.transfer_to is not None
        agent, text = state.transfer_to
        notice = Message(role=ASSISTANT, content=f"Transferring control to agent: {agent.name}")
        yield state.new_event(response_of(notice, object="agent.transfer"))
        child = child_state(state, agent, text)
        state.active = child
        if text:
            yield child.new_event(response_of(child.message))
        async for event in self.run(child):
            yield event

    async def _summarize_intra_run(self, state: InvocationState) -> None:
        """A synchronous summary between two calls of one run; errors never stop the run (ASM-INTRA-02, -04)."""
        try:
            await state.service.create_session_summary(
                state.session, state.filter_key, force=False, ctx=state.summary_ctx("intra_run")
            )
        except Exception as error:  # whatever a checker, hook or store raises
            logger.debug("intra-run summary failed: %s", error)

    async def _step(self, state: InvocationState) -> AsyncIterator[Event]:
        sent = await self._prepare(state)
        custom: Response | None = None
        for change in state.agent.before_model:
            outcome = await change(state.ctx, sent.request)
            if isinstance(outcome, Response):
                custom = outcome
                break
            if outcome is not None:
                sent = replace(sent, request=outcome, kept=_kept_after(outcome, sent))
        state.set_fork_parent(sent.request)
        if custom is not None:
            yield state.new_event(custom)
            return
        sent = self._tailored(state, sent)
        state.bind_view(sent, bound=sent.kept is None)
        if state.on_request is not None:
            state.on_request(sent)
        if not sent.request.n_messages:
            raise ModelError("the request has no message", model=state.model.name, hint="check filters and budget")
        async for response in state.model.generate(state.ctx, sent.request):
            event = state.new_event(response)
            yield event
            if response.is_tool_call and not response.is_partial:
                async for result in self._tool_round(state, event):
                    yield result

    async def _tool_round(self, state: InvocationState, event: Event) -> AsyncIterator[Event]:
        """One event for the whole batch, one choice per call (ASM-RUN-09)."""
        answers: list[Message | None] = []
        others = []
        # What was recorded of the flow's own tools stands; done again they would find other things, or the same twice.
        is_recorded = getattr(state.agent.executor, "answers_all", False)
        for call in event.message.tool_calls:
            answer = None if is_recorded else await self._own_answer(state, call)
            answers.append(answer)
            if answer is None:
                others.append(call)
        ctx = state.ctx.with_value(CurrentInvocation, state)
        outcome = await state.agent.executor.execute(ctx, others) if others else ToolRound(())
        messages = outcome.messages
        if len(others) < len(answers):
            rest = iter(messages)
            messages = tuple(m for m in (a if a is not None else next(rest, None) for a in answers) if m is not None)
        if messages:
            yield state.new_event(
                response_of(*messages, object="tool.response", done=False),
                skip_summarization=outcome.skip_summarization,
            )

    async def _own_answer(self, state: InvocationState, call: ToolCall) -> Message | None:
        """The flow's own tools: on-demand history and transfer; None for all others."""
        if call.name in _HISTORY_TOOLS and state.agent.settings.enable_on_demand_session:
            run = RecallRun(
                session=state.session,
                service=state.service,
                event_filter_key=state.filter_key,
                profile=state.profile,
                ctx=state.ctx,
            )
            try:
                result = await call_on_demand_tool(call.name, call.arguments, run)
                content = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
            except WorkbenchError as error:
                content = f"{TOOL_ERROR_PREFIX}{error}"
            return Message(role=TOOL, content=content, tool_id=call.id, tool_name=call.name)
        if call.name == TRANSFER_TOOL and state.agent.sub_agents:
            return self._transfer_answer(state, call)
        return None

    @staticmethod
    def _transfer_answer(state: InvocationState, call: ToolCall) -> Message:
        try:
            arguments = json.loads(call.arguments or "{}")
            name, text = str(arguments.get("agent_name", "")), str(arguments.get("message", ""))
        except (json.JSONDecodeError, AttributeError):
            name, text = "", ""
        agent = next((agent for agent in state.agent.sub_agents if agent.name == name), None)
        if agent is None:
            content = f"{TOOL_ERROR_PREFIX}no agent {name!r}"
        else:
            state.transfer_to = (agent, text)
            content = transfer_result(name)
        return Message(role=TOOL, content=content, tool_id=call.id, tool_name=call.name)

    # --- the request ---------------------------------------------------------------------------------

    async def _prepare(self, state: InvocationState) -> SentRequest:
        """The request before tailoring; near the window after one summary attempt (ASM-RETRY)."""
        sent = self._assembled(state)
        if not self._is_near_window(state, sent):
            return sent
        before = state.session.summaries.get(state.filter_key)
        state.set_fork_parent(sent.request)
        state.bind_view(sent, bound=True)
        try:
            await state.service.create_session_summary(
                state.session, state.filter_key, force=False, ctx=state.summary_ctx("pre_call")
            )
        except Exception as error:  # whatever a checker, hook or store raises
            logger.warning("summary before the call failed: %s", error)
        if not has_advanced(before, state.session.summaries.get(state.filter_key)):
            return sent
        return replace(self._assembled(state), rebuilt=True)

    def _assembled(self, state: InvocationState) -> SentRequest:
        agent = state.agent
        base, overview = state.base()
        invocation = state.invocation(can_load_windows=_can_load(base.tools))
        assembly = state.assembler.assemble(invocation, base)
        if overview:
            assembly = assembly.with_system_suffix(overview)
        if agent.post_tool_guidance and base.tools:
            assembly = assembly.with_system_suffix(agent.post_tool_guidance)
        return SentRequest(
            request=assembly.request(base),
            assembly=assembly,
            kept=None,
            tailored=None,
            session=state.session,
            rebuilt=False,
            invocation=invocation,
        )

    def _is_near_window(self, state: InvocationState, sent: SentRequest) -> bool:
        """All of ASM-RETRY-01."""
        settings, compaction = state.agent.settings, state.agent.compaction
        if not (compaction.enabled and settings.add_session_summary and settings.timeline == "all"):
            return False
        if not len(sent.assembly):
            return False
        window = resolve_context_window(override=state.model_context_window, model=state.model, fallback=UNKNOWN_WINDOW)
        threshold = min(max(int(window * compaction.threshold_ratio), PRE_CALL_MINIMUM_TOKENS), window)
        try:
            tokens = tokens_of_assembly(sent.assembly, state.agent.compaction_counter, state.ctx)
        except Exception:  # a counter's failure means no attempt (ASM-RETRY-03)
            logger.debug("the compaction counter failed", exc_info=True)
            return False
        return isinstance(tokens, int) and tokens >= threshold

    def _tailored(self, state: InvocationState, sent: SentRequest) -> SentRequest:
        """Drop rounds until the request fits the model's budget (ASM-TLR); the last resort."""
        settings = state.agent.tailoring
        if not settings.enabled:
            return sent
        model = state.model
        run_window = state.model_context_window if state.agent.settings.tailor_with_run_window else 0
        window = window_for_tailoring(model.name, model.context_window, run_window=run_window)
        counter = state.agent.tailoring_counter
        budget = input_token_budget(settings, sent.request, window=window, model_name=model.name, counter=counter)
        strategy = strategy_named(settings.strategy, counter)
        if sent.kept is None:
            tailored = tailor_assembly(sent.assembly, strategy, budget)
        else:  # a hook changed the messages
            tailored = strategy.tailor(sent.request.messages, budget)
            if not len(tailored) and sent.request.messages:
                tailored.keep_all(sent.request.messages)
        if tailored.overflow is not None:
            logger.warning("token tailoring: %s", tailored.overflow)
        if tailored.is_unchanged:
            return replace(sent, tailored=tailored)
        state.set_fork_parent(None)
        return replace(
            sent,
            request=sent.request.replace(messages=tailored.messages),
            kept=tuple(tailored.kept if sent.kept is None else (sent.kept[i] if i >= 0 else -1 for i in tailored.kept)),
            tailored=tailored,
        )


def view_of(sent: SentRequest, filter_key: str, *, bound: bool) -> SummaryView:
    """The view of a request: its history messages with the stored events behind them."""
    assembly, session, summary = sent.assembly, sent.session, sent.assembly.summary
    covered = {position for position, _ in assembly.covered_positions_included}
    events, first = session.events.copy(), session.first_position

    def items() -> list[ViewItem]:
        found = []
        for i, (message, position) in enumerate(zip(assembly.messages, assembly.positions, strict=True)):
            if position >= first:
                found.append(ViewItem(message, events[position - first], position not in covered, i))
        return found

    return SummaryView(
        session_id=session.id,
        filter_key=filter_key,
        previous_summary=summary.text if summary is not None else "",
        summary_in_items=summary is not None and assembly.positions[summary.message_index] >= 0,
        request=sent.request,
        bound=bound,
        make_items=items,
    )


def has_advanced(before: Summary | None, after: Summary | None) -> bool:
    """The summary of the exact key is new or later (ASM-RETRY-07)."""
    if after is None or not after.summary:
        return False
    return before is None or before != after


def _can_load(specs: Sequence[ToolSpec]) -> bool:
    return any(spec.name == SESSION_LOAD for spec in specs)


def _kept_after(request: Request, sent: SentRequest) -> tuple[int, ...] | None:
    """Trace changed messages back by identity; what can't be traced is -1. None when all are as they were."""
    before = sent.assembly.messages
    known = {id(message): i for i, message in enumerate(before)}
    kept = tuple(known.get(id(message), -1) for message in request.messages)
    return None if kept == tuple(range(len(before))) else kept


def _error_response(error: WorkbenchError) -> Response:
    kind = "flow_error" if not isinstance(error, ModelError | TokenTailoringOverflowError) else "model_error"
    return Response(error=ResponseError(type=kind, message=error.one_line()), done=True)
