"""Records what an application sends to an `openai` client, as native JSON lines (WB-REC-04b).

In: a client, a file. Out: the same kind of client, whose chat completions are written down as they happen: the
new messages of each call before it leaves, the answer with usage and times when it is there. A request repeats
its conversation; what it adds is found by comparing, so each message is written once, and conversations that
run at the same time share the file. Nothing but messages, tools, model, usage and times is written: no header,
no key, no other field of a call.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from workbench.clock import Clock, SystemClock
from workbench.errors import RecordingError
from workbench.model.chat_wire import StreamedChoices, usage_of
from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Choice, Message, Response, response_of
from workbench.recordings.chat import message_from_chat, tools_from_chat
from workbench.recordings.native import FORMAT_NAME, FORMAT_VERSION, json_line
from workbench.recordings.problems import FaultyRecordError
from workbench.recordings.types import APP_NAME, ASSISTANT_AUTHOR, DEFAULT_USER_ID, HUMAN_AUTHOR, SYSTEM_AUTHOR
from workbench.session.event_json import event_to_json, tool_to_json
from workbench.session.types import Event

logger = logging.getLogger(__name__)

Client = TypeVar("Client")

_AUTHORS = {USER: HUMAN_AUTHOR, SYSTEM: SYSTEM_AUTHOR}


def record(
    client: Client,
    path: str | Path,
    *,
    app_name: str = APP_NAME,
    user_id: str = DEFAULT_USER_ID,
    clock: Clock | None = None,
) -> Client:
    """A client like `client` whose chat completions are recorded; `client` itself stays as it is.

    Covers `chat.completions.create` of `openai.OpenAI` and `openai.AsyncOpenAI`, streams included. Every line is
    on its way to the disk before the call goes on, so a killed process loses at most the answer it waited for. A
    recording that fails later (disk full) is reported once in the log and never breaks a call.

    Args:
        client: An `openai` client.
        path: JSON lines file; further conversations are appended to one that exists. Read it with
            `load_recordings(path)`.
        app_name: Application that the conversations belong to.
        user_id: Their user.
        clock: Source of times; the system's by default.

    Raises:
        RecordingError: the file can't be written, or the client has no chat completions.
    """
    copy: Any = getattr(client, "copy", None)
    completions: Any = getattr(getattr(client, "chat", None), "completions", None)
    if not callable(copy) or not callable(getattr(completions, "create", None)):
        raise RecordingError(f"can't record {type(client).__name__}", hint="give an openai client")
    recorder = Recorder(Path(path), app_name=app_name, user_id=user_id, clock=clock)
    twin: Client = copy()
    own: Any = twin
    own.chat.completions.create = recorder.recorded(own.chat.completions.create)
    return twin


@dataclass(slots=True)
class _Conversation:
    id: str
    n_events: int = 0
    n_requests: int = 0
    waits_for_answer: bool = False
    """A human message was written, no answer yet."""
    at_answer: bytes = b""
    """Digest of what was sent for the newest answer."""
    tip: bytes = b""
    """Digest of everything written."""
    has_answer: bool = False


@dataclass(slots=True)
class _Call:
    """One call that waits for its answer."""

    conversation: _Conversation
    asked: _Digest
    model: str


@dataclass(slots=True)
class _Digest:
    """Running digest of a message list, of what both sides can agree on."""

    hasher: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, message: Message) -> bytes:
        calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
        parts = [[part.type, part.text, part.url] for part in message.content_parts]
        line = json.dumps([message.role, message.content, parts, message.tool_id, calls], separators=(",", ":"))
        self.hasher.update(line.encode())
        return self.value

    @property
    def value(self) -> bytes:
        digest: bytes = self.hasher.digest()
        return digest

    def copy(self) -> _Digest:
        return _Digest(self.hasher.copy())


class Recorder:
    """Writes conversations of any number of calls into one file; safe between threads and tasks.

    Args:
        path: The file.
        app_name: Application that the conversations belong to.
        user_id: Their user.
        clock: Source of times.

    Raises:
        RecordingError: the file can't be opened for writing.
    """

    def __init__(
        self,
        path: Path,
        *,
        app_name: str = APP_NAME,
        user_id: str = DEFAULT_USER_ID,
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._app_name = app_name
        self._user_id = user_id
        self._clock = clock if clock is not None else SystemClock()
        self._lock = threading.Lock()
        self._by_tip: dict[bytes, _Conversation] = {}
        self._by_question: dict[bytes, _Conversation] = {}
        self._has_failed = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _drop_cut_line(self._file)
        except OSError as error:
            raise RecordingError(f"can't be written: {error.strerror}", path=path) from error

    def close(self) -> None:
        """Close the file; later calls go unrecorded."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def recorded(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """`create` with its calls written down."""

        def create_and_record(*args: Any, **kwargs: Any) -> Any:
            call = self._begin(kwargs)
            result = create(*args, **kwargs)
            return self._awaited(call, result) if inspect.isawaitable(result) else self._watched(call, result)

        return create_and_record

    async def _awaited(self, call: _Call | None, result: Awaitable[Any]) -> Any:
        return self._watched(call, await result)

    def _watched(self, call: _Call | None, result: Any) -> Any:
        """The result of a call; what streams is written down when it has ended."""
        if call is None:
            return result
        if hasattr(result, "choices"):
            self._end(call, _dumped(result))
        elif hasattr(result, "__anext__") or hasattr(result, "__next__"):
            return _RecordedStream(result, lambda response: self._end_of_stream(call, response))
        elif callable(getattr(result, "parse", None)):  # a raw response: headers and body
            self._end(call, _dumped(result.parse()))
        return result

    # --- what is written -------------------------------------------------------------------------------

    def _begin(self, arguments: Mapping[str, Any]) -> _Call | None:
        """Write what a request adds; None when it can't be recorded."""
        try:
            messages = [message_from_chat(_dumped(raw), n) for n, raw in enumerate(arguments["messages"], 1)]
            with self._lock:
                return self._write_request(messages, arguments)
        except (FaultyRecordError, KeyError, TypeError) as error:
            self._warn(f"a request isn't recorded: {error}")
        except OSError as error:
            self._warn(f"{self._path}: can't be written: {error.strerror}")
        return None

    def _end(self, call: _Call, answer: Mapping[str, Any]) -> None:
        """Write a whole answer, if there is one."""
        try:
            choice = answer["choices"][0]
            message = message_from_chat({**choice["message"], "role": ASSISTANT}, 1)
            response = Response(
                (Choice(message, finish_reason=choice.get("finish_reason") or ""),),
                id=str(answer.get("id") or ""),
                model=str(answer.get("model") or ""),
                usage=usage_of(answer.get("usage")),
            )
        except (FaultyRecordError, AttributeError, IndexError, KeyError, TypeError) as error:
            self._warn(f"an answer isn't recorded: {error}")
            return
        self._end_of_stream(call, response)

    def _end_of_stream(self, call: _Call, response: Response) -> None:
        try:
            with self._lock:
                self._write_answer(call, response)
        except OSError as error:
            self._warn(f"{self._path}: can't be written: {error.strerror}")

    def _write_request(self, messages: Sequence[Message], arguments: Mapping[str, Any]) -> _Call:
        n_system = 0
        while n_system < len(messages) and messages[n_system].role == SYSTEM:
            n_system += 1
        spoken = messages[n_system:]
        digest = _Digest()
        digests = [digest.value, *(digest.add(message) for message in spoken)]
        conversation, n_known = self._found(spoken, digests)
        lines: list[str] = []
        model = str(arguments.get("model") or "")
        if conversation is None:
            conversation = _Conversation(uuid4().hex)
            instruction = "\n\n".join(text for message in messages[:n_system] if (text := _text_of(message)))
            tools = tools_from_chat(arguments.get("tools") or None)
            lines.append(self._head(conversation, instruction, tools, model))
        self._forget(conversation)
        lines += self._events(conversation, spoken[n_known:])
        self._write(lines)
        conversation.at_answer, conversation.has_answer, conversation.tip = digest.value, False, digest.value
        self._remember(conversation)
        return _Call(conversation, digest, model)

    def _found(self, spoken: Sequence[Message], digests: Sequence[bytes]) -> tuple[_Conversation | None, int]:
        """The conversation that a request goes on with, and how many of its messages are written already."""
        for n in range(len(spoken), 0, -1):
            known = self._by_tip.get(digests[n])
            if known is not None and (n < len(spoken) or not known.has_answer):
                return known, n
            known = self._by_question.get(digests[n])
            if known is not None and n < len(spoken) and spoken[n].role == ASSISTANT:
                return known, n + 1  # the application has changed the answer; what the model said stands
        return None, 0

    def _forget(self, conversation: _Conversation) -> None:
        for table, digest in ((self._by_tip, conversation.tip), (self._by_question, conversation.at_answer)):
            if table.get(digest) is conversation:
                del table[digest]

    def _remember(self, conversation: _Conversation) -> None:
        self._by_tip[conversation.tip] = conversation
        if conversation.has_answer:
            self._by_question[conversation.at_answer] = conversation

    def _head(self, conversation: _Conversation, instruction: str, tools: Sequence[Any], model: str) -> str:
        head: dict[str, Any] = {
            "type": "session",
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "id": conversation.id,
            "app_name": self._app_name,
            "user_id": self._user_id,
            "interleaved": True,
        }
        if instruction:
            head["instruction"] = instruction
        if tools:
            head["tools"] = [tool_to_json(tool) for tool in tools]
        if model:
            head["model"] = model
        return json_line(head)

    def _events(self, conversation: _Conversation, messages: Sequence[Message]) -> Iterator[str]:
        """One event per message, one for all results of a round."""
        group: list[Message] = []
        for message in messages:
            if group and not (message.role == TOOL and group[-1].role == TOOL):
                yield self._event(conversation, response_of(*group))
                group = []
            group.append(message)
        if group:
            yield self._event(conversation, response_of(*group))

    def _event(self, conversation: _Conversation, response: Response) -> str:
        role = response.choices[0].message.role
        if role == USER and not conversation.waits_for_answer:
            conversation.n_requests += 1
        conversation.waits_for_answer = role == USER or (role == SYSTEM and conversation.waits_for_answer)
        conversation.n_events += 1
        event = Event(
            id=f"{conversation.id}:{conversation.n_events:05d}",
            author=_AUTHORS.get(role, ASSISTANT_AUTHOR),
            time_ns=self._clock.now_ns(),
            response=response,
            request_id=f"{conversation.id}:r{conversation.n_requests}",
            invocation_id=f"{conversation.id}:i{conversation.n_requests}",
            filter_key=self._app_name,
        )
        return json_line({"type": "event", "session_id": conversation.id, **event_to_json(event)})

    def _write_answer(self, call: _Call, response: Response) -> None:
        conversation = call.conversation
        if conversation.has_answer or conversation.at_answer != call.asked.value:
            return  # a second answer to the same question, or one that came after the next question
        self._write([self._event(conversation, replace(response, model=response.model or call.model))])
        self._forget(conversation)
        conversation.tip, conversation.has_answer = call.asked.copy().add(response.choices[0].message), True
        self._remember(conversation)

    def _write(self, lines: Sequence[str]) -> None:
        """All lines by one write, so that no other writer's stand between them."""
        if not lines or self._file < 0:
            return
        data = ("\n".join(lines) + "\n").encode()
        size = os.fstat(self._file).st_size
        try:
            n_written = os.write(self._file, data)
            while n_written < len(data):
                n_written += os.write(self._file, data[n_written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, size)  # no half line, which would break the next one
            raise

    def _warn(self, text: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.warning("%s; the application goes on", text)


def _text_of(message: Message) -> str:
    return message.content or "\n".join(part.text for part in message.content_parts)


def _dumped(value: Any) -> Any:
    """A message or answer as plain JSON values; the client takes its own classes as well as dicts."""
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def _drop_cut_line(file: int) -> None:
    """Take away the unfinished last line that a killed process may have left."""
    size = end = os.fstat(file).st_size
    while end:
        start = max(end - 65536, 0)
        place = os.pread(file, end - start, start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)


class _RecordedStream:
    """A stream that reports its whole answer when it has ended; everything else is the stream's own."""

    def __init__(self, stream: Any, on_end: Callable[[Response], None]) -> None:
        self._stream = stream
        self._on_end = on_end
        self._choices = StreamedChoices()
        self._has_ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _take(self, chunk: Any) -> None:
        self._choices.add(_dumped(chunk))

    def _end(self) -> None:
        if not self._has_ended and self._choices.is_complete:
            self._has_ended = True
            self._on_end(self._choices.response())

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._stream)
        except StopIteration:
            self._end()
            raise
        self._take(chunk)
        return chunk

    def __enter__(self) -> Any:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        self._end()
        return self._stream.__exit__(*error)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._stream.__anext__()
        except StopAsyncIteration:
            self._end()
            raise
        self._take(chunk)
        return chunk

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        self._end()
        return await self._stream.__aexit__(*error)
