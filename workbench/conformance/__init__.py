"""Runs recorded cases of the reference through the engine (WB-CLI-01).

In: vector files in the form that their README describes, at any path. Out: one verdict per case and
profile, with the first difference. Which code runs a case is decided by its id: `checkers-012` belongs to
area `checkers`. One module per group of areas registers a function `(case input, profile) -> produced`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.conformance.shapes import expand_tokens, first_difference, mask_sentences
from workbench.conformance.stores import stores_of
from workbench.errors import RecordingError
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_08, Profile

Json = Any

_MODULES = {
    "summary_cases": (
        "token_counter",
        "checkers",
        "context_window_lookup",
        "conversation_text",
        "prompt_render",
        "fork_request",
        "oversized_source",
        "hooks",
        "metadata",
        "report",
    ),
    "context_cases": ("injection", "compaction", "tailoring"),
    "recall_cases": ("on_demand",),
    "service_cases": ("service_policy", "service_summary", "report_service"),
    "runner_cases": ("runner_flow", "runner_enqueue"),
    "defaults_cases": ("defaults",),
}
_MODULE_OF = {area: module for module, areas in _MODULES.items() for area in areas}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The verdict on one case under one profile."""

    file: str
    id: str
    profile: str
    verdict: str
    """`passed` or `failed`."""
    difference: str = ""


class Run:
    """What one area's runner answers for one case: the produced JSON, already in vector form.

    `normalise` may bring expected and produced values into one order (for parallel work); `expect` may turn
    what a case says into what holds for a profile; `fit` may leave out of the produced value what the recorder
    left out of the expected one.
    """

    def __init__(
        self,
        produce: Callable[[Json, Profile], Json],
        normalise: Callable[[Json], Json] = lambda value: value,
        expect: Callable[[Json, Json, Profile], Json] = lambda expected, case, profile: expected,
        fit: Callable[[Json, Json], Json] = lambda expected, produced: produced,
    ) -> None:
        self.produce = produce
        self.normalise = normalise
        self.expect = expect
        self.fit = fit


def area_of(case_id: str) -> str:
    """`checkers` of `checkers-012`."""
    return case_id.rsplit("-", 1)[0]


def _runner(area: str) -> Run | None:
    module_name = _MODULE_OF.get(area)
    if module_name is None:
        return None
    module = import_module(f"workbench.conformance.{module_name}")
    runs: dict[str, Run] = module.RUNS
    return runs.get(area)


def is_left_out(case: Json, profile: Profile) -> bool:
    """`SEED` leaves out cases whose observed behaviour the seed contradicts or that look like a defect,
    unless the newest revision mends the defect (vectors' README)."""
    if profile != SEED:
        return False
    return "seed_conflict" in case or ("suspect" in case and "expected_newest" not in case)


def expected_of(case: Json, profile: Profile) -> Json:
    """What the case says for this profile."""
    newest = "expected_newest" in case
    if profile == TRPC_AGENT_GO_2026_08 and newest:
        return case["expected_newest"]
    if profile == SEED and newest and "suspect" in case:
        return case["expected_newest"]
    return case["expected"]


def run_case(case: Json, profile: Profile, *, file: str = "") -> CaseResult:
    """Run one case; whatever goes wrong is a failure with its reason."""
    case_id = str(case.get("id", "?"))
    run = _runner(area_of(case_id))
    if run is None:
        return CaseResult(file, case_id, profile.name, "failed", f"no runner for area {area_of(case_id)!r}")
    try:
        produced = mask_sentences(run.produce(expand_tokens(case["input"]), profile))
        expected = run.expect(expected_of(case, profile), case, profile)
        produced = run.fit(expected, produced)
        difference = first_difference(run.normalise(expected), run.normalise(produced))
    except Exception as error:  # a case that can't run is a failure, not a skip
        difference = f"{type(error).__name__}: {error}"
    return CaseResult(file, case_id, profile.name, "failed" if difference else "passed", difference)


def load_cases(path: str | Path) -> list[Json]:
    """The cases of one vector file.

    Raises:
        RecordingError: unreadable, not JSON, or not a list of cases.
    """
    try:
        cases = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordingError(f"can't be read: {error.strerror}", path=path) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RecordingError(f"not JSON: {error}", path=path) from error
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise RecordingError("expected a list of cases", path=path, hint="give a vector file")
    return cases


def run_file(path: str | Path, profiles: Sequence[Profile], *, store: str = "memory") -> Iterator[CaseResult]:
    """All cases of a file, each under each profile.

    Args:
        store: What keeps the sessions of cases with a session service: `memory` or `duckdb`.
    """
    cases = load_cases(path)
    name = Path(path).name
    if cases and "name" in cases[0] and "value" in cases[0]:  # the table of defaults
        defaults = import_module("workbench.conformance.defaults_cases")
        for entry in cases:
            difference = defaults.difference_of(entry)
            verdict = "failed" if difference else "passed"
            yield CaseResult(name, str(entry["name"]), "all", verdict, difference)
        return
    with stores_of(store):
        results = [
            run_case(case, profile, file=name)
            for profile in profiles
            for case in cases
            if not is_left_out(case, profile)
        ]
    yield from results
