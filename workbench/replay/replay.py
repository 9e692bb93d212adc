"""`replay`: recordings times configurations, into runs.

In: conversations and configurations. Out: a `RunSet`. Every conversation is read once and pushed through all
configurations; finished blocks are on disk, so an interrupted replay goes on where it stopped, and ends with
the same trace. Implements WB-RPL-01, -09, -10 and WB-TUNE-04's process pool.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workbench.build import billing_counter, engine_counter
from workbench.config import RunConfig
from workbench.errors import ConfigError, ReplayError, WorkbenchError
from workbench.recordings import Recordings, load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.conversation import ConversationTrace, grown_seeds, replay_conversation
from workbench.replay.needed import NeededFacts, RecordedTexts, needed_facts, term_counts
from workbench.replay.runs import RUNS_FOLDER, Run, RunKey, RunSet, RunWriter, with_unique_ids
from workbench.replay.sources import source_version, tidy_cassettes
from workbench.replay.workers import WorkerLostError, worker_pool
from workbench.version import __version__

BLOCK_EVENTS = 4000
"""Events that are replayed between two writes; a killed replay loses at most so many per process."""

_ROWS_OF_CONFIGS = 4
"""Configurations whose rows of a whole block fit into a worker's answer; of more, blocks are smaller."""


class Progress(Protocol):
    """Is told how far a replay is."""

    def start(self, total: int) -> None:
        """So many conversation-runs lie ahead."""
        ...

    def advance(self, steps: int) -> None:
        """So many more are done."""
        ...


@dataclass(frozen=True, slots=True)
class _Task:
    """A block of conversations with the configurations that still need each of them."""

    conversations: tuple[Conversation, ...]
    positions: tuple[int, ...]
    seeds: tuple[tuple[tuple[str, ...], ...], ...]
    wanted: tuple[tuple[bool, ...], ...]
    """Per conversation, per configuration."""
    needed: tuple[NeededFacts, ...]

    def only(self, place: int) -> _Task:
        """The task of one of its conversations."""
        part = slice(place, place + 1)
        return _Task(
            self.conversations[part], self.positions[part], self.seeds[part], self.wanted[part], self.needed[part]
        )


def replay(
    conversations: Recordings | Iterable[Conversation] | str | Path,
    configs: RunConfig | Sequence[RunConfig],
    *,
    runs: str | Path = RUNS_FOLDER,
    jobs: int = 1,
    fresh: bool = False,
    progress: Progress | bool | None = None,
) -> RunSet:
    """Replay recordings under one or more configurations.

    Args:
        conversations: What `load_recordings` gave, conversations, or a path to load.
        configs: Configurations with different names.
        runs: Folder of the run files; a run that is there already isn't replayed again.
        jobs: Processes. One is fastest below some 50,000 events.
        fresh: Replay even if the run is there.
        progress: True or None shows a bar (None: only where somebody watches), False is silent.
    Returns:
        The runs by configuration name, in the order of `configs`.
    Raises:
        ConfigError: two configurations share a name, or a value is impossible.
        RecordingError: nothing could be loaded.
        ReplayError: a cassette lacks an answer or can't be read, or a live model doesn't answer.
    Source: WB-API-01.
    """
    recordings = _recordings(conversations)
    config_list = [configs] if isinstance(configs, RunConfig) else list(configs)
    _check_names(config_list)
    if jobs < 1:
        raise ConfigError.for_field("jobs", jobs, "1 or more")
    for config in config_list:  # a missing vocabulary is said before any work is done
        billing_counter(config)
        engine_counter(config)
    folder = Path(runs)
    data_hash = recordings.data_hash
    writers = [
        RunWriter(folder, RunKey(config, data_hash, source_version(config), __version__)) for config in config_list
    ]
    open_writers = [writer for writer in writers if fresh or not writer.is_finished]
    with ExitStack() as stack:
        for writer in open_writers:
            stack.callback(writer.close)
            writer.begin(fresh=fresh)
        if open_writers:
            with _shown(progress) as bar:
                _run_all(recordings, open_writers, jobs, bar)
            tidy_cassettes([writer.key.config for writer in open_writers])
        for writer in open_writers:
            writer.finish()
    return RunSet([Run(writer.path, conversations=recordings) for writer in writers], problems=recordings.problems)


def _recordings(conversations: Recordings | Iterable[Conversation] | str | Path) -> Recordings:
    if isinstance(conversations, Recordings):
        return conversations
    if isinstance(conversations, str | Path):
        return load_recordings(conversations)
    return Recordings.of(list(conversations))


def _check_names(configs: Sequence[RunConfig]) -> None:
    if not configs:
        raise ConfigError("no configuration was given", field="configs", hint="give at least one RunConfig")
    names = [config.label() for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two configurations are named {name!r}", field="name", value=name, hint="give each its own name"
            )


def _run_all(recordings: Recordings, writers: Sequence[RunWriter], jobs: int, bar: Progress) -> None:
    bar.start(len(recordings) * len(writers))
    block = BLOCK_EVENTS
    if jobs > 1:  # a worker sends the rows of all configurations back at once
        block = max(BLOCK_EVENTS * _ROWS_OF_CONFIGS // len(writers), BLOCK_EVENTS // 8)
    tasks = _tasks(recordings, writers, bar, min(block, BLOCK_EVENTS))
    configs = tuple(writer.key.config for writer in writers)
    if jobs == 1:
        for task in tasks:
            _write(writers, _traces(task, configs), bar)
        return
    lost: list[Conversation] = []
    while left := _side_by_side(tasks, configs, writers, jobs, bar):
        for task in left:
            lost += _one_by_one(task, configs, writers, bar)
    if lost:
        named = ", ".join(f"{one.place}: conversation {one.id!r}" for one in lost)
        raise ReplayError(
            f"{named}: the worker process that replayed it was killed, or found no memory",
            hint="everything else is stored; the same command tries it again",
        )


def _side_by_side(
    tasks: Iterator[_Task], configs: Sequence[RunConfig], writers: Sequence[RunWriter], jobs: int, bar: Progress
) -> list[_Task]:
    """Work at tasks in several processes until all are stored, or one process dies: then what isn't stored yet."""
    waiting: deque[tuple[_Task, Future[list[list[ConversationTrace]]]]] = deque()
    given: _Task | None = None
    try:
        with worker_pool(jobs) as pool:
            for given in tasks:
                waiting.append((given, pool.submit(_replay_task, given, configs)))
                given = None
                if len(waiting) >= 2 * jobs:
                    _write(writers, waiting[0][1].result(), bar)
                    waiting.popleft()
            while waiting:
                _write(writers, waiting[0][1].result(), bar)
                waiting.popleft()
    except WorkerLostError:
        return [*(task for task, _ in waiting), *([given] if given is not None else [])]
    return []


def _one_by_one(
    task: _Task, configs: Sequence[RunConfig], writers: Sequence[RunWriter], bar: Progress
) -> list[Conversation]:
    """Work at the conversations of a task singly, so that only what kills its process is lost; that is returned."""
    lost: list[Conversation] = []
    place = 0
    while place < len(task.conversations):
        try:
            with worker_pool(1) as pool:
                while place < len(task.conversations):
                    _write(writers, pool.submit(_replay_task, task.only(place), configs).result(), bar)
                    place += 1
        except WorkerLostError:
            lost.append(task.conversations[place])
            place += 1
    return lost


def _write(writers: Sequence[RunWriter], traces: Iterable[Sequence[ConversationTrace]], bar: Progress) -> None:
    for writer, batch in zip(writers, traces, strict=True):
        writer.add(batch)
        if len(writers) > 1:  # a file that is held open keeps its newest rows in memory
            writer.close()
        bar.advance(len(batch))
        del batch  # before the next configuration's rows are made


_Place = tuple[Conversation, int, tuple[tuple[str, ...], ...], tuple[bool, ...], NeededFacts]
"""A conversation with its place in the run, cache seeds, who wants it and its needed facts."""


def _tasks(recordings: Recordings, writers: Sequence[RunWriter], bar: Progress, block_events: int) -> Iterator[_Task]:
    """Blocks of conversations that some configuration hasn't got yet."""
    block: list[_Place] = []
    counts = term_counts(recordings)
    before: RecordedTexts | None = None
    corpus_seeds: tuple[tuple[str, ...], ...] = ()
    n_events = 0
    for position, conversation in enumerate(with_unique_ids(recordings)):
        wanted = tuple(position not in writer.done for writer in writers)
        bar.advance(wanted.count(False))
        texts = RecordedTexts(conversation)
        if any(wanted):
            needed = needed_facts(texts, counts, other=before)
            block.append((conversation, position, corpus_seeds, wanted, needed))
            n_events += len(conversation.events)
        before = texts
        corpus_seeds = grown_seeds(corpus_seeds, conversation)
        if n_events >= block_events:
            yield _task_of(block)
            block, n_events = [], 0
    if block:
        yield _task_of(block)


def _task_of(block: Sequence[_Place]) -> _Task:
    conversations, positions, seeds, wanted, needed = zip(*block, strict=True)
    return _Task(conversations, positions, seeds, wanted, needed)


def _replay_task(task: _Task, configs: Sequence[RunConfig]) -> list[list[ConversationTrace]]:
    """Traces per configuration, in conversation order."""
    return list(_traces(task, configs))


def _traces(task: _Task, configs: Sequence[RunConfig]) -> Iterator[list[ConversationTrace]]:
    """The same one configuration after the other, so that the rows of one are in memory and not those of all."""
    for i, config in enumerate(configs):
        traces: list[ConversationTrace] = []
        for conversation, position, seeds, wanted, needed in zip(
            task.conversations, task.positions, task.seeds, task.wanted, task.needed, strict=True
        ):
            if not wanted[i]:
                continue
            cache_seed = seeds if config.cache.scope == "corpus" else ()
            try:
                trace = replay_conversation(
                    conversation, config, position=position, cache_seed=cache_seed, needed=needed
                )
            except WorkbenchError as error:
                where = f"{conversation.place}: conversation {conversation.id!r} under {config.label()!r}"
                stopped = ReplayError(f"{where}: {error}", hint=error.hint)
                stopped.exit_code = error.exit_code
                raise stopped from error
            traces.append(trace)
        yield traces
        del traces


# --- progress ----------------------------------------------------------------------------------------


class _Silent:
    def start(self, total: int) -> None:
        """Nobody watches."""

    def advance(self, steps: int) -> None:
        """Nobody watches."""


class _Bar:
    """A progress bar of the library `rich`, in a terminal or a notebook."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._task: Any = None

    def start(self, total: int) -> None:
        self._task = self._display.add_task("replay", total=total)

    def advance(self, steps: int) -> None:
        self._display.advance(self._task, steps)


@contextmanager
def _shown(progress: Progress | bool | None) -> Iterator[Progress]:
    if progress is None:
        progress = sys.stderr.isatty()
    if progress is False:
        yield _Silent()
    elif progress is True:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with RichProgress(*columns, console=Console(stderr=True), transient=True) as display:
            yield _Bar(display)
    else:
        yield progress
