"""Tools that a model may call, and how a batch of calls is carried out.

In: Python callables, or recorded results. Out: tool messages, one per call. A failing tool is an answer for
the model, not an error of the run (ASM-RUN-09).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.call import CallContext
from workbench.errors import ConfigError
from workbench.model.types import TOOL, Message, ToolCall, ToolSpec

TOOL_ERROR_PREFIX = "Error: callable tool execution failed: "


class Tool(Protocol):
    """Something a model can call."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told about it."""
        ...

    @property
    def skip_summarization(self) -> bool:
        """Its results start no summary job."""
        ...

    async def call(self, ctx: CallContext, arguments: str) -> Any:
        """Carry out one call; a text or anything JSON can hold. An exception becomes an error result."""
        ...


_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


class FunctionTool:
    """A Python function, sync or async, as a tool; its parameters are the arguments' keys.

    Args:
        function: Called with the decoded arguments as keywords.
        description: For the model; default: the function's docstring.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        parameters_json: str = "",
        skip_summarization: bool = False,
    ) -> None:
        self._function = function
        self.skip_summarization = skip_summarization
        self.spec = ToolSpec(
            name=name or getattr(function, "__name__", ""),
            description=description or inspect.getdoc(function) or "",
            parameters_json=parameters_json or _parameters_json(function),
        )
        if not self.spec.name:
            raise ConfigError.for_field("name", name, "a name for a function that has none")

    async def call(self, ctx: CallContext, arguments: str) -> Any:
        decoded = json.loads(arguments) if arguments.strip() else {}
        result = self._function(**decoded)
        return await result if inspect.isawaitable(result) else result


def _parameters_json(function: Callable[..., Any]) -> str:
    """A JSON schema from the signature: names, simple types, which are required."""
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        json_type = _JSON_TYPES.get(parameter.annotation)
        properties[name] = {"type": json_type} if json_type else {}
        if parameter.default is parameter.empty:
            required.append(name)
    return json.dumps({"type": "object", "properties": properties, "required": required}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ToolRound:
    """The answers to one batch of calls; empty when none of them was answered."""

    messages: tuple[Message, ...]
    skip_summarization: bool = False


class ToolExecutor(Protocol):
    """Carries out the calls of one assistant message.

    One with an attribute `answers_all` that is true is given the calls of on-demand history and of transfers too.
    """

    async def execute(self, ctx: CallContext, calls: Sequence[ToolCall]) -> ToolRound:
        """One tool message per answered call, in call order."""
        ...


class LocalTools:
    """Runs `Tool`s one after the other; an unknown name is an error result."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    async def execute(self, ctx: CallContext, calls: Sequence[ToolCall]) -> ToolRound:
        messages = []
        skips = False
        for call in calls:
            tool = self._tools.get(call.name)
            if tool is None:
                content = f"{TOOL_ERROR_PREFIX}tool {call.name!r} isn't known"
            else:
                skips = skips or tool.skip_summarization
                content = await _content_of(tool, ctx, call)
            messages.append(Message(role=TOOL, content=content, tool_id=call.id, tool_name=call.name))
        return ToolRound(tuple(messages), skips)


async def _content_of(tool: Tool, ctx: CallContext, call: ToolCall) -> str:
    try:
        result = await tool.call(ctx, call.arguments)
    except Exception as error:  # the model is told, the run goes on
        return f"{TOOL_ERROR_PREFIX}{error}"
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))
