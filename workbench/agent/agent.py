"""`LLMAgent`: a model with an instruction, tools and the settings of its prompt assembly.

In: settings and collaborators. Out: a value that runners and flows read; it holds no state of a run.
Implements the option surface of assembly.md section 19.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from workbench.agent.tools import LocalTools, Tool, ToolExecutor
from workbench.call import CallContext
from workbench.context.settings import AgentSettings, CompactionSettings, TailoringSettings
from workbench.errors import ConfigError
from workbench.model.client import Model
from workbench.model.types import DEFAULT_GENERATION, GenerationConfig, Message, Request, Response, ToolSpec
from workbench.session.types import Event
from workbench.tokens import SimpleTokenCounter, TokenCounter

BeforeModelCall = Callable[[CallContext, Request], Awaitable["Request | Response | None"]]
"""May return another request, or a response that is taken instead of a model call; None changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMAgent:
    """An agent as configured.

    Args:
        tools: What the model may call.
        tool_executor: Carries the calls out; default: runs `tools`.
        tool_specs: Declarations without a callable behind them (a replay's), put on the request as well.
        summary_formatter: Replaces the default summary block in both injection modes (ASM-INJ-11).
        skip_recent_func: Events from the end that compaction protects (ASM-CMP-12).
        compaction_counter: Counts for compaction and the pre-call check; default the simple counter.
        tailoring_counter: Counts for token tailoring; default the simple counter.
        before_model: Sees and may change each request before it is tailored and sent.
        few_shot: Example conversations put behind the system block.
    """

    name: str
    model: Model
    instruction: str = ""
    global_instruction: str = ""
    description: str = ""
    tools: Sequence[Tool] = ()
    tool_executor: ToolExecutor | None = None
    tool_specs: Sequence[ToolSpec] = ()
    settings: AgentSettings = AgentSettings()  # noqa: RUF009 - frozen
    compaction: CompactionSettings = CompactionSettings()  # noqa: RUF009 - frozen
    tailoring: TailoringSettings = TailoringSettings()  # noqa: RUF009 - frozen
    generation_config: GenerationConfig = DEFAULT_GENERATION
    summary_formatter: Callable[[str], str] | None = None
    skip_recent_func: Callable[[Sequence[Event]], int] | None = None
    compaction_counter: TokenCounter = SimpleTokenCounter()  # noqa: RUF009 - stateless
    tailoring_counter: TokenCounter = SimpleTokenCounter()  # noqa: RUF009 - stateless
    before_model: Sequence[BeforeModelCall] = ()
    few_shot: Sequence[Sequence[Message]] = ()
    sub_agents: Sequence[LLMAgent] = ()
    post_tool_guidance: str = ""
    """Text put behind the first system message of an agent with tools; empty = none."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError.for_field("name", self.name, "a non-empty name")

    @property
    def executor(self) -> ToolExecutor:
        """Who carries out tool calls."""
        return self.tool_executor if self.tool_executor is not None else LocalTools(self.tools)

    @property
    def all_specs(self) -> tuple[ToolSpec, ...]:
        """Every declaration, in the order given."""
        return (*(tool.spec for tool in self.tools), *self.tool_specs)

    def system_text(self) -> str:
        """Global instruction, description, instruction, parted by blank lines (ASM-CHAIN-02)."""
        parts = (self.global_instruction, self.description, self.instruction)
        return "\n\n".join(part for part in parts if part)
