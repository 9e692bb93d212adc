"""`check`: a suite file in, verdicts out (WB-REG-01 to -06).

In: the path of a suite. Out: a `CheckResult` that a notebook shows, the command line prints and CI reads. Nothing is
asked of a model and nothing is written, unless `record` or `accept` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.model.client import Model
from workbench.regression.baseline import (
    BASELINE_SUFFIX,
    NOT_A_BASELINE,
    Baseline,
    accept_hint,
    baseline_of,
    changed_options,
    check_comparable,
    differences,
    load_baseline,
    write_baseline,
)
from workbench.regression.drift import drift_of
from workbench.regression.expectations import STOPPED_EARLY, findings_of
from workbench.regression.figures import Figures, figures_of
from workbench.regression.finding import FAIL, PASS, UNDECIDED, Finding
from workbench.regression.judging import judged
from workbench.regression.replaying import Replayed, replay_suite
from workbench.regression.suite import Suite, load_suite

_ORDER = (FAIL, UNDECIDED, PASS)


@dataclass(frozen=True)
class CheckResult:
    """What became of a suite's expectations."""

    suite: Suite
    findings: tuple[Finding, ...]
    """In the order of the suite."""
    changes: tuple[dict[str, Any], ...] = ()
    """What accepting these figures would change, or has changed: conversation, figure, accepted, now."""
    notes: tuple[str, ...] = ()
    """What else a reader should know, such as options that differ from the accepted ones."""
    problems: tuple[Any, ...] = ()
    """What the recordings had that couldn't be read."""
    figures: tuple[Figures, ...] = ()
    """Per conversation; empty when the cassette lacks answers."""
    accepted: Path | None = None
    """The baseline that was written."""

    @property
    def counts(self) -> dict[str, int]:
        """Findings by verdict."""
        found = Counter(one.verdict for one in self.findings)
        return {verdict: found[verdict] for verdict in (PASS, FAIL, UNDECIDED)}

    @property
    def passed(self) -> bool:
        """Nothing failed, and something could be told. Undecided is neither."""
        return not self.counts[FAIL] and self.counts[PASS] > 0

    @property
    def failures(self) -> tuple[Finding, ...]:
        """What failed."""
        return tuple(one for one in self.findings if one.verdict == FAIL)

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary per expectation and scope, failures first, then undecided ones; numbers are rounded."""
        return [one.as_dict() for verdict in _ORDER for one in self.findings if one.verdict == verdict]

    def as_dict(self) -> dict[str, Any]:
        """The object of `workbench check --json` (WB-CLI-03)."""
        counts = self.counts
        return {
            "suite": self.suite.name,
            "passed": counts[PASS],
            "failed": counts[FAIL],
            "undecided": counts[UNDECIDED],
            "results": self.rows(),
            "changes": list(self.changes),
            "notes": list(self.notes),
            "problems": [problem.as_dict() for problem in self.problems],
        }

    def junit(self) -> str:
        """The same as JUnit XML, which CI servers read (WB-REG-02)."""
        from workbench.regression.junit import junit_xml

        return junit_xml(self.suite.name, self.findings)

    def __repr__(self) -> str:
        counts = self.counts
        verdict = "passed" if self.passed else "failed" if counts[FAIL] else "undecided"
        return (
            f"CheckResult({self.suite.name}: {verdict}; {counts[PASS]} passed, {counts[FAIL]} failed, "
            f"{counts[UNDECIDED]} undecided)"
        )

    def _repr_html_(self) -> str:
        from workbench.regression.words import check_html

        return check_html(self)


def check(
    path: str | Path,
    *,
    accept: bool = False,
    record: bool = False,
    jobs: int = 1,
    model: Model | None = None,
    judge: Model | None = None,
    before_accepting: Callable[[CheckResult], None] | None = None,
) -> CheckResult:
    """Check the summaries of a suite against its expectations and its accepted baseline.

    Args:
        path: A suite file; everything that it names lies in its folder.
        accept: Make these figures the accepted baseline; `changes` of the result says what that changed.
        record: Ask the configuration's summary source, and the suite's judges, for what their cassettes lack.
        jobs: Processes; the result is the same.
        model: Asked in place of the configuration's summary source for what isn't recorded.
        judge: Asked in place of the suite's judges for what isn't recorded.
        before_accepting: Called with the result before the baseline is written, to show its `changes`.
    Raises:
        ConfigError: the suite or its baseline has a fault, or is for another version or counter.
        UnsafePathError: it names something outside its folder.
        RecordingError, CassetteFormatError: a file isn't there or can't be read.
        ModelError: a model that was to be asked fails.
    Source: WB-REG-01 to -06.
    """
    suite = load_suite(path)
    replayed = replay_suite(suite, jobs=jobs, record=record, model=model)
    if replayed.misses:
        return _unplayable(suite, replayed, accepting=accept)
    figures = figures_of(replayed)
    now = baseline_of(replayed, figures)
    accepted = _accepted(suite, now, accepting=accept)
    findings = [
        *findings_of(suite, replayed, figures),
        *drift_of(suite, figures, now if accept else accepted),
        *judged(suite, replayed, judge=judge, record=record),
    ]
    result = CheckResult(
        suite,
        tuple(findings),
        changes=tuple(differences(accepted, now)),
        notes=() if accept else tuple(_notes(suite, findings, accepted, now)),
        problems=replayed.problems,
        figures=tuple(figures),
    )
    if not accept:
        return result
    if any(one.expectation == STOPPED_EARLY and one.verdict == FAIL for one in findings):
        return replace(result, notes=("nothing was accepted: a replay stopped before its last call",))
    if before_accepting is not None:
        before_accepting(result)
    write_baseline(now, suite.baseline)
    return replace(result, accepted=suite.baseline)


def _unplayable(suite: Suite, replayed: Replayed, *, accepting: bool) -> CheckResult:
    """The cassette lacks answers: that is all there is to say."""
    notes = (f"nothing was accepted: {suite.record_command} comes first",) if accepting else ()
    return CheckResult(suite, tuple(findings_of(suite, replayed, ())), notes=notes, problems=replayed.problems)


def _accepted(suite: Suite, now: Baseline, *, accepting: bool) -> Baseline | None:
    """The baseline to compare with; whoever accepts anew needs none that fits."""
    try:
        accepted = load_baseline(suite)
    except ConfigError as error:
        # A file that never was a baseline, nor is called one, is somebody's work: it isn't written over.
        if accepting and (error.field != NOT_A_BASELINE or suite.baseline.name.endswith(BASELINE_SUFFIX)):
            return None
        raise
    if accepted is not None and not accepting:
        check_comparable(accepted, now, suite)
    return accepted


def _notes(suite: Suite, findings: Sequence[Finding], accepted: Baseline | None, now: Baseline) -> list[str]:
    """What was changed since the baseline was accepted, where something failed."""
    if accepted is None or all(one.verdict != FAIL for one in findings):
        return []
    changed = [f"{path} {_shown(before)} → {_shown(after)}" for path, before, after in changed_options(accepted, now)]
    if not changed:
        return []
    return [f"options that differ from the accepted ones: {'; '.join(changed)}", f"meant? {accept_hint(suite)}"]


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
