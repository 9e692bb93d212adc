"""The list of goals with their numbers, and the one table of what was asked and what was found.

In: which numbers, a seed. Out: a finding per row. The goals and the nightly numbers are those of reliability.md
sections 5 and 7; a row holds when it made as many trials as asked and none of its faults occurred.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from workbench.errors import ConfigError, nearest_name
from workbench.selftest import crashes, damage, engine, model_faults, operations, versions, writers
from workbench.selftest.tally import Tally
from workbench.version import __version__

COLUMNS = ("goal", "asked", "found", "seed", "seconds", "")


class Trial(Protocol):
    """A driver: makes `n` trials with files in `folder`."""

    def __call__(self, folder: Path, *, n: int, seed: int) -> Tally: ...


class Goal(NamedTuple):
    """One row of the table."""

    id: str
    trial: Trial
    quick: int
    nightly: int


def _n_modules() -> int:
    return len(list(Path(__file__).resolve().parents[1].rglob("*.py")))


GOALS = (
    Goal("REL-01", operations.compare_with_memory, 2_000, 100_000),
    Goal("REL-02", crashes.kills, 10, 500),
    Goal("REL-03", writers.concurrent_writers, 1, 10),
    Goal("REL-04", crashes.second_openers, 10, 100),
    Goal("REL-04", crashes.forks, 10, 100),
    Goal("REL-05", damage.flips, 30, 450),
    Goal("REL-05", damage.log_cuts, 6, 60),
    Goal("REL-05", damage.file_cuts, 4, 20),
    Goal("REL-05", damage.exchanges, 8, 40),
    Goal("REL-05", damage.journal_cuts, 6, 60),
    Goal("REL-05", damage.bad_rows, len(damage.BAD_ROWS), len(damage.BAD_ROWS)),
    Goal("REL-06", crashes.full_disks, 5, 20),
    Goal("REL-06", writers.failing_writes, 31, 31),
    Goal("REL-07", crashes.exports, 8, 40),
    Goal("REL-08", model_faults.full_queue, 100, 100),
    Goal("REL-08", model_faults.queue_rounds, 100, 1_000),
    Goal("REL-09", model_faults.model_faults, 33, len(model_faults.fault_trials())),
    Goal("REL-09", model_faults.oddities, 10, len(model_faults.oddity_trials())),
    Goal("REL-10", writers.cancellations, 9, 9),
    Goal("REL-14", versions.kept_stores, versions.N_VERSIONS, versions.N_VERSIONS),
    Goal("REL-14", crashes.migration_kills, 5, 100),
    Goal("REL-14", versions.newer_stores, 2, 2),
    Goal("SEC-01", engine.hostile_ids, 660, 660),
    Goal("SEC-01, SEC-04", engine.source_findings, _n_modules(), _n_modules()),
    Goal("SEC-02", engine.closed_engine, len(engine.CANARIES), len(engine.CANARIES)),
    Goal("SEC-03", damage.foreign_files, 8, 8),
    Goal("SEC-04", engine.malicious_files, len(engine.DANGEROUS_NAMES), len(engine.DANGEROUS_NAMES)),
)


class Finding(NamedTuple):
    """What came of one goal."""

    goal: str
    asked: str
    found: str
    seed: int
    seconds: float
    holds: bool
    examples: tuple[str, ...]
    """The first faults."""

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        verdict = "kept" if self.holds else "BROKEN"
        return self.goal, self.asked, self.found, str(self.seed), f"{self.seconds:.0f}", verdict


def run(
    names: Sequence[str] = (),
    *,
    nightly: bool = False,
    share: float = 1.0,
    seed: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Finding]:
    """Try all goals, or those that are named.

    Args:
        share: Of the nightly numbers, where time is short; never below the quick ones, and the table says so.
        tell: Gets a line per row as it is done.
    Raises:
        ConfigError: there is no such goal, or no such share.
    """
    if not 0 < share <= 1:
        raise ConfigError.for_field("share", share, "above 0 up to 1")
    known = {part for goal in GOALS for part in goal.id.split(", ")}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no goal {name!r}", hint=nearest_name(name, known) or "see the table of all")
    return [
        finding
        for goal in GOALS
        if not names or set(names) & set(goal.id.split(", "))
        for finding in _told(
            _finding(goal, _number(goal, share) if nightly else goal.quick, seed, nightly=nightly), tell
        )
    ]


def _number(goal: Goal, share: float) -> int:
    return max(round(goal.nightly * share), goal.quick)


def _told(finding: Finding, tell: Callable[[str], None]) -> Iterator[Finding]:
    tell(f"{finding.goal}: {finding.found}, {finding.seconds:.0f} s" + ("" if finding.holds else "  BROKEN"))
    yield finding


def _finding(goal: Goal, n: int, seed: int, *, nightly: bool) -> Finding:
    begin = time.perf_counter()
    with TemporaryDirectory(prefix="workbench-selftest-") as folder:
        try:
            tally = goal.trial(Path(folder), n=n, seed=seed)
        except Exception as error:  # a driver that fails hasn't shown anything
            text = f"ended by {type(error).__name__}: {error}"
            return Finding(goal.id, f"{n:,} trials", text, seed, time.perf_counter() - begin, False, (text,))
    return Finding(
        goal.id,
        tally.wanted_text(n, goal.nightly if nightly else 0),
        tally.found_text(),
        seed,
        time.perf_counter() - begin,
        tally.n >= n and not tally.n_faults,
        tuple(tally.examples),
    )


# --- the table ----------------------------------------------------------------------------------------


def facts(findings: Sequence[Finding]) -> dict[str, Any]:
    """The table as a JSON object."""
    return {"holds": all(finding.holds for finding in findings), "goals": [finding._asdict() for finding in findings]}


def markdown(findings: Sequence[Finding], command: str) -> str:
    """The table as a page."""
    n_broken = sum(not finding.holds for finding in findings)
    seconds = sum(finding.seconds for finding in findings)
    lines = [
        "# Promises tried",
        "",
        (
            f"Made by `{command}`, release {__version__}, Python {platform.python_version()} on {platform.system()}, in "
            f"{seconds / 60:.0f} minutes: {len(findings) - n_broken} of {len(findings)} rows kept."
        ),
        "",
        "Asked is what must be: so many trials, and none of these faults. In brackets: what else was seen.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in finding.cells()) + " |" for finding in findings]
    for finding in findings:
        lines += ["", *(f"- {finding.goal}: `{example}`" for example in finding.examples)] if finding.examples else []
    return "\n".join(lines) + "\n"
