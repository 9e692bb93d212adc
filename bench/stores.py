"""The durable store beside its floors: what raw DuckDB costs, and what a bare journal does (PERF-08, PERF-09).

In: nothing. Out: figures of one run, all over the same generated events: appended one call each, read back,
listed. The floors store the same JSON texts.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from workbench.model.types import Message, ToolCall, response_of
from workbench.recordings.generate import generate_conversation
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.event_json import event_to_json
from workbench.session.types import Event, SessionKey, UserKey

USER = UserKey("app", "user")
N_READ = 2000
N_LISTED = 100
HEAD = 200


def events(n_events: int) -> list[Event]:
    """Messages of a generated conversation, as stored events."""
    messages = generate_conversation(n_events=n_events, seed=1)["messages"][-n_events:]
    return [_event(n, raw) for n, raw in enumerate(messages)]


def _event(n: int, raw: dict[str, Any]) -> Event:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in raw.get("tool_calls") or ()
    )
    message = Message(raw["role"], raw.get("content") or "", tool_id=raw.get("tool_call_id", ""), tool_calls=calls)
    return Event(f"e{n}", raw["role"], 1_772_000_000 * 10**9 + n, response_of(message), filter_key="app")


def rate(stamps: list[float]) -> float:
    return (len(stamps) - 1) / (stamps[-1] - stamps[0])


def tail_cost(stamps: list[float]) -> float:
    """Time per append at the end over that at the beginning."""
    return (stamps[-1] - stamps[-1 - HEAD]) / (stamps[HEAD] - stamps[0])


def median_ms(work: Callable[[], Any], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


async def durable(path: Path, stored: list[Event]) -> tuple[list[float], DuckDBSessionService]:
    """Appends through the service; the moments in between."""
    service = DuckDBSessionService(path, session_event_limit=0)
    session = await service.create_session("app", "user", "big")
    stamps = [time.perf_counter()]
    for event in stored:
        await service.append_event(session, event)
        stamps.append(time.perf_counter())
    return stamps, service


def raw_journal(path: Path, stored: list[Event]) -> list[float]:
    """Each event flushed to a file, 64 at a time into DuckDB: the least that survives a killed process."""
    connection = duckdb.connect(str(path))
    connection.execute("CREATE TABLE event (sid VARCHAR, seq INTEGER, kind VARCHAR, body VARCHAR)")
    rows: list[tuple[str, int, str, str]] = []
    stamps = [time.perf_counter()]
    with path.with_suffix(".log").open("a", encoding="utf-8") as log:
        for n, event in enumerate(stored):
            row = ("big", n, event.author, json.dumps(event_to_json(event)))
            rows.append(row)
            log.write(json.dumps(row) + "\n")
            log.flush()
            if len(rows) >= 64:
                columns = [list(column) for column in zip(*rows, strict=True)]
                connection.execute(
                    "INSERT INTO event SELECT unnest(?::VARCHAR[]), unnest(?::INTEGER[]), unnest(?::VARCHAR[]), "
                    "unnest(?::VARCHAR[])",
                    columns,
                )
                rows.clear()
                log.seek(0)
                log.truncate()
            stamps.append(time.perf_counter())
    connection.close()
    return stamps


def raw_read(path: Path) -> float:
    """Milliseconds to read the session's texts from the store's own file, and to parse them."""
    with duckdb.connect(str(path), read_only=True) as connection:
        sql = "SELECT event FROM session_events WHERE session_id = ? ORDER BY position"
        return median_ms(lambda: [json.loads(row[0]) for row in connection.execute(sql, ["big"]).fetchall()])


async def read_cold(path: Path) -> float:
    """Milliseconds of the first read after opening."""
    times = []
    for _ in range(5):
        async with DuckDBSessionService(path, session_event_limit=0) as service:
            start = time.perf_counter()
            session = await service.get_session(SessionKey("app", "user", "big"))
            times.append(time.perf_counter() - start)
            assert session is not None
    return statistics.median(times) * 1000


async def listed(path: Path, n_events: int) -> tuple[float, float]:
    """Milliseconds to list the sessions: the first time after opening, and after that."""
    stored = events(n_events)
    async with DuckDBSessionService(path) as service:
        for n in range(N_LISTED):
            session = await service.create_session("app", "user", f"s{n}")
            for event in stored:
                await service.append_event(session, event)
    times = []
    async with DuckDBSessionService(path) as service:
        for _ in range(6):
            start = time.perf_counter()
            assert len(await service.list_sessions(USER)) == N_LISTED
            times.append((time.perf_counter() - start) * 1000)
    return times[0], statistics.median(times[1:])


def raw_list(path: Path) -> float:
    """Milliseconds to select the ids of the sessions."""
    with duckdb.connect(str(path), read_only=True) as connection:
        return median_ms(lambda: connection.execute("SELECT session_id FROM session_states").fetchall())


def run(say: Callable[[str, str, str], None]) -> None:
    """All figures, each in its own folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored = events(N_READ)
        rates, floors = [], []
        for n in range(3):
            floors.append(rate(raw_journal(folder / f"floor{n}.duckdb", stored)))
            stamps, service = asyncio.run(durable(folder / f"r{n}.duckdb", stored))
            rates.append(rate(stamps))
            service.store.close_now()  # type: ignore[attr-defined]
        share = statistics.median(rates) / statistics.median(floors)
        say("durable append over journal and 64-row inserts", f"{share:.2f} x", ">= 0.40")
        say("  appends per second", f"{statistics.median(rates):,.0f}", "")
        tails = []
        for n in range(3):
            stamps, service = asyncio.run(durable(folder / f"t{n}.duckdb", events(10_000)))
            tails.append(tail_cost(stamps))
            service.store.close_now()  # type: ignore[attr-defined]
        say("  last 200 of 10,000 appends over the first 200", f"{statistics.median(tails):.2f} x", "<= 1.2")
        cold, floor = asyncio.run(read_cold(folder / "r0.duckdb")), raw_read(folder / "r0.duckdb")
        say("first read of 2,000 events over DuckDB and JSON alone", f"{cold / floor:.1f} x", "<= 3")
        first, again = asyncio.run(listed(folder / "l1.duckdb", 5))
        first_big, again_big = asyncio.run(listed(folder / "l2.duckdb", 50))
        floor = raw_list(folder / "l1.duckdb")
        say("list of 100 sessions over selecting their ids", f"{again / floor:.1f} x", "<= 2")
        say("  the same with ten times the events", f"{again_big / again:.2f} x", "<= 1.2")
        say("  the first list after opening, with ten times the events", f"{first_big / first:.2f} x", "<= 1.2")
