"""Services with one fault each, for tests of the contract."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from workbench.call import EMPTY_CONTEXT
from workbench.errors import SessionNotFoundError, StoreClosedError
from workbench.model.types import Response
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.session.recall_types import EventWindow
from workbench.session.types import Event, Session, SessionKey, Summary, UserKey
from workbench.store.memory import InMemoryStore
from workbench.store.search import event_window

Make = Callable[..., Awaitable[Any]]


async def sound(settings: ServiceSettings, clock: Any, summarizer: Any = None, **options: Any) -> SessionService:
    """A service over the in-memory store, as it is."""
    return SessionService(
        InMemoryStore(event_limit=settings.event_limit),
        settings=settings,
        clock=clock,
        summarizer=summarizer,
        **options,
    )


@dataclass(frozen=True)
class Fault:
    group: str
    make: Make


FAULTS: dict[str, Fault] = {}


def breaks(group: str) -> Callable[[type], type]:
    """Register a faulty store or service class with the group of checks that has to notice."""

    def register(cls: type) -> type:
        async def make(settings: ServiceSettings, clock: Any, summarizer: Any = None, **options: Any) -> Any:
            store, service = (cls, SessionService) if issubclass(cls, InMemoryStore) else (InMemoryStore, cls)
            return service(
                store(event_limit=settings.event_limit),
                settings=settings,
                clock=clock,
                summarizer=summarizer,
                **options,
            )

        FAULTS[cls.__name__] = Fault(group, make)
        return cls

    return register


# --- stores that lose or change events ------------------------------------------------------------------


@breaks("order and limits")
class DropsEverySeventhEvent(InMemoryStore):
    n_appended = 0

    async def append(self, key: SessionKey, event: Event | None, **facts: Any) -> None:
        self.n_appended += event is not None
        await super().append(key, None if self.n_appended % 7 == 0 else event, **facts)


class Reorders(InMemoryStore):
    @staticmethod
    def order(event: Event) -> Any:
        raise NotImplementedError  # every fault below says how; this base is no service of its own

    async def load(self, key: SessionKey, **facts: Any) -> Session | None:
        session = await super().load(key, **facts)
        if session is not None:
            session.replace_events(sorted(session.events, key=self.order))
        return session

    async def list_events(self, key: SessionKey, **facts: Any) -> list[Event]:
        return sorted(await super().list_events(key, **facts), key=self.order)


@breaks("order and limits")
class SortsEventsById(Reorders):
    @staticmethod
    def order(event: Event) -> Any:
        return event.time_ns, event.id


@breaks("order and limits")
class SortsEventsByTime(Reorders):
    @staticmethod
    def order(event: Event) -> Any:
        return event.time_ns


class Changes(InMemoryStore):
    """Stores something else than it is given."""

    @staticmethod
    def change(event: Event) -> Event:
        raise NotImplementedError  # every fault below says how; this base is no service of its own

    async def append(self, key: SessionKey, event: Event | None, **facts: Any) -> None:
        await super().append(key, None if event is None else self.change(event), **facts)


def with_messages(event: Event, change: Callable[[Any], Any]) -> Event:
    response = event.response or Response()
    choices = tuple(replace(choice, message=change(choice.message)) for choice in response.choices)
    return event.replace(response=replace(response, choices=choices))


def with_texts(event: Event, change: Callable[[str], str]) -> Event:
    return with_messages(event, lambda message: replace(message, content=change(message.content)))


@breaks("append and read back")
class RoundsTimesToMicroseconds(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return event.replace(time_ns=event.time_ns // 1000 * 1000)


@breaks("append and read back")
class CutsTextsAtNul(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return with_texts(event, lambda text: text.split("\0")[0])


@breaks("append and read back")
class ReplacesHalfSurrogates(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return with_texts(event, lambda text: text.encode("utf-8", "replace").decode())


@breaks("append and read back")
class NormalisesTexts(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return with_texts(event, lambda text: unicodedata.normalize("NFC", text))


@breaks("append and read back")
class StripsTexts(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return with_texts(event, str.strip)


@breaks("append and read back")
class CutsLongTexts(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return with_texts(event, lambda text: text[:65_535])


@breaks("append and read back")
class ReformatsToolArguments(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        def reformatted(text: str) -> str:
            try:
                return json.dumps(json.loads(text))
            except ValueError:
                return text

        return with_messages(
            event,
            lambda message: replace(
                message,
                tool_calls=tuple(replace(call, arguments=reformatted(call.arguments)) for call in message.tool_calls),
            ),
        )


@breaks("append and read back")
class TakesMissingUsageForZero(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        response = event.response
        if response is None or response.usage is None:
            return event
        usage = replace(response.usage, prompt_tokens=response.usage.prompt_tokens or 0)
        return event.replace(response=replace(response, usage=usage))


@breaks("append and read back")
class ForgetsExtensions(Changes):
    @staticmethod
    def change(event: Event) -> Event:
        return event.replace(extensions={})


@breaks("append and read back")
class KeepsEachIdOnce(InMemoryStore):
    async def append(self, key: SessionKey, event: Event | None, **facts: Any) -> None:
        row = self._rows.get(key)
        if row is not None and event is not None:
            row.session.replace_events(one for one in row.session.events if one.id != event.id)
        await super().append(key, event, **facts)


@breaks("append and read back")
class LosesStateOfUnstoredEvents(InMemoryStore):
    async def append(self, key: SessionKey, event: Event | None, *, state_delta: Any, **facts: Any) -> None:
        await super().append(key, event, state_delta=state_delta if event is not None else {}, **facts)


@breaks("append and read back")
class StoresPiecesOfStreams(SessionService):
    async def _append(self, session: Session, event: Event) -> None:
        if event.is_partial:
            event = event.replace(response=replace(event.response, is_partial=False))
        await super()._append(session, event)


@breaks("order and limits")
class IgnoresTheLimit(SessionService):
    def __init__(self, store: Any, *, settings: ServiceSettings, **options: Any) -> None:
        super().__init__(InMemoryStore(), settings=settings.model_copy(update={"event_limit": 0}), **options)


@breaks("order and limits")
class DeletesWhatASummaryCovers(InMemoryStore):
    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        session = self._live(key, now_ns).session
        session.replace_events(event for event in session.events if event.time_ns > summary.updated_ns)
        return await super().save_summary(key, filter_key, summary, now_ns=now_ns)


@breaks("order and limits")
class BeginsReadsAnywhere(SessionService):
    async def get_session(self, key: SessionKey, *, event_num: int = 0, **view: Any) -> Session | None:
        if event_num:
            return await super().get_session(key, limit=event_num)
        return await super().get_session(key, **view)


@breaks("event paging")
class PagesFromTheOldest(SessionService):
    async def get_session(
        self, key: SessionKey, *, offset: int | None = None, limit: int | None = None, **view: Any
    ) -> Session | None:
        if offset is None or limit is None or offset < 0 or limit < 0 or view.get("event_num"):
            return await super().get_session(key, offset=offset, limit=limit, **view)
        session = await super().get_session(key, offset=0, **view)
        if session is not None:
            session.replace_events(session.events[offset : offset + limit])
        return session


# --- stores that mix up sessions, states, lives ---------------------------------------------------------


class RenamesKeys(InMemoryStore):
    """Keeps sessions under other keys than it is asked for."""

    @staticmethod
    def kept_under(key: SessionKey) -> SessionKey:
        raise NotImplementedError  # every fault below says how; this base is no service of its own

    async def create(self, session: Session, **facts: Any) -> None:
        named = session.clone()
        key = self.kept_under(session.key)
        named.app_name, named.user_id, named.id = key.app_name, key.user_id, key.session_id
        await super().create(named, **facts)

    async def load(self, key: SessionKey, **facts: Any) -> Session | None:
        return await super().load(self.kept_under(key), **facts)

    async def append(self, key: SessionKey, event: Event | None, **facts: Any) -> None:
        await super().append(self.kept_under(key), event, **facts)

    async def list_events(self, key: SessionKey, **facts: Any) -> list[Event]:
        return await super().list_events(self.kept_under(key), **facts)


@breaks("isolation")
class TakesNoNoticeOfCase(RenamesKeys):
    @staticmethod
    def kept_under(key: SessionKey) -> SessionKey:
        return SessionKey(key.app_name.lower(), key.user_id.lower(), key.session_id.lower())


@breaks("isolation")
class JoinsKeysToOneText(RenamesKeys):
    @staticmethod
    def kept_under(key: SessionKey) -> SessionKey:
        return SessionKey("all", "all", f"{key.app_name}:{key.user_id}:{key.session_id}")


@breaks("isolation")
class SharesUserStateBetweenApplications(InMemoryStore):
    async def user_state(self, user: UserKey, **facts: Any) -> Any:
        return await super().user_state(UserKey("", user.user_id), **facts)

    async def update_user_state(self, user: UserKey, delta: Any, **facts: Any) -> None:
        await super().update_user_state(UserKey("", user.user_id), delta, **facts)


@breaks("isolation")
class SharesUserStateBetweenUsers(InMemoryStore):
    async def user_state(self, user: UserKey, **facts: Any) -> Any:
        return await super().user_state(UserKey(user.app_name, ""), **facts)

    async def update_user_state(self, user: UserKey, delta: Any, **facts: Any) -> None:
        await super().update_user_state(UserKey(user.app_name, ""), delta, **facts)


@breaks("isolation")
class ListsTheSessionsOfAllUsers(InMemoryStore):
    async def list_sessions(self, user: UserKey, *, now_ns: int) -> list[Session]:
        found = []
        for key in list(self._rows):
            if (session := await self.load(key, now_ns=now_ns)) is not None and key.app_name == user.app_name:
                session.replace_events([])
                found.append(session)
        return found


@breaks("state scopes")
class TakesNullForEmpty(InMemoryStore):
    async def update_user_state(self, user: UserKey, delta: Any, **facts: Any) -> None:
        await super().update_user_state(user, {key: value or b"" for key, value in delta.items()}, **facts)


@breaks("state scopes")
class ReplacesStateInsteadOfMerging(InMemoryStore):
    async def update_app_state(self, app_name: str, delta: Any, **facts: Any) -> None:
        self._app_state.pop(app_name, None)
        await super().update_app_state(app_name, delta, **facts)


@breaks("state scopes")
class WritesStateBeforeItRefuses(SessionService):
    async def update_user_state(self, user: UserKey, state: Any) -> None:
        for key, value in state.items():
            await super().update_user_state(user, {key: value})


@breaks("state scopes")
class SpreadsStateOfEvents(SessionService):
    async def _append(self, session: Session, event: Event) -> None:
        await super()._append(session, event)
        await self.update_app_state(session.app_name, dict(event.state_delta))


@breaks("session life cycle")
class OverwritesALiveSession(InMemoryStore):
    async def create(self, session: Session, **facts: Any) -> None:
        self._rows.pop(session.key, None)
        await super().create(session, **facts)


@breaks("session life cycle")
class HandsOutItsOwnSession(InMemoryStore):
    async def load(self, key: SessionKey, *, now_ns: int, newest_events: int = 0) -> Session | None:
        row = self._rows.get(key)
        return row.session if row is not None and row.is_live(now_ns) else None


@breaks("session life cycle")
class ChangesTimesWhenRead(InMemoryStore):
    async def load(self, key: SessionKey, *, now_ns: int, **facts: Any) -> Session | None:
        session = await super().load(key, now_ns=now_ns, **facts)
        if session is not None:
            session.updated_ns = self._rows[key].session.updated_ns = now_ns
        return session


@breaks("session life cycle")
class ListsInTheOrderOfCreation(SessionService):
    async def list_sessions(self, user: UserKey, *, offset: int = 0, limit: int | None = None) -> list[Session]:
        found = await super().list_sessions(user)
        found.sort(key=lambda session: session.created_ns)
        return found[offset : None if limit is None else offset + limit]


@breaks("deletion")
class KeepsSummariesOfTheDeleted(InMemoryStore):
    """Summaries live in a table of their own, which deletion forgets."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.left: dict[SessionKey, dict[str, Summary]] = {}

    async def delete(self, key: SessionKey) -> None:
        if key in self._rows:
            self.left[key] = self._rows[key].session.summaries
        await super().delete(key)

    async def load_summaries(self, key: SessionKey, **facts: Any) -> dict[str, Summary]:
        return {**self.left.get(key, {}), **await super().load_summaries(key, **facts)}


@breaks("deletion")
class BringsBackOldEvents(InMemoryStore):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.left: dict[SessionKey, list[Event]] = {}

    async def delete(self, key: SessionKey) -> None:
        if key in self._rows:
            self.left[key] = self._rows[key].session.events
        await super().delete(key)

    async def create(self, session: Session, **facts: Any) -> None:
        await super().create(session, **facts)
        self._rows[session.key].session.replace_events(self.left.get(session.key, []))


@breaks("deletion")
class ForgetsUserStateWithASession(InMemoryStore):
    async def delete(self, key: SessionKey) -> None:
        await super().delete(key)
        self._user_state.pop(UserKey(key.app_name, key.user_id), None)


@breaks("expiry")
class ForgetsExpiry(InMemoryStore):
    async def create(self, session: Session, *, expires_ns: int, now_ns: int) -> None:
        await super().create(session, expires_ns=0, now_ns=now_ns)


@breaks("expiry")
class KeepsAliveByReading(InMemoryStore):
    async def load(self, key: SessionKey, *, now_ns: int, **facts: Any) -> Session | None:
        session = await super().load(key, now_ns=now_ns, **facts)
        if session is not None and self._rows[key].expires_ns:
            self._rows[key].expires_ns = max(self._rows[key].expires_ns, now_ns + 10 * 10**9)
        return session


@breaks("expiry")
class NeverRefreshes(InMemoryStore):
    async def append(self, key: SessionKey, event: Event | None, *, expires_ns: int, **facts: Any) -> None:
        row = self._rows.get(key)
        await super().append(key, event, expires_ns=expires_ns if row is None else row.expires_ns, **facts)


@breaks("expiry")
class RevivesByAppending(InMemoryStore):
    async def append(self, key: SessionKey, event: Event | None, **facts: Any) -> None:
        if key in self._rows:
            self._rows[key].expires_ns = 0
        await super().append(key, event, **facts)


@breaks("expiry")
class NeverRemovesWhatExpired(InMemoryStore):
    async def sweep(self, *, now_ns: int) -> int:
        return 0


@breaks("expiry")
class EndsASecondLate(InMemoryStore):
    async def create(self, session: Session, *, expires_ns: int, now_ns: int) -> None:
        await super().create(session, expires_ns=expires_ns + 10**9 if expires_ns else 0, now_ns=now_ns)


# --- summaries ------------------------------------------------------------------------------------------


@breaks("late writes")
class LetsTheLastWriteWin(InMemoryStore):
    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        self._live(key, now_ns).session.summaries[filter_key] = summary
        return True


class JudgesSummaries(InMemoryStore):
    @staticmethod
    def is_late(new: Summary, stored: Summary) -> bool:
        raise NotImplementedError  # every fault below says how; this base is no service of its own

    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        summaries = self._live(key, now_ns).session.summaries
        if filter_key in summaries and self.is_late(summary, summaries[filter_key]):
            return False
        summaries[filter_key] = summary
        return True


@breaks("late writes")
class LooksAtTimesOnly(JudgesSummaries):
    @staticmethod
    def is_late(new: Summary, stored: Summary) -> bool:
        return new.updated_ns < stored.updated_ns


@breaks("late writes")
class ComparesMicroseconds(JudgesSummaries):
    @staticmethod
    def is_late(new: Summary, stored: Summary) -> bool:
        return new.updated_ns // 1000 < stored.updated_ns // 1000


@breaks("late writes")
class KeepsTheFirstOfEquals(JudgesSummaries):
    @staticmethod
    def is_late(new: Summary, stored: Summary) -> bool:
        return new.updated_ns <= stored.updated_ns


@breaks("late writes")
class HasOneBoundaryForAllKeys(InMemoryStore):
    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        stored = self._live(key, now_ns).session.summaries.values()
        if any(summary.updated_ns < other.updated_ns for other in stored):
            return False
        return await super().save_summary(key, filter_key, summary, now_ns=now_ns)


@breaks("summaries with boundaries")
class StoresTheTextWithoutItsBoundary(InMemoryStore):
    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        return await super().save_summary(key, filter_key, replace(summary, boundary=None), now_ns=now_ns)


@breaks("summaries with boundaries")
class TakesTheTimeOfWritingForTheCutoff(InMemoryStore):
    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        return await super().save_summary(key, filter_key, replace(summary, updated_ns=now_ns), now_ns=now_ns)


@breaks("summaries with boundaries")
class ChangesTheSessionsTimeBySummarising(InMemoryStore):
    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        self._live(key, now_ns).session.updated_ns = now_ns
        return await super().save_summary(key, filter_key, summary, now_ns=now_ns)


@breaks("summaries with boundaries")
class SummarisesWithoutAsking(SessionService):
    async def create_session_summary(self, session: Any, filter_key: str = "", **more: Any) -> None:
        await super().create_session_summary(session, filter_key, **{**more, "force": True})


@breaks("summaries with boundaries")
class ValidatesWithoutASummarizer(SessionService):
    async def create_session_summary(self, session: Any, filter_key: str = "", **more: Any) -> None:
        if session is None:
            raise SessionNotFoundError("no session")
        await super().create_session_summary(session, filter_key, **more)


@breaks("reading a summary")
class ReadsTheObjectOnly(SessionService):
    async def get_session_summary_text(self, session: Session | None, filter_key: str = "") -> str | None:
        if session is None or not session.summaries:
            return None
        return await super().get_session_summary_text(session, filter_key)


@breaks("reading a summary")
class ReadsTheStoreOnly(SessionService):
    async def get_session_summary_text(self, session: Session | None, filter_key: str = "") -> str | None:
        twin = None if session is None else session.clone()
        if twin is not None:
            twin.summaries = {}
        return await super().get_session_summary_text(twin, filter_key)


@breaks("reading a summary")
class ReadsLeftovers(SessionService):
    async def get_session_summary_text(self, session: Session | None, filter_key: str = "") -> str | None:
        twin = None if session is None else session.clone()
        if twin is not None:
            twin.created_ns = 0
        return await super().get_session_summary_text(twin, filter_key)


# --- hooks, errors, jobs, closing -----------------------------------------------------------------------


@breaks("hooks")
class RunsHooksBackwards(SessionService):
    def __init__(self, *args: Any, append_event_hooks: Any = (), **options: Any) -> None:
        super().__init__(*args, append_event_hooks=tuple(reversed(append_event_hooks)), **options)


@breaks("hooks")
class SwallowsErrorsOfHooks(SessionService):
    async def append_event(self, session: Session, event: Event, **more: Any) -> Event | None:
        with suppress(LookupError):
            return await super().append_event(session, event, **more)


@breaks("hooks")
class ForgetsGetHooks(SessionService):
    def __init__(self, *args: Any, get_session_hooks: Any = (), **options: Any) -> None:
        super().__init__(*args, **options)


@breaks("errors")
class MakesSessionsByAppending(SessionService):
    async def _append(self, session: Session, event: Event) -> None:
        if await self.store.load(session.key, now_ns=self._clock.now_ns()) is None:
            await self.create_session(session.app_name, session.user_id, session.id)
        await super()._append(session, event)


@breaks("errors")
class TakesEmptyKeys(SessionService):
    async def delete_session(self, key: SessionKey) -> None:
        await self.store.delete(key)


@breaks("background summaries")
class SummarisesInTheForeground(SessionService):
    async def enqueue_summary_job(self, session: Any, filter_key: str = "", **more: Any) -> None:
        await self.create_session_summary(session, filter_key, **more)


@breaks("background summaries")
class QueuesASnapshot(SessionService):
    async def enqueue_summary_job(self, session: Any, filter_key: str = "", **more: Any) -> None:
        await super().enqueue_summary_job(session if session is None else session.clone(), filter_key, **more)


@breaks("background summaries")
class LosesTheContextOfJobs(SessionService):
    async def enqueue_summary_job(self, session: Any, filter_key: str = "", **more: Any) -> None:
        await super().enqueue_summary_job(session, filter_key, **{**more, "ctx": EMPTY_CONTEXT})


@breaks("background summaries")
class HasOneWorkerOnly(SessionService):
    def __init__(self, *args: Any, settings: ServiceSettings, **options: Any) -> None:
        super().__init__(*args, settings=settings.model_copy(update={"async_summary_num": 1}), **options)


@breaks("close")
class DropsTheQueueWhenClosed(SessionService):
    async def close(self) -> None:
        for task in self._workers._tasks:
            task.cancel()
        await self.store.close()


@breaks("close")
class ClosesOnce(SessionService):
    async def close(self) -> None:
        if self._closed:
            raise StoreClosedError("closed already")
        await super().close()


# --- windows and search ---------------------------------------------------------------------------------


@breaks("event window")
class LooksThroughTheView(SessionService):
    async def get_event_window(self, request: Any, **more: Any) -> EventWindow:
        session = await self.get_session(request.key)
        return event_window([] if session is None else session.events, request)


@breaks("event window")
class CountsEveryEvent(SessionService):
    async def get_event_window(self, request: Any, **more: Any) -> EventWindow:
        window = await super().get_event_window(replace(request, before=99, after=99), **more)
        place = [entry.event.id for entry in window.entries].index(window.anchor_event_id)
        kept = window.entries[max(place - request.before, 0) : place + request.after]
        return replace(window, entries=kept)


@breaks("search")
class SearchesTheOldestFirst(SessionService):
    async def search_events(self, request: Any, **more: Any) -> Any:
        return sorted(await super().search_events(request, **more), key=lambda hit: hit.created_ns)


@breaks("search")
class SearchesEverything(SessionService):
    async def search_events(self, request: Any, **more: Any) -> Any:
        return await super().search_events(replace(request, roles=(), filter_key="", created_after_ns=0), **more)
