"""Runs on disk: one immutable DuckDB file each, written block by block, and the catalogue of a folder.

In: traces of conversations. Out: `Run` and `RunSet`. A run in progress is `<id>.partial.duckdb`; only a
whole one gets its final name, so nothing half-written is ever taken for a finished run. Files are opened per
operation: whoever looks at runs blocks nobody. Implements WB-RPL-10 and -11.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import RunConfig
from workbench.errors import ConfigError, ReplayError, StoreError, StoreLockedError, nearest_name
from workbench.facts import CODE
from workbench.recordings.types import Conversation
from workbench.replay.conversation import ConversationTrace, grown_seeds
from workbench.replay.needed import MAX_CHANCE, MIN_CONVERSATIONS, MIN_FACTS
from workbench.replay.needed_states import VISIBLE
from workbench.replay.prompt import Call, call_made_again
from workbench.replay.trace import TABLES
from workbench.store import tables as duck

if TYPE_CHECKING:
    from workbench.evaluate.cost import RunCost

TRACE_VERSION = 6
RUNS_FOLDER = "runs"
_MAX_NEAR = 3
_RUN_COLUMNS = (
    ("run_id", "VARCHAR"),
    ("config", "VARCHAR"),
    ("config_hash", "VARCHAR"),
    ("data_hash", "VARCHAR"),
    ("profile", "VARCHAR"),
    ("config_json", "VARCHAR"),
    ("facts_json", "VARCHAR"),
    ("trace_version", "INTEGER"),
)
_DONE_COLUMNS = (("position", "INTEGER PRIMARY KEY"), ("conversation", "VARCHAR"), ("digest", "VARCHAR"))

FACT_NAMES = (
    "run_id",
    "config",
    "config_hash",
    "data_hash",
    "profile",
    "conversations",
    "events",
    "calls",
    "checks",
    "firings",
    "summaries",
    "prompt_tokens",
    "peak_prompt_tokens",
    "overflow_calls",
    "unknown_windows",
    "summary_tokens",
    "summary_prefix_tokens",
    "prefix_tokens",
    "prefix_reuse",
    "prefix_share",
    "cached_tokens",
    "written_tokens",
    "summary_cached_tokens",
    "cache_rules",
    "needed_facts",
    "needed_fact_recall",
    "cost",
    "currency",
    "cost_usd",
    "protocol_violations",
    "coverage_violations",
    "stuck_conversations",
    "trace_hash",
)
"""Keys of a run's figures, as `workbench replay --json` prints them (WB-CLI-03); None = not known."""

# Without class `code` and without classes that chance alone would fill (WB-RET-01a, -01b).
_HEADLINE_FACTS = f"""
headline AS (
    SELECT conversation, state IN ({", ".join(map(repr, VISIBLE))}) AS visible FROM needed_facts
    WHERE kind <> '{CODE}' AND kind NOT IN (
        SELECT kind FROM fact_chance GROUP BY kind HAVING sum(by_chance) > {MAX_CHANCE} * sum(needed)))
"""  # noqa: S608 - constants of this package
_TOTALS_SQL = f"""
WITH {_HEADLINE_FACTS}
SELECT
    (SELECT count(*) FROM conversations) AS conversations,
    (SELECT coalesce(sum(events), 0) FROM conversations) AS events,
    (SELECT count(*) FROM calls) AS calls,
    (SELECT count(*) FROM checks) AS checks,
    (SELECT count(*) FROM checks WHERE fired) AS firings,
    (SELECT count(*) FROM summaries WHERE status = 'written') AS summaries,
    (SELECT coalesce(sum(prompt_tokens), 0) FROM calls) AS prompt_tokens,
    (SELECT max(prompt_tokens) FROM calls) AS peak_prompt_tokens,
    (SELECT CASE WHEN count("window") = 0 THEN NULL ELSE count(*) FILTER (overflow) END FROM calls) AS overflow_calls,
    (SELECT count(*) FILTER ("window" IS NULL) FROM calls) AS unknown_windows,
    (SELECT coalesce(sum(request_tokens + completion_tokens), 0) FROM summaries) AS summary_tokens,
    (SELECT count(*) FROM violations WHERE kind = 'protocol') AS protocol_violations,
    (SELECT count(*) FROM violations WHERE kind = 'coverage') AS coverage_violations,
    (SELECT coalesce(sum(prefix_tokens), 0) FROM summaries) AS summary_prefix_tokens,
    (SELECT sum(prefix_tokens) FROM calls) AS prefix_tokens,
    (SELECT sum(prefix_tokens) / nullif(sum(reusable_tokens), 0) FROM calls
        WHERE prefix_tokens IS NOT NULL) AS prefix_reuse,
    (SELECT sum(prefix_tokens) / nullif(sum(prompt_tokens), 0) FROM calls
        WHERE prefix_tokens IS NOT NULL) AS prefix_share,
    (SELECT count(*) FROM headline) AS needed_facts,
    (SELECT CASE WHEN count(*) >= {MIN_FACTS} AND count(DISTINCT conversation) >= {MIN_CONVERSATIONS}
        THEN avg(visible::INTEGER) END FROM headline) AS needed_fact_recall
"""  # noqa: S608 - constants of this package


@dataclass(frozen=True, slots=True)
class RunKey:
    """What makes a run what it is; a stored run is used again only when all of it agrees (WB-CFG-03)."""

    config: RunConfig
    data_hash: str
    source_version: str
    engine_version: str

    @property
    def run_id(self) -> str:
        """Configuration name and a hash of everything that matters."""
        parts = [
            self.config.label(),
            self.config.config_hash,
            self.data_hash,
            self.source_version,
            self.engine_version,
            TRACE_VERSION,
        ]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        slug = re.sub(r"[^\w.-]+", "-", self.config.label(), flags=re.ASCII).strip("-.")[:40] or "run"
        return f"{slug}-{digest[:12]}"


class RunWriter:
    """Writes one run; goes on where an interrupted one stopped."""

    def __init__(self, folder: Path, key: RunKey) -> None:
        self.key = key
        self.path = folder / f"{key.run_id}.duckdb"
        self._partial = folder / f"{key.run_id}.partial.duckdb"
        self.done: frozenset[int] = frozenset()
        self._tables: duck.TableFile | None = None

    @property
    def is_finished(self) -> bool:
        """The whole run is there already."""
        return self.path.exists()

    def begin(self, *, fresh: bool) -> None:
        """Open what an interrupted run left, or start anew."""
        if fresh:
            self._remove(self._partial)  # the finished run stays until the new one takes its place
        if self._partial.exists():
            try:
                self._tables = duck.TableFile(self._partial)
                _, rows = self._tables.read("SELECT position FROM done")
                self.done = frozenset(row[0] for row in rows)
                return
            except StoreLockedError:
                raise
            except StoreError:
                self.close()
                self._remove(self._partial)  # what can't be read is replayed again
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        schemas = {name: [(c.name, c.type) for c in table.columns] for name, table in TABLES.items()}
        self._tables = duck.TableFile(self._partial)
        self._tables.create({**schemas, "run": _RUN_COLUMNS, "done": _DONE_COLUMNS})

    def _opened(self) -> duck.TableFile:
        """The file, taken up again if it was let go."""
        if self._tables is None:
            busy = StoreLockedError(f"{self._partial}: another process replays the same run", hint="wait, or end it")
            if not self._partial.exists():
                raise busy
            self._tables = duck.TableFile(self._partial)
            _, counted = self._tables.read("SELECT count(*) FROM done")
            if counted[0][0] != len(self.done):
                raise busy
        return self._tables

    def close(self) -> None:
        """Let the file go; what is written stays, and the next block takes it up again."""
        tables, self._tables = self._tables, None
        if tables is not None:
            tables.close()

    def add(self, traces: Sequence[ConversationTrace]) -> None:
        """Write a block of conversations: all of it or nothing."""
        if not traces:
            return
        rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
        for trace in traces:
            for name, batch in trace.rows.items():
                rows[name].extend(batch)
        done = [(trace.position, trace.conversation, trace.digest()) for trace in traces]
        self._opened().append({**rows, "done": done})
        self.done |= {trace.position for trace in traces}

    def finish(self) -> None:
        """Add the totals and give the file its final name."""
        tables = self._opened()
        _, finished = tables.read("SELECT count(*) FROM run")
        if not finished[0][0]:
            self._add_totals(tables)
        self.close()
        try:
            self._partial.replace(self.path)
        except OSError as error:
            raise StoreError(f"{self.path}: can't be written: {error.strerror}") from error

    def _add_totals(self, tables: duck.TableFile) -> None:
        facts = self._facts(tables)
        config = self.key.config
        row = (
            facts["run_id"],
            facts["config"],
            facts["config_hash"],
            facts["data_hash"],
            facts["profile"],
            json.dumps({"name": config.name, **config.to_values()}, ensure_ascii=False, sort_keys=True),
            json.dumps(facts, ensure_ascii=False),
            TRACE_VERSION,
        )
        tables.append({"run": [row]})

    def _facts(self, tables: duck.TableFile) -> dict[str, Any]:
        columns, rows = tables.read(_TOTALS_SQL)
        totals = {name: _plain_number(value) for name, value in zip(columns, rows[0], strict=True)}
        _, digests = tables.read("SELECT digest FROM done ORDER BY position")
        trace_hash = hashlib.sha256("".join(row[0] for row in digests).encode()).hexdigest()
        config = self.key.config
        known = {
            **totals,
            "run_id": self.key.run_id,
            "config": config.label(),
            "config_hash": config.config_hash,
            "data_hash": self.key.data_hash,
            "profile": config.profile,
            "trace_hash": trace_hash,
            "stuck_conversations": _stuck_conversations(tables),
        }
        return {name: known.get(name) for name in FACT_NAMES}

    @staticmethod
    def _remove(path: Path) -> None:
        for leftover in (path, path.with_name(path.name + ".wal")):
            leftover.unlink(missing_ok=True)


def _stuck_conversations(tables: duck.TableFile) -> int:
    """How many conversations are stuck in firings that don't pay (WB-RPL-14)."""
    from workbench.evaluate.thrash import thrash

    columns = {
        "calls": "conversation, call, request, prompt_tokens, summary_key",
        "summaries": "conversation, summary, call, filter_key, status, covered_tokens, completion_tokens",
    }
    rows = {}
    for table, wanted in columns.items():
        names, found = tables.read(f"SELECT {wanted} FROM {table}")  # noqa: S608 - the names above
        rows[table] = [dict(zip(names, row, strict=True)) for row in found]
    return len(thrash(rows["calls"], rows["summaries"]).stuck)


def _plain_number(value: Any) -> Any:
    return value if value is None or isinstance(value, float) else int(value)


class _Costs:
    """What runs cost call by call, the newest kept: in a sweep of many runs those of all would fill the memory."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._kept: OrderedDict[Run, RunCost] = OrderedDict()

    def of(self, run: Run) -> RunCost:
        if run not in self._kept:
            from workbench.evaluate.cost import cost_of

            room = self._max_calls - (run.stored_facts.get("calls") or 0)
            while self._kept and sum(len(cost.calls) for cost in self._kept.values()) > room:
                self._kept.popitem(last=False)
            self._kept[run] = cost_of(run)
        self._kept.move_to_end(run)
        return self._kept[run]


_COSTS_KEPT = 20_000
"""Calls."""
_costs = _Costs(_COSTS_KEPT)


class Run:
    """A finished run. `conversations` lets it show exact requests; without them it has its rows only."""

    def __init__(self, path: Path, *, conversations: Sequence[Conversation] | None = None) -> None:
        self.path = path
        self._conversations = conversations
        columns, rows = duck.read_table(path, "run")
        if not rows:
            raise StoreError(f"{path}: the run isn't finished", hint="run the same replay again to finish it")
        self._meta = dict(zip(columns, rows[0], strict=True))

    @property
    def name(self) -> str:
        """The configuration's name."""
        return str(self._meta["config"])

    @property
    def run_id(self) -> str:
        """Name and hash of configuration, data and engine."""
        return str(self._meta["run_id"])

    @property
    def is_current(self) -> bool:
        """Its tables are those of this version."""
        return bool(self._meta["trace_version"] == TRACE_VERSION)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The run's figures (`FACT_NAMES`); those of cache and money are worked out from its rows."""
        from workbench.evaluate.cost import cost_facts

        of_money = cost_facts(self) if self.is_large else self.cost.facts()
        return {name: self.stored_facts.get(name) for name in FACT_NAMES} | of_money

    @property
    def is_large(self) -> bool:
        """What its calls cost is better not held all at once."""
        return (self.stored_facts.get("calls") or 0) > _COSTS_KEPT

    @cached_property
    def stored_facts(self) -> dict[str, Any]:
        """The figures that no cache rule and no price changes."""
        stored: dict[str, Any] = json.loads(self._meta["facts_json"])
        return stored

    @property
    def cost(self) -> RunCost:
        """What the run costs, call by call, under its configuration's cache rules and prices; worked out when asked for."""
        return _costs.of(self)

    def priced(self, **changes: Any) -> Run:
        """The same rows under other cache rules or prices, without a replay.

        Example: `run.priced(cache={"provider": "anthropic"}, prices={"model": "claude-sonnet-4-5"})`.

        Raises:
            ConfigError: an option that isn't of `cache` or `prices`, or that needs a replay.
        """
        for path, value in changes.items():
            table, _, name = path.partition(".")
            inner = value if not name and isinstance(value, Mapping) else {name: None}
            if table not in ("cache", "prices") or (table == "cache" and "scope" in inner):
                raise ConfigError.for_field(
                    path, value, "options of cache (but scope) and prices", hint="replay to change any other"
                )
        run = Run(self.path, conversations=self._conversations)
        run.config = self.config.replace(**changes)
        return run

    @cached_property
    def config(self) -> RunConfig:
        """The configuration it ran under."""
        return RunConfig.from_values(json.loads(self._meta["config_json"]), where=str(self.path))

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        """Rows of one trace table as dictionaries, in order."""
        if table not in TABLES:
            raise ReplayError(f"no table {table!r}", hint=nearest_name(table, TABLES) or ", ".join(TABLES))
        where = {} if conversation is None else {"conversation": conversation}
        columns, rows = duck.read_table(self.path, table, where=where)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def by_conversation(
        self, tables: Sequence[str]
    ) -> Iterator[tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]]:
        """Each conversation's row with its rows of some tables, one after the other: only one is in memory."""
        return duck.read_together(self.path, "conversations", tables, key="conversation")

    def call(self, conversation: str, call: int) -> Call:
        """One call, its exact request made again by the engine; a notebook shows it.

        Two of them can be compared: `runs["today"].call("c", 3).diff(runs["tuned"].call("c", 3))`.

        Raises:
            ReplayError: the conversation or the call doesn't exist, the recordings aren't at hand, or the engine
                makes something else of them now.
        """
        if self._conversations is None:
            raise ReplayError("the recordings of this run aren't loaded", hint="replay them again to look at requests")
        calls = {row["conversation"]: row["calls"] for row in self.rows("conversations")}
        if conversation not in calls:
            near = next(iter(get_close_matches(conversation, calls, n=1, cutoff=0.0)), "")
            hint = f"the nearest is {near!r}, which has {_call_range(calls[near])}" if near else "the run has none"
            raise ReplayError(f"no conversation {conversation!r} in run {self.run_id}", hint=hint)
        if not 0 <= call < calls[conversation]:
            raise ReplayError(
                f"no call {call} in conversation {conversation!r}", hint=f"it has {_call_range(calls[conversation])}"
            )
        found, seeds = self._recorded(conversation)
        stored = duck.read_tables(self.path, list(TABLES), where={"conversation": conversation}).items()
        return call_made_again(
            found,
            self.config,
            call,
            run_id=self.run_id,
            stored={name: [dict(zip(columns, row, strict=True)) for row in rows] for name, (columns, rows) in stored},
            cache_seed=seeds if self.config.cache.scope == "corpus" else (),
        )

    def _recorded(self, name: str) -> tuple[Conversation, tuple[tuple[str, ...], ...]]:
        """A conversation as recorded, and what a cache of the whole corpus had seen before it."""
        seeds: tuple[tuple[str, ...], ...] = ()
        for conversation in with_unique_ids(self._conversations or ()):
            if conversation.id == name:
                return conversation, seeds
            seeds = grown_seeds(seeds, conversation)
        raise ReplayError(
            f"conversation {name!r} of run {self.run_id} isn't in these recordings",
            hint="give the recordings that the run was made from",
        )

    def _repr_html_(self) -> str:
        from workbench.report.display import run_html

        return run_html(self)

    def __repr__(self) -> str:
        facts = self.facts
        return (
            f"Run({self.name}: {facts['calls']} calls, {facts['firings']} firings, {facts['prompt_tokens']:,} tokens)"
        )


class RunSet(Mapping[str, Run]):
    """Runs by configuration name, in the order asked for."""

    def __init__(self, runs: Sequence[Run], *, problems: Sequence[Any] = ()) -> None:
        self._runs = {run.name: run for run in runs}
        self.problems = tuple(problems)
        """What the recordings had that couldn't be read."""

    def __getitem__(self, name: str) -> Run:
        try:
            return self._runs[name]
        except KeyError:
            raise ReplayError(f"no run {name!r}", hint=nearest_name(name, self._runs)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def facts(self) -> list[dict[str, Any]]:
        """The figures of every run, one dictionary each."""
        return [run.facts for run in self._runs.values()]

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a query over these runs; each table has a `run` column in front."""
        return duck.query_files({run.name: run.path for run in self._runs.values()}, list(TABLES), query, key="run")

    def __repr__(self) -> str:
        return "\n".join(repr(run) for run in self._runs.values())

    def _repr_html_(self) -> str:
        from workbench.report.display import runs_html

        return runs_html(self)


def _call_range(n_calls: int) -> str:
    return f"calls 0 to {n_calls - 1}" if n_calls else "no calls"


def with_unique_ids(conversations: Iterable[Conversation]) -> Iterator[Conversation]:
    """Conversations as a run names them: the second one with the id `c` is `c~2`."""
    seen: Counter[str] = Counter()
    for conversation in conversations:
        seen[conversation.id] += 1
        n = seen[conversation.id]
        yield conversation if n == 1 else conversation.replace(id=f"{conversation.id}~{n}")


def finished_runs(folder: str | Path = RUNS_FOLDER) -> list[Path]:
    """Files of the finished runs in a folder, oldest first."""
    found = [path for path in Path(folder).glob("*.duckdb") if not path.name.endswith(".partial.duckdb")]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def load_runs(
    folder: str | Path = RUNS_FOLDER,
    names: Sequence[str] = (),
    *,
    conversations: Sequence[Conversation] | None = None,
) -> RunSet:
    """Finished runs of a folder; of several with one name the newest.

    Args:
        names: Run ids or configuration names; empty = all.
        conversations: The recordings that they were made from, for looking at exact requests.

    Raises:
        StoreError: the folder has no finished run.
        ReplayError: a name isn't there; the hint is the nearest one.
    """
    found = [Run(path, conversations=conversations) for path in finished_runs(folder)]
    runs = [run for run in found if run.is_current]
    others = {name for run in found if not run.is_current for name in (run.run_id, run.name)}
    if not runs:
        hint = "replay again: those there are another version's" if others else "run `workbench replay` first"
        raise StoreError(f"{folder}: no finished run", hint=hint)
    if names:
        known = {run.run_id: run for run in runs} | {run.name: run for run in runs}
        for name in names:
            if name not in known and name in others:
                raise ReplayError(f"run {name!r} was made by another version of the engine", hint="replay it again")
            if name not in known:
                raise ReplayError(f"no run {name!r} in {folder}", hint=_nearest_runs(name, runs))
        runs = [known[name] for name in dict.fromkeys(names)]
        for earlier, run in combinations({run.run_id: run for run in runs}.values(), 2):
            if earlier.name == run.name:
                raise ReplayError(
                    f"runs {earlier.run_id} and {run.run_id} are both of configuration {run.name!r}",
                    hint="look at them one at a time, or give the configurations names of their own",
                )
    return RunSet(runs)


def _nearest_runs(name: str, runs: Sequence[Run]) -> str:
    """Which runs may have been meant; of a folder of many the nearest by name, with what stands for them."""
    if close := nearest_name(name, [key for run in runs for key in (run.name, run.run_id)]):
        return close
    ids = {run.name: run.run_id for run in runs}
    near = get_close_matches(name, ids, n=_MAX_NEAR, cutoff=0.0)
    return f"the nearest of {len(ids)}: {', '.join(f'{one!r} ({ids[one]})' for one in near)}"


def query_runs(sql: str, folder: str | Path = RUNS_FOLDER) -> tuple[list[str], list[tuple[Any, ...]]]:
    """SQL over the finished runs of a folder that this version made: every trace table with a `run_file` column in front, and `run`."""
    files = {path.stem: path for path in finished_runs(folder) if Run(path).is_current}
    return duck.query_files(files, [*TABLES, "run"], sql, key="run_file")
