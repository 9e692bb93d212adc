"""Agents that work for another agent: as a tool, or by taking over.

In: a parent invocation. Out: a child invocation's state. As a tool, the child works in a session of its own
and only its answer comes back; by transfer it goes on in the parent's session, with the parent's filter key
and a branch below it (ASM-EVT-11).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from workbench.call import CallContext
from workbench.errors import ConfigError, ModelError
from workbench.model.types import USER, Message, ToolSpec, response_of
from workbench.session.types import FILTER_KEY_DELIMITER, Session

if TYPE_CHECKING:
    from workbench.agent.agent import LLMAgent
    from workbench.agent.flow import InvocationState

TRANSFER_TOOL = "transfer_to_agent"
_REQUEST_SCHEMA = '{"type":"object","properties":{"request":{"type":"string"}},"required":["request"]}'
_TRANSFER_SCHEMA = (
    '{"type":"object","properties":{"agent_name":{"type":"string"},"message":{"type":"string"}},'
    '"required":["agent_name"]}'
)


class CurrentInvocation:
    """Context key under which a tool finds the invocation that calls it."""


class AgentTool:
    """Another agent as a tool: takes `request`, answers with its final text."""

    skip_summarization = False

    def __init__(self, agent: LLMAgent) -> None:
        self.agent = agent
        self.spec = ToolSpec(name=agent.name, description=agent.description, parameters_json=_REQUEST_SCHEMA)

    async def call(self, ctx: CallContext, arguments: str) -> Any:
        from workbench.agent.flow import LLMFlow

        parent: InvocationState | None = ctx.value(CurrentInvocation)
        if parent is None:
            raise ConfigError("an agent tool was called outside a run", hint="give it to an LLMAgent")
        request = json.loads(arguments or "{}").get("request", "")
        live = parent.session
        own = Session(app_name=live.app_name, user_id=live.user_id, id=f"{live.id}:{uuid4()}")
        child = child_state(parent, self.agent, request, session=own)
        child.filter_key = f"{parent.filter_key}{FILTER_KEY_DELIMITER}{self.agent.name}"
        own.append(child.new_event(response_of(child.message), author=USER))
        answer = ""
        async for event in LLMFlow().run(child):
            if event.response is not None and event.response.error is not None:
                raise ModelError(event.response.error.message, model=child.model.name)
            if not event.is_partial:
                own.append(event)
                answer = event.message.content or answer
        return answer


def transfer_spec(agents: tuple[LLMAgent, ...]) -> ToolSpec:
    """The declaration of the tool by which a model hands over."""
    names = "; ".join(f"{agent.name}: {agent.description}" if agent.description else agent.name for agent in agents)
    return ToolSpec(
        name=TRANSFER_TOOL,
        description=f"Hand the conversation over to another agent. Agents: {names}",
        parameters_json=_TRANSFER_SCHEMA,
    )


def transfer_result(target: str) -> str:
    """The tool result of a transfer, as the reference words its fields."""
    return json.dumps(
        {
            "success": True,
            "message": f"Transfer initiated to agent '{target}'",
            "target_agent": target,
            "transfer_type": "agent_handoff",
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def child_state(
    parent: InvocationState, agent: LLMAgent, message: str, *, session: Session | None = None
) -> InvocationState:
    """The state of a child invocation below `parent`."""
    from workbench.context.incremental import ContentAssembler

    return replace(
        parent,
        agent=agent,
        assembler=ContentAssembler(
            agent.settings,
            agent.compaction,
            counter=agent.compaction_counter,
            summary_formatter=agent.summary_formatter,
            skip_recent_func=agent.skip_recent_func,
            profile=parent.profile,
            sanitize=True,
        ),
        session=session if session is not None else parent.session,
        model=agent.model,
        invocation_id=str(uuid4()),
        parent_invocation_id=parent.invocation_id,
        branch=f"{parent.branch}{FILTER_KEY_DELIMITER}{agent.name}",
        message=Message(role=USER, content=message),
        current_turn_ids=frozenset(),
        seed_history_ids=frozenset(),
        n_steps=0,
        ended=False,
        active=None,
        transfer_to=None,
        view=None,
        _memory_block="",
        _recall_block="",
        _base=None,
        _invocation=None,
        _fork_base=None,
        _fork_tail=[],
    )
