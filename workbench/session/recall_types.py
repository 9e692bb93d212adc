"""What asking for old history looks like: requests, answers, the two optional capabilities of a service.

In: nothing. Out: values and protocols that stores, services and the recall tools share, and the one rule of
what counts as history (ASM-OND-04, SUM-WIN-02, SUM-SCH-02). Implements the types of SUM-WIN, SUM-SCH-01 and
SUM-STO-01.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.errors import InvalidSessionKeyError, PagingError
from workbench.model.types import ASSISTANT, TOOL, USER, Message
from workbench.session.types import Event, SessionKey, UserKey

SearchMode = Literal["dense", "hybrid"]
SEARCH_MODES: tuple[SearchMode, ...] = ("dense", "hybrid")
HISTORY_ROLES = (USER, ASSISTANT, TOOL)
"""The roles that history has; system messages are never recalled."""

DEFAULT_MAX_RESULTS = 5
DEFAULT_RRF_K = 60
DEFAULT_CANDIDATE_RATIO = 3


@dataclass(frozen=True, slots=True)
class HistoryText:
    """One text of an event that can be found, read or counted (ASM-OND-04)."""

    role: str
    """user, assistant or tool."""
    text: str
    """Trimmed, without the tool's name."""
    tool_call_id: str = ""
    tool_name: str = ""
    choice: int = 0
    """Which choice of the event it stands in."""

    @property
    def labelled(self) -> str:
        """The text as it is searched and shown: a tool result starts with `<tool name>: `."""
        return f"{self.tool_name}: {self.text}" if self.tool_name else self.text


def message_text(message: Message) -> str:
    """The trimmed content; without any, the trimmed text parts joined by line breaks."""
    if text := message.content.strip():
        return text
    parts = (part.text.strip() for part in message.content_parts if part.type == "text")
    return "\n".join(part for part in parts if part)


def history_text(message: Message, choice: int = 0) -> HistoryText | None:
    """What a message adds to history; None for tool calls, other roles and blank texts."""
    if message.tool_calls:
        return None
    is_tool = bool(message.tool_id) or message.role == TOOL
    role = TOOL if is_tool else message.role or ASSISTANT
    if role not in HISTORY_ROLES:
        return None
    text = message_text(message)
    if not text:
        return None
    if not is_tool:
        return HistoryText(role, text, choice=choice)
    return HistoryText(role, text, message.tool_id.strip(), message.tool_name.strip(), choice)


def history_texts(event: Event, *, first_choice_only: bool = False) -> tuple[HistoryText, ...]:
    """The texts of an event that count as history: its first choice, and further tool results beside it.

    An event whose first choice calls tools has none. `first_choice_only` is the references' habit: results
    of parallel calls that share an event stay unseen behind the first one (DA12).
    """
    if event.response is None or event.is_partial or not event.response.choices:
        return ()
    messages = event.messages
    if messages[0].tool_calls:
        return ()
    texts: list[HistoryText] = []
    for choice, message in enumerate(messages[:1] if first_choice_only else messages):
        text = history_text(message, choice)
        if text is not None and (choice == 0 or text.role == TOOL):
            texts.append(text)
    return tuple(texts)


# --- windows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventWindowRequest:
    """Asks for the history around one event (SUM-WIN-01)."""

    key: SessionKey
    anchor_event_id: str
    before: int = 0
    """History events before the anchor, after filtering by role."""
    after: int = 0
    roles: tuple[str, ...] = ()
    """Roles that count; empty = all of history's."""

    def check(self) -> None:
        """Raise unless the key is whole, an anchor is named and both sides are 0 or more.

        Raises:
            InvalidSessionKeyError: a part of the key is empty.
            PagingError: no anchor, or a negative size.
        """
        self.key.check()
        if not self.anchor_event_id.strip():
            raise PagingError("the window has no anchor event id", hint="give the id of a stored event")
        if self.before < 0 or self.after < 0:
            raise PagingError(
                f"a window of {self.before} before and {self.after} after; allowed: 0 or more",
                hint="give sizes of 0 or more",
            )


@dataclass(frozen=True, slots=True)
class EventWindowEntry:
    """One event of a window."""

    event: Event
    created_ns: int


@dataclass(frozen=True, slots=True)
class EventWindow:
    """History events around an anchor, in stored order (SUM-WIN-03)."""

    key: SessionKey
    anchor_event_id: str
    entries: tuple[EventWindowEntry, ...]


# --- search -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventSearchRequest:
    """Asks a service for events that fit a text (SUM-SCH-01)."""

    query: str
    user_key: UserKey
    session_ids: tuple[str, ...] = ()
    """Search only these sessions; empty = all of the user's."""
    exclude_session_ids: tuple[str, ...] = ()
    max_results: int = DEFAULT_MAX_RESULTS
    min_score: float = 0.0
    """Least similarity of a dense hit; keyword hits aren't held to it."""
    filter_key: str = ""
    """Ancestors, descendants and events without a key match too; empty = every event."""
    roles: tuple[str, ...] = ()
    created_after_ns: int = 0
    """Earliest time, itself included; 0 = no limit."""
    created_before_ns: int = 0
    """Latest time, itself included; 0 = no limit."""
    search_mode: str = "dense"
    hybrid_rrf_k: int = DEFAULT_RRF_K
    """The constant k of rank fusion."""
    hybrid_candidate_ratio: int = DEFAULT_CANDIDATE_RATIO
    """How many candidates each part of a hybrid search brings, per result wanted."""

    def check(self) -> None:
        """Raise `InvalidSessionKeyError` unless an application and a user are named."""
        for name in ("app_name", "user_id"):
            if not getattr(self.user_key, name):
                raise InvalidSessionKeyError(name)


@dataclass(frozen=True, slots=True)
class EventSearchResult:
    """One event that fits."""

    session_key: SessionKey
    event: Event
    created_ns: int
    role: str
    text: str
    """The text that was found, tool results with `<tool name>: ` in front."""
    score: float
    dense_score: float = 0.0
    sparse_score: float = 0.0
    session_created_ns: int = 0
    choice: int = 0
    """Which choice of the event was found."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """Two results with the same identity are the same hit."""
        return (self.session_key.session_id, self.event.id, self.choice)


# --- capabilities -------------------------------------------------------------------------------------


@runtime_checkable
class WindowService(Protocol):
    """A session service that can read around an event (SUM-STO-01)."""

    async def get_event_window(self, request: EventWindowRequest, *, ctx: CallContext = EMPTY_CONTEXT) -> EventWindow:
        """The window, from raw stored events, not from the view a prompt is made of.

        Raises:
            EventWindowAnchorNotFoundError: no such event in a live session, or it isn't history of these roles.
            PagingError: no anchor, or a negative size.
        """
        ...


@runtime_checkable
class SearchableService(Protocol):
    """A session service that can search events (SUM-STO-01)."""

    async def search_events(
        self, request: EventSearchRequest, *, ctx: CallContext = EMPTY_CONTEXT
    ) -> Sequence[EventSearchResult]:
        """What fits, best first; a blank query fits nothing.

        Raises:
            ConfigError: an unknown mode, or no embedder to search with.
        """
        ...


@runtime_checkable
class EventListService(Protocol):
    """A session service that hands out raw stored events."""

    async def list_events(self, key: SessionKey) -> Sequence[Event]:
        """All stored events, oldest first; none for a missing session."""
        ...


def supports_search(service: Any) -> bool:
    """`service` can search now: it has the method and doesn't say `supports_search = False`.

    One service class stands over stores of both kinds, so it may answer with an attribute.
    """
    return isinstance(service, SearchableService) and bool(getattr(service, "supports_search", True))


def supports_windows(service: Any) -> bool:
    """`service` can load windows now: it has the method and doesn't say `supports_windows = False`."""
    return isinstance(service, WindowService) and bool(getattr(service, "supports_windows", True))
