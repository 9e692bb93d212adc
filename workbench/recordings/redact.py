"""Personal data out of conversations, so that a recording can be shared (WB-REC-06).

In: conversations. Out: the same ones with `[EMAIL_1]`, `[PHONE_2]`, … in the place of e-mail addresses, phone
numbers, keys, card and id numbers; one value has one placeholder wherever it stands and however it's written.
JSON stays JSON. Names and postal addresses aren't found: whoever shares a recording still has to read it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.model.types import Choice, ContentPart, Message, Response, ToolCall, ToolSpec
from workbench.recordings.personal import KINDS, WORTH_LOOKING, personal_in
from workbench.recordings.types import Conversation
from workbench.session.types import Event

_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*', re.DOTALL)
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_SHORTEST = 6  # no password, address or number of a person has fewer characters
_EVENT_TEXTS = ("id", "author", "request_id", "invocation_id", "parent_invocation_id", "branch", "filter_key", "tag")


def redact(conversation: Conversation, *, redactor: Redactor | None = None) -> Conversation:
    """The conversation without personal data.

    Args:
        redactor: The same one for all conversations that are shared together, so that a value that occurs in several
            has one placeholder.
    """
    return (redactor or Redactor()).conversation(conversation)


class Redactor:
    """Replaces personal data, and remembers which value has which placeholder."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._n_values: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Replacements by kind: EMAIL, PHONE, KEY, CARD, ID."""

    @property
    def findings(self) -> tuple[str, ...]:
        """What was replaced, in words."""
        return tuple(
            f"{label} replaced: {self.counts[kind]:,} ({self._n_values[kind]:,} different)"
            for kind, label in KINDS.items()
            if self.counts[kind]
        )

    def text(self, text: str) -> str:
        """The text with placeholders; JSON in, JSON out."""
        if len(text) < _SHORTEST or not WORTH_LOOKING.search(text):
            return text
        if text.lstrip()[:1] in ("{", "[") and _is_json(text):
            return self._json_text(text)
        return self._plain_text(text)

    def _plain_text(self, text: str) -> str:
        finds = personal_in(text)
        if not finds:
            return text
        pieces: list[str] = []
        at = 0
        for find in finds:
            pieces += (text[at : find.start], self._placeholder(find.kind, find.value))
            at = find.end
        return "".join((*pieces, text[at:]))

    def _json_text(self, text: str) -> str:
        """JSON whose texts are replaced in; a number that is personal data becomes a text. The layout stays."""
        if "\\u" in text:
            return self._escaped_json_text(text)
        finds = personal_in(_ESCAPE.sub("  ", text))
        if not finds:
            return text
        tokens = ((match.start(), match.end()) for match in _JSON_TOKEN.finditer(text))
        start, end = next(tokens)
        pieces: list[str] = []
        at = 0
        for find in finds:
            while end <= find.start:
                start, end = next(tokens)
            placeholder = self._placeholder(find.kind, find.value)
            is_number = text[start] != '"'
            first, last = (start, end) if is_number else (find.start, find.end)
            if first < at:  # a second find in the same number
                continue
            pieces += (text[at:first], f'"{placeholder}"' if is_number else placeholder)
            at = last
        return "".join((*pieces, text[at:]))

    def _escaped_json_text(self, text: str) -> str:
        """The same where letters are written as their numbers: text by text, unescaped."""
        key = ""

        def redacted(match: re.Match[str]) -> str:
            nonlocal key
            token = match[0]
            if token[0] != '"':
                new = self._value_of(key, token)
                return token if new == token else json.dumps(new)
            value = json.loads(token, strict=False)
            if _is_key(text, match.end()):
                key = value
                new = self._plain_text(value)
            else:
                new = self._value_of(key, value)
            return token if new == value else json.dumps(new)

        return _JSON_TOKEN.sub(redacted, text)

    def _value_of(self, key: str, value: str) -> str:
        """The value of a member, whose key may be what says that it's a password or an id."""
        if len(value) < _SHORTEST or not WORTH_LOOKING.search(value):
            return value
        if not key:
            return self._plain_text(value)
        lead = f"{key}: "
        whole = self._plain_text(lead + value)
        return whole[len(lead) :] if whole.startswith(lead) else self._plain_text(value)

    def _placeholder(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        known = self._placeholders.get((kind, value))
        if known is None:
            self._n_values[kind] += 1
            known = self._placeholders[kind, value] = f"[{kind}_{self._n_values[kind]}]"
        return known

    # --- values ----------------------------------------------------------------------------------------

    def conversation(self, conversation: Conversation) -> Conversation:
        """The conversation without personal data: texts, calls and results, ids, tools, state, metadata."""
        return conversation.replace(
            id=self.text(conversation.id),
            events=tuple(self._event(event) for event in conversation.events),
            instruction=self.text(conversation.instruction),
            tools=tuple(self._tool(tool) for tool in conversation.tools),
            app_name=self.text(conversation.app_name),
            user_id=self.text(conversation.user_id),
            metadata=self._plain(conversation.metadata),
        )

    def _event(self, event: Event) -> Event:
        texts = {name: self.text(getattr(event, name)) for name in _EVENT_TEXTS}
        return event.replace(
            **texts,
            response=None if event.response is None else self._response(event.response),
            state_delta={self.text(key): self._bytes(value) for key, value in event.state_delta.items()},
            extensions=self._plain(event.extensions),
        )

    def _response(self, response: Response) -> Response:
        error = response.error
        return replace(
            response,
            choices=tuple(self._choice(choice) for choice in response.choices),
            error=None if error is None else replace(error, message=self.text(error.message)),
        )

    def _choice(self, choice: Choice) -> Choice:
        return replace(choice, message=self._message(choice.message), delta=self._message(choice.delta))

    def _message(self, message: Message) -> Message:
        return replace(
            message,
            content=self.text(message.content),
            content_parts=tuple(self._part(part) for part in message.content_parts),
            reasoning_content=self.text(message.reasoning_content),
            tool_id=self.text(message.tool_id),
            tool_calls=tuple(self._call(call) for call in message.tool_calls),
        )

    def _part(self, part: ContentPart) -> ContentPart:
        url = part.url if part.url.startswith("data:") else self.text(part.url)
        return replace(part, text=self.text(part.text), url=url, name=self.text(part.name))

    def _call(self, call: ToolCall) -> ToolCall:
        extra = tuple((name, self.text(text)) for name, text in call.extra_fields)
        return replace(call, id=self.text(call.id), arguments=self.text(call.arguments), extra_fields=extra)

    def _tool(self, tool: ToolSpec) -> ToolSpec:
        return replace(
            tool,
            description=self.text(tool.description),
            parameters_json=self.text(tool.parameters_json),
            declaration_json=self.text(tool.declaration_json),
        )

    def _bytes(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return value
        return self.text(text).encode("utf-8", "surrogatepass")

    def _plain(self, value: Any, key: str = "") -> Any:
        """A JSON value, keys included; a number that is personal data becomes a text."""
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._plain(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(item, key) for item in value]
        if isinstance(value, str):
            redacted = self.text(value)
            return self._value_of(key, value) if redacted == value else redacted
        if isinstance(value, int) and not isinstance(value, bool):
            new = self._value_of(key, str(value))
            return value if new == str(value) else new
        return value


def _is_key(text: str, at: int) -> bool:
    """A colon follows."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return text[at : at + 1] == ":"


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
