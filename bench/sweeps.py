"""What a sweep costs beside one replay, and how long and large a report of many conversations is (PERF-04).

In: nothing. Out: lines for `run.py`. Time and memory are those of processes of their own, so that neither a cache
of texts nor a peak of memory is shared between what is compared; time is that of the processor.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.config import RunConfig
from workbench.evaluate.compare import compare
from workbench.evaluate.sweep import sweep
from workbench.recordings import load_recordings
from workbench.recordings.generate import generate_conversation
from workbench.replay.replay import replay
from workbench.report.page import page

N_CONVERSATIONS, N_EVENTS = 500, 200
N_REPORTED, N_EVENTS_REPORTED = 1_000, 20
_SOURCES: dict[str, dict[str, Any]] = {
    "sized": {"source": "sized", "sized_tokens": 200},
    "extractive": {"source": "extractive"},
}
_CL100K = {"encoding": "cl100k_base"}
_THRESHOLDS = (1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000)
Say = Callable[[str, str, str], None]


def _base(source: str) -> RunConfig:
    values = {
        "name": "base",
        "billing": _CL100K,
        "summarizer": {},
        "trigger": {"token": 5_000},
        "agent": {"add_session_summary": True},
        "summaries": _SOURCES[source],
    }
    return RunConfig.from_values(values)


def _child(kind: str, source: str, recordings: str, runs: str) -> None:
    """One side of the comparison, with its measurements on the last line."""
    base, conversations = _base(source), load_recordings(recordings)
    started = time.process_time()
    if kind == "one":
        n_runs = len(replay(conversations, base, runs=runs, progress=False))
    else:
        # Fourteen of the grid, the base and the baseline.
        grid = {"trigger.token": list(_THRESHOLDS), "agent.summary_injection_mode": ["system", "user"]}
        n_runs = len(sweep(conversations, base, grid, runs=runs, progress=False).candidates)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.process_time() - started, "peak_mb": peak_mb, "runs": n_runs}))


def _measured(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _write(path: Path, n_conversations: int, n_events: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for seed in range(n_conversations):
            file.write(json.dumps(generate_conversation(n_events=n_events, seed=seed), ensure_ascii=False) + "\n")


def run(say: Say, sources: tuple[str, ...] = ("sized",)) -> None:
    """The sweep against one replay of the same recordings."""
    with tempfile.TemporaryDirectory() as folder:
        recordings = Path(folder) / "generated.jsonl"
        _write(recordings, N_CONVERSATIONS, N_EVENTS)
        for source in sources:
            one = _measured("one", source, str(recordings), f"{folder}/one-{source}")
            many = _measured("many", source, str(recordings), f"{folder}/many-{source}")
            name = f"sweep of {many['runs']} configurations / one, {N_CONVERSATIONS * N_EVENTS:,} events, {source}"
            say(name, f"{many['seconds'] / one['seconds']:.1f} x", f"< {many['runs']}")
            say(f"  peak memory, {source}", f"{many['peak_mb'] / one['peak_mb']:.2f} x", "<= 1.2")
            say(f"  one: seconds, MB, {source}", f"{one['seconds']:.1f}, {one['peak_mb']:.0f}", "")


def run_report(say: Say) -> None:
    """The report of a comparison of many conversations."""
    with tempfile.TemporaryDirectory() as folder:
        recordings = Path(folder) / "generated.jsonl"
        _write(recordings, N_REPORTED, N_EVENTS_REPORTED)
        base = _base("extractive").replace(name="tuned", trigger={"token": 400}, billing={"encoding": "runes:4"})
        plain = RunConfig(name="no summary", billing={"encoding": "runes:4"})
        runs = replay(load_recordings(recordings), [plain, base], runs=f"{folder}/runs", progress=False)
        started = time.process_time()
        written = page(runs, Path(folder) / "report.html", comparison=compare(runs))
        seconds, size_mb = time.process_time() - started, written.stat().st_size / 1e6
        say(f"comparison report of {N_REPORTED:,} conversations, seconds", f"{seconds:.1f}", "< 10")
        say("  its size, MB", f"{size_mb:.1f}", "< 10")


if __name__ == "__main__":
    _child(*sys.argv[1:5])
