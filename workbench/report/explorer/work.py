"""What the explorer computes, and the thread that computes it without holding up the notebook.

In: a conversation and configurations. Out: `Replayed`, the rows of one conversation under one configuration, with its
figures; `ThresholdSums`; two prompts side by side. Everything comes from exact replay or from sums that equal it, and
is kept, so that going back to an earlier position costs nothing. One thread works; a new wish replaces the one it is
working at, which stops at its next call (WB-RPL-10).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from workbench.config import RunConfig
from workbench.errors import ReplayError, WorkbenchError
from workbench.evaluate.cost import RunCost, cost_of
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.replay.needed import NeededFacts, RecordedTexts, needed_facts, term_counts
from workbench.replay.needed_states import VISIBLE
from workbench.replay.planner import ThresholdSums, sums_key
from workbench.replay.prompt import Call, call_made_again
from workbench.replay.trace import TABLES
from workbench.report.fonts import glyphs_for
from workbench.report.prompt import message_text

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, how much there is."""
_KEPT = 48
"""Replays, sums and prompts that are kept."""
_TELL_EVERY_S = 0.1


class StoppedError(BaseException):
    """The work isn't wanted any more. No `Exception`: nothing on its way may take it for a failure."""


class Replayed:
    """One conversation under one configuration, replayed exactly; reads like a run of one conversation."""

    def __init__(
        self, conversation: Conversation, config: RunConfig, rows: dict[str, list[tuple[object, ...]]]
    ) -> None:
        self.conversation = conversation.id
        self.config = config
        self.name = config.label()
        self.facts: dict[str, Any] = {"profile": config.profile}
        self.tables: dict[str, list[dict[str, Any]]] = {
            name: [dict(zip(TABLES[name].column_names, row, strict=True)) for row in made]
            for name, made in rows.items()
        }

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        """Rows of a trace table."""
        return self.tables[table] if conversation in {None, self.conversation} else []

    @cached_property
    def cost(self) -> RunCost:
        """Tokens and money by the rules of the provider's cache."""
        return cost_of(self)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The key numbers; None = not known."""
        calls, summaries, facts = self.tables["calls"], self.tables["summaries"], self.tables["needed_facts"]
        prompts = [row["prompt_tokens"] for row in calls]
        prefixes = [row["prefix_tokens"] for row in calls if row["prefix_tokens"] is not None]
        windows = [row["window"] for row in calls if row["window"] is not None]
        fired = [row["call"] for row in self.tables["checks"] if row["fired"]]
        made = [row for row in summaries if row["status"] == "written"]
        return {
            "calls": len(calls),
            "firings": len(fired),
            "fired_calls": tuple(fired),
            "summaries": len(made),
            "prompt_tokens": sum(prompts),
            "peak_prompt_tokens": max(prompts, default=None),
            "window": windows[0] if windows else None,
            "overflow_calls": sum(bool(row["overflow"]) for row in calls) if windows else None,
            "prefix_share": sum(prefixes) / sum(prompts) if prefixes and sum(prompts) else None,
            "summary_tokens": sum((row["request_tokens"] or 0) + (row["completion_tokens"] or 0) for row in summaries),
            "summary_size": sum(row["completion_tokens"] for row in made) / len(made) if made else None,
            "needed_facts": len(facts),
            "lost_facts": sum(row["state"] not in VISIBLE for row in facts),
            "compacted_results": len({(row["event_id"], row["tool_call_id"]) for row in self.tables["compactions"]}),
            "estimate_share": _share(
                sum(row["estimated_tokens"] for row in calls),
                sum(p - row["schema_tokens"] for p, row in zip(prompts, calls, strict=True)),
            ),
            "cost": self.cost.cost,
            "currency": self.cost.currency,
        }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class Wish:
    """What the controls ask for."""

    conversation: int
    """Place among the conversations."""
    config: RunConfig
    against: RunConfig
    call: int


class Computed:
    """All that was computed so far, by what it was computed from. Only the thread adds to it."""

    def __init__(self, conversations: Iterable[Conversation]) -> None:
        self.conversations = tuple(conversations)
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._terms: Any = None

    def replayed(self, place: int, config: RunConfig) -> Replayed | None:
        """The replay under a configuration, None if it isn't there yet."""
        found: Replayed | None = self._kept.get(("replay", place, config.config_hash))
        return found if found is None or found.name == config.label() else _renamed(found, config)

    def sums(self, place: int, config: RunConfig) -> ThresholdSums | None:
        """The sums that might answer for a configuration, None if they aren't there yet."""
        key = ("sums", place, sums_key(config))
        found: ThresholdSums | None = self._kept.get(key)
        with suppress(KeyError):  # they are asked for at every move, so they stay
            self._kept.move_to_end(key)
        return found

    def prompt(self, place: int, config: RunConfig, call: int) -> Call | None:
        """One prompt, None if it wasn't made yet."""
        found: Call | None = self._kept.get(("prompt", place, config.config_hash, config.label(), call))
        return found

    def glyphs(self, place: int) -> bytes | None:
        """A font with the wide characters of a conversation, None if it isn't there yet or nobody needs one."""
        found: bytes | None = self._kept.get(("glyphs", place))
        return found

    # --- for the thread ----------------------------------------------------------------------------------

    def make_sums(self, place: int, config: RunConfig, tell: Progress) -> None:
        conversation = self.conversations[place]
        n_calls = len(conversation.calls)

        def on_sent(facts: Any, sent: Any) -> None:
            tell("looking where the trigger is checked", facts.call + 1, n_calls)

        self._keep(("sums", place, sums_key(config)), lambda: ThresholdSums(conversation, config, on_sent=on_sent))

    def make_replay(self, place: int, config: RunConfig, tell: Progress) -> None:
        conversation = self.conversations[place]
        n_calls = len(conversation.calls)
        what = f"replaying “{config.label()}”"

        def on_sent(facts: Any, sent: Any) -> None:
            tell(what, facts.call + 1, n_calls)

        def replay() -> Replayed:
            tell(what, 0, n_calls)
            needed: NeededFacts = self._keep(("needed", place), lambda: self._needed(conversation))
            trace = replay_conversation(conversation, config, position=place, needed=needed, on_sent=on_sent)
            replayed = Replayed(conversation, config, trace.rows)
            _ = replayed.numbers  # money takes its time too
            return replayed

        self._keep(("replay", place, config.config_hash), replay)

    def make_prompt(self, place: int, config: RunConfig, call: int, tell: Progress) -> None:
        tell(f"making call {call} again", 0, 0)
        replayed = self.replayed(place, config)
        if replayed is None or call >= len(replayed.tables["calls"]):
            return
        conversation = self.conversations[place]
        self._keep(
            ("prompt", place, config.config_hash, config.label(), call),
            lambda: call_made_again(conversation, config, call, run_id=config.label(), stored=replayed.tables),
        )

    def make_glyphs(self, place: int, tell: Progress) -> None:
        if ("glyphs", place) in self._kept:
            return
        tell("cutting a font for the characters of the conversation", 0, 0)
        conversation = self.conversations[place]
        said = "".join(message_text(message) for message in conversation.messages)
        characters = frozenset(conversation.id + conversation.instruction + said)
        self._keep(("glyphs", place), lambda: _glyphs_for(characters))

    def _needed(self, conversation: Conversation) -> NeededFacts:
        if self._terms is None:
            self._terms = term_counts(self.conversations)
        return needed_facts(RecordedTexts(conversation), self._terms)

    def _keep(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        found: T = self._kept[key]
        with suppress(KeyError):
            self._kept.move_to_end(key)
        return found


@lru_cache(maxsize=16)
def _glyphs_for(characters: frozenset[str]) -> bytes | None:
    return glyphs_for("".join(sorted(characters)))


def _renamed(found: Replayed, config: RunConfig) -> Replayed:
    """The same rows under another name, which isn't part of what they were made from."""
    copy = object.__new__(Replayed)
    copy.__dict__.update(found.__dict__)
    copy.config, copy.name = config, config.label()
    return copy


@dataclass(frozen=True, slots=True)
class News:
    """What the thread tells."""

    kind: str
    """progress, done (a part of the wish is there), finished (all of it is), stopped, failed."""
    text: str = ""
    done: int = 0
    total: int = 0


class Worker:
    """Does what is wished in one thread and tells of it; without a running event loop it does so at once.

    Args:
        computed: Where results go.
        hear: Is told the news, in the notebook's own thread.
    """

    def __init__(self, computed: Computed, hear: Callable[[News], None]) -> None:
        self._computed = computed
        self._hear = hear
        self._news: queue.SimpleQueue[tuple[int, News]] = queue.SimpleQueue()
        self._number = 0
        """Of the newest wish; older ones stop."""
        self._thread: threading.Thread | None = None
        self._told_s = 0.0
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    @property
    def is_busy(self) -> bool:
        """The thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def wish(self, wish: Wish) -> None:
        """Compute all of this; what was wished before is dropped."""
        self._number += 1
        number, before = self._number, self._thread
        if self._loop is None:
            self._work(number, wish, None)
            self._drain()
            return
        self._thread = threading.Thread(target=self._work, args=(number, wish, before), name="explorer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop at the next call; what is there stays."""
        self._number += 1
        self._hear(News("stopped"))

    def wait(self) -> None:
        """Return when everything that was wished is there and told."""
        while self.is_busy:
            assert self._thread is not None
            self._thread.join()
        self._drain()

    def _drain(self) -> None:
        with suppress(queue.Empty):
            while True:
                number, news = self._news.get_nowait()
                if number == self._number:
                    self._hear(news)

    def _tell(self, number: int, news: News) -> None:
        self._news.put((number, news))
        if self._loop is not None:
            with suppress(RuntimeError):  # the notebook has gone
                self._loop.call_soon_threadsafe(self._drain)

    def _work(self, number: int, wish: Wish, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # one at a time: it has been told to stop

        def tell(text: str, done: int, total: int) -> None:
            if number != self._number:
                raise StoppedError
            now_s = time.monotonic()
            if now_s - self._told_s >= _TELL_EVERY_S:
                self._told_s = now_s
                self._tell(number, News("progress", text, done, total))

        try:
            for step in self._steps(wish):
                step(tell)
                self._tell(number, News("done"))
            self._tell(number, News("finished"))
        except StoppedError:
            return
        except (WorkbenchError, OSError) as error:
            hint = f"; {error.hint}" if isinstance(error, WorkbenchError) and error.hint else ""
            self._tell(number, News("failed", f"{error}{hint}"))
        except Exception as error:
            # A thread has nobody to raise to: whoever sits at the controls has to see it.
            self._tell(number, News("failed", f"{type(error).__name__}: {error}"))

    def _steps(self, wish: Wish) -> Iterable[Callable[[Progress], None]]:
        made, place = self._computed, wish.conversation
        if wish.config.summarizer is not None and made.sums(place, wish.config) is None:
            yield lambda tell: made.make_sums(place, wish.config, tell)
        for config in (wish.against, wish.config):
            yield lambda tell, config=config: made.make_replay(place, config, tell)  # type: ignore[misc]
        yield lambda tell: made.make_glyphs(place, tell)
        for config in (wish.against, wish.config):
            yield lambda tell, config=config: made.make_prompt(place, config, wish.call, tell)  # type: ignore[misc]


def firing_calls(sums: ThresholdSums | None, config: RunConfig) -> tuple[int, ...] | None:
    """Where a configuration fires, from sums; None where only a replay can say."""
    if sums is None or sums.why_not(config):
        return None
    try:
        return sums.firings(config).calls
    except ReplayError:
        return None
