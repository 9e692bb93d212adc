"""A model that answers from a script: the fake for tests and for the conformance vectors.

In: a list of answers, or a function from request to answer. Out: those answers; every request is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from workbench.call import CallContext
from workbench.errors import ModelError
from workbench.model.types import (
    ASSISTANT,
    Choice,
    Message,
    Request,
    Response,
    ResponseError,
    ToolCall,
    Usage,
)


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One scripted answer."""

    content: str = ""
    chunks: tuple[str, ...] = ()
    """Partial responses before the whole one."""
    chunks_are_messages: bool = False
    """The pieces come as messages that add up with the whole one, as from some adapters, not as deltas of it."""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_error: str = ""
    """The call itself fails with this text."""
    error: ResponseError | None = None
    """A response that carries an error."""
    usage: Usage | None = None
    no_choices: bool = False
    never_answers: bool = False
    """Waits until cancelled."""

    def responses(self, model: str, number: int) -> list[Response]:
        """The stream of this answer; `number` makes the response id."""
        parts = [
            Response(
                id=f"{model}-{number}",
                model=model,
                choices=(self._piece(text),),
                is_partial=True,
                done=False,
            )
            for text in self.chunks
        ]
        message = Message(
            role=ASSISTANT,
            content=self.content,
            reasoning_content=self.reasoning_content,
            tool_calls=self.tool_calls,
        )
        choices = () if self.no_choices or self.error is not None else (Choice(message),)
        whole = Response(
            id=f"{model}-{number}", model=model, choices=choices, usage=self.usage, error=self.error, done=True
        )
        return [*parts, whole]

    def _piece(self, text: str) -> Choice:
        piece = Message(role=ASSISTANT, content=text)
        return Choice(message=piece) if self.chunks_are_messages else Choice(delta=piece)


Script = Sequence[ScriptedAnswer | str] | Callable[[Request], ScriptedAnswer | str]


class ScriptedModel:
    """Answers in order, the last answer repeating; without a script the n-th call answers `SUMMARY-n`.

    Args:
        script: Answers (a plain text is an answer with that content), or a function from request to answer.
        context_window: Tokens; 0 = unknown.
        input_token_budget: Input tokens this model reports as its own budget; 0 = none.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        name: str = "scripted",
        context_window: int = 0,
        input_token_budget: int = 0,
    ) -> None:
        self.name = name
        self.context_window = context_window
        self.requests: list[Request] = []
        self._script = script
        self._input_token_budget = input_token_budget

    def input_token_budget(self, request: Request) -> int:
        return self._input_token_budget

    def _answer(self, request: Request) -> ScriptedAnswer:
        number = len(self.requests)
        if callable(self._script):
            answer = self._script(request)
        elif self._script:
            answer = self._script[min(number, len(self._script)) - 1]
        else:
            answer = f"SUMMARY-{number}"
        return ScriptedAnswer(content=answer) if isinstance(answer, str) else answer

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        self.requests.append(request)
        answer = self._answer(request)
        if answer.never_answers:
            await asyncio.Event().wait()
        if answer.call_error:
            raise ModelError(answer.call_error, model=self.name)
        for response in answer.responses(self.name, len(self.requests)):
            yield response
