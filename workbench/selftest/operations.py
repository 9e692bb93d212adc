"""Random operations on a store and on a plain one in memory, compared after each step (REL-01).

In: a seed. Out: operations made of plain values, and a tally of the differences. Closing and opening comes in
between, caches are far too small, texts are what texts can be at worst.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.model.types import (
    Choice,
    ContentPart,
    Message,
    Response,
    ResponseError,
    ToolCall,
    Usage,
    response_of,
)
from workbench.selftest.store_files import new_store, small_limits
from workbench.selftest.tally import Tally
from workbench.session.types import Event, Session, SessionKey, Summary, SummaryBoundary, UserKey
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.memory import InMemoryStore

TEXTS = (
    "",
    "plain",
    "a'; DROP TABLE session_events; --",
    "汉字 and 😀",
    "nul \x00 inside",
    "half \ud83d pair",
    "tab\tand\nlines\r\u2028",
    "\x00json:pretends",
    '{"json": [1, null]}',
    "x" * 5000,
)
IDS = ("s", "会话", "a/b", "' OR 1=1 --", "s\x00", "\udc00", " ")
APPS = ("app", "app'", "other")
USERS = ("user", "ユーザー")


def random_message(random_: random.Random) -> Message:
    """A message with anything in it."""
    role = random_.choice(("user", "assistant", "tool", "system", "", "narrator"))
    calls: tuple[ToolCall, ...] = ()
    if random_.random() < 0.2:
        calls = (
            ToolCall(
                "call_1",
                "search",
                random_.choice(('{"q": 1}', "not json", '{"n": 12345678901234567890}')),
                random_.choice(("function", "other")),
                strict=random_.choice((None, True, False)),
                index=random_.choice((None, 0, 3)),
                extra_fields=random_.choice(((), (("a", "1"), ("a", "2")))),
            ),
        )
    parts = (ContentPart("text", random_.choice(TEXTS)), ContentPart("", url="u")) if random_.random() < 0.1 else ()
    return Message(
        role,
        random_.choice(TEXTS),
        parts,
        tool_id="call_1" if role == "tool" else "",
        tool_name="search" if role == "tool" else "",
        tool_calls=calls,
        reasoning_content=random_.choice(("", "because")),
    )


def random_event(random_: random.Random, n: int, now_ns: int) -> Event:
    """An event that may be odd, also in its time: it may go back."""
    kind = random_.random()
    message = random_message(random_)
    if kind < 0.7:
        response = response_of(message)
    elif kind < 0.8:
        response = Response(
            (Choice(message, random_message(random_), 4, "stop"), Choice(message)),
            "r",
            "o",
            "m",
            Usage(1, None, 0),
            ResponseError("t", "\ud800"),
            12,
            now_ns + 5,
            done=False,
        )
    else:
        response = response_of()
    return Event(
        id=random_.choice((f"e{n}", f"e{n}", random_.choice(TEXTS))),
        author=random_.choice(("user", "agent", "")),
        time_ns=random_.choice((now_ns + n, now_ns + 123_456_789, 0, -1, 2**62)),
        response=random_.choice((response, response, None)),
        branch=random_.choice(("", "root/a")),
        filter_key=random_.choice(("", "app", "app/x")),
        state_delta=random_.choice(({}, {"k": b"\x00\xff", "gone": None})),
        skip_summarization=random_.random() < 0.1,
        extensions=random_.choice(({}, {"a": [1, 2.5, None, "\ud800"], "b": {"c": float("inf")}})),
        version=random_.choice((1, 0)),
    )


def random_summary(random_: random.Random, now_ns: int) -> Summary:
    """A summary that may be older than the stored one."""
    cutoff = now_ns + random_.randrange(4)
    boundary = SummaryBoundary("app", cutoff, f"e{random_.randrange(40)}") if random_.random() < 0.8 else None
    return Summary(random_.choice(TEXTS), random_.choice((0, cutoff)), boundary, random_.choice(((), ("t", "\ud800"))))


def seen(value: Any) -> Any:
    """An answer in a form that can be compared."""
    if isinstance(value, Session):
        return (
            value.key,
            value.first_position,
            value.events,
            value.state,
            value.summaries,
            value.created_ns,
            value.updated_ns,
        )
    if isinstance(value, list) and value and isinstance(value[0], Session):
        return sorted((seen(item) for item in value), key=lambda item: str(item[0]))
    return value


async def result_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call answers, or the kind and text of its error."""
    try:
        return seen(await call(*args, **kwargs))
    except WorkbenchError as error:
        return type(error).__name__, str(error)


class Driver:
    """Chooses operations; `step` names one, made of plain values, that any store can carry out."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = 1_772_000_000 * 10**9
        self.n = 0

    def key(self) -> SessionKey:
        random_ = self.random
        return SessionKey(random_.choice(APPS[:2]), random_.choice(USERS), random_.choice(IDS[:4]))

    def user(self) -> UserKey:
        return UserKey(self.random.choice(APPS), self.random.choice(USERS))

    def state(self) -> dict[str, bytes | None]:
        return {self.random.choice(("a", "b", "\ud800", "'")): self.random.choice((b"", b"\x00\xfe", None, b"x"))}

    def step(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Name, arguments and keyword arguments of the next operation."""
        random_ = self.random
        self.n += 1
        self.now_ns += random_.choice((0, 1, 1000, 10**9))
        if random_.random() < 0.002:  # the clock is put back by an hour (REL-16)
            self.now_ns -= 3600 * 10**9
        now = {"now_ns": self.now_ns}
        expires = random_.choice((0, 0, 0, self.now_ns + 5 * 10**9))
        name = random_.choices(
            (
                *("append", "load", "create", "list_sessions", "list_events", "save_summary", "load_summaries"),
                *("delete", "app_state", "update_app_state", "delete_app_state"),
                *("user_state", "update_user_state", "delete_user_state", "update_session_state", "sweep"),
            ),
            (40, 12, 12, 5, 4, 8, 3, 2, 2, 3, 1, 2, 3, 1, 3, 1),
        )[0]
        write = {**now, "expires_ns": expires}
        if name == "append":
            event = random_event(random_, self.n, self.now_ns) if random_.random() < 0.9 else None
            delta = random_.choice(({}, self.state()))
            return name, (self.key(), event), {**write, "state_delta": delta, "updated_ns": self.now_ns}
        if name == "create":
            key = self.key()
            session = Session(
                app_name=key.app_name,
                user_id=key.user_id,
                id=key.session_id,
                state=self.state(),
                created_ns=self.now_ns,
                updated_ns=self.now_ns,
            )
            return name, (session,), write
        if name == "load":
            return name, (self.key(),), {**now, "newest_events": random_.choice((0, 0, 1, 3))}
        if name == "list_sessions":
            return name, (self.user(),), now
        if name in ("list_events", "load_summaries"):
            return name, (self.key(),), now
        if name == "save_summary":
            return name, (self.key(), random_.choice(TEXTS[:6]), random_summary(random_, self.now_ns)), now
        if name == "delete":
            return name, (self.key(),), {}
        if name == "sweep":
            return name, (), now
        if name == "update_session_state":
            return name, (self.key(), self.state()), {**write, "updated_ns": self.now_ns}
        who: Any = random_.choice(APPS) if "app" in name else self.user()
        if name.startswith("update"):
            return name, (who, self.state()), write
        if name.startswith("delete"):
            return name, (who, random_.choice(("a", "b", "\ud800"))), {}
        return name, (who,), now


async def whole(store: Any, now_ns: int) -> Any:
    """Everything that can be read."""
    out = []
    for app in APPS:
        out.append(await store.app_state(app, now_ns=now_ns))
        for user in USERS:
            out.append(await store.user_state(UserKey(app, user), now_ns=now_ns))
            for session in sorted(
                await store.list_sessions(UserKey(app, user), now_ns=now_ns), key=lambda session: session.id
            ):
                out.append(seen(await store.load(session.key, now_ns=now_ns)))
                out.append(await store.list_events(session.key, now_ns=now_ns))
    return out


def compare_with_memory(
    folder: Path, *, n: int, seed: int, n_per_store: int = 2000, n_until_reopened: int = 250
) -> Tally:
    """`n` operations, in several stores; each store ends at its first difference."""
    tally = Tally("random operations", "differences")
    for number in range(-(-n // n_per_store)):
        n_steps = min(n_per_store, n - number * n_per_store)
        limits = {"BATCH_CHANGES": 30, "MAX_CACHED_EVENTS": 60, "MAX_CACHED_SESSIONS": 9}
        if number % 2:
            limits["MAX_KNOWN_KEYS"] = 0
        with small_limits(**limits):
            work = _compare(folder, tally, seed + number, n_steps, n_until_reopened, soft_delete=bool(number % 2))
            asyncio.run(work)
    return tally


async def _compare(
    folder: Path, tally: Tally, seed: int, n_steps: int, n_until_reopened: int, *, soft_delete: bool
) -> None:
    driver, memory = Driver(seed), InMemoryStore()
    store = new_store(folder, f"random{seed}.duckdb", soft_delete=soft_delete)
    try:
        for i in range(n_steps):
            name, args, kwargs = driver.step()
            expected = await result_of(getattr(memory, name), *args, **kwargs)
            found = await result_of(getattr(store, name), *args, **kwargs)
            tally.trial()
            if found != expected:
                tally.fault("differences", f"seed {seed}, step {i}: {name}{args} {kwargs}")
                return
            if (i + 1) % n_until_reopened == 0 or i + 1 == n_steps:
                await store.close()
                store = DuckDBStore(store.path, soft_delete=soft_delete)
                if await whole(store, driver.now_ns) != await whole(memory, driver.now_ns):
                    tally.fault("differences", f"seed {seed}, step {i}: other content after opening")
                    return
    finally:
        await store.close()
