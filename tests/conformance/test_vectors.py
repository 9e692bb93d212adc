"""The recorded cases of the reference, each under each profile (WB-CLI-01)."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from workbench.conformance import CaseResult, is_left_out, load_cases, run_case, run_file
from workbench.conformance.shapes import expand_tokens, first_difference, mask_sentences
from workbench.conformance.stores import new_store, stores_of
from workbench.errors import ConfigError, RecordingError
from workbench.profiles import PROFILES, SEED, TRPC_AGENT_GO_2026_07, Profile
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.memory import InMemoryStore
from workbench.wording import RUNES

AREAS = (
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
    "injection",
    "compaction",
    "tailoring",
    "on_demand",
    "service_policy",
    "service_summary",
    "report_service",
    "runner_flow",
    "runner_enqueue",
)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("area", AREAS)
def test_every_recorded_case_comes_out_as_the_profile_says(area: str, profile: object, shared_path: Path) -> None:
    logging.disable(logging.WARNING)
    try:
        results = list(run_file(shared_path / "vectors" / f"{area}.json", [profile]))  # type: ignore[list-item]
    finally:
        logging.disable(logging.NOTSET)
    assert results
    assert [f"{result.id}: {result.difference}" for result in results if result.verdict != "passed"] == []


@pytest.mark.parametrize(
    ("area", "profile"),
    [
        pytest.param(area, profile, marks=() if (area, profile) == ("report_service", SEED) else pytest.mark.slow)
        for area in ("service_summary", "report_service", "runner_flow", "runner_enqueue")
        for profile in PROFILES.values()
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_case_of_the_service_comes_out_over_a_durable_store_too(
    area: str, profile: Profile, shared_path: Path
) -> None:
    """SUM-STO-02: the engine is shared by all stores."""
    logging.disable(logging.WARNING)
    try:
        results = list(run_file(shared_path / "vectors" / f"{area}.json", [profile], store="duckdb"))
    finally:
        logging.disable(logging.NOTSET)
    assert results
    assert [f"{result.id}: {result.difference}" for result in results if result.verdict != "passed"] == []


def test_stores_of_cases_are_made_as_asked_and_go_with_the_block() -> None:
    with stores_of("duckdb"):
        one, other = new_store(event_limit=5), new_store(event_limit=5)
        assert isinstance(one, DuckDBStore)
        assert isinstance(other, DuckDBStore)
        assert one.path != other.path
        for store in (one, other):
            store.close_now()
    assert not one.path.parent.exists()
    assert isinstance(new_store(event_limit=5), InMemoryStore)
    with pytest.raises(ConfigError, match="store = 'duckbd'; allowed: memory, duckdb") as told, stores_of("duckbd"):
        pass
    assert told.value.hint == "did you mean duckdb?"


def test_every_default_of_the_reference_is_ours_too(shared_path: Path) -> None:
    results = list(run_file(shared_path / "vectors" / "defaults.json", [SEED]))
    assert len(results) > 60
    assert [result for result in results if result.verdict != "passed"] == []


def test_a_wrong_value_fails_and_says_where() -> None:
    case = {"id": "token_counter-x", "input": {"message": {"role": "user", "content": "a" * 40}}}
    good = run_case({**case, "expected": {"tokens": 10, "error": False}}, SEED)
    bad = run_case({**case, "expected": {"tokens": 11, "error": False}}, SEED)
    assert good.verdict == "passed"
    assert bad == CaseResult("", "token_counter-x", "SEED", "failed", "tokens: expected 11, got 10")


def test_a_case_that_cannot_run_is_a_failure_and_no_skip() -> None:
    assert run_case({"id": "token_counter-x", "input": {}, "expected": {}}, SEED).verdict == "failed"
    assert run_case({"id": "unheard_of-1", "input": {}, "expected": {}}, SEED).verdict == "failed"


def test_the_seed_leaves_out_what_it_contradicts_and_the_reference_profiles_leave_out_nothing() -> None:
    conflict = {"id": "x-1", "seed_conflict": "the seed says otherwise"}
    suspect = {"id": "x-2", "suspect": "a defect"}
    mended = {"id": "x-3", "suspect": "a defect", "expected_newest": {}}
    assert [is_left_out(case, SEED) for case in (conflict, suspect, mended)] == [True, True, False]
    assert not any(is_left_out(case, TRPC_AGENT_GO_2026_07) for case in (conflict, suspect, mended))


def test_fixed_sentences_are_expanded_in_inputs_and_masked_in_outputs() -> None:
    for token in RUNES:
        raw = f"a <{token}> b" if token != "OMITTED-RESULT" else 'a <OMITTED-RESULT tool_name="t", tool_call_id="c"> b'
        assert mask_sentences(expand_tokens({"x": [raw]})) == {"x": [raw]}


def test_wall_clocks_and_made_up_ids_stand_for_any_text() -> None:
    assert first_difference({"at": "<wall-clock>"}, {"at": "2026-01-01T00:00:00Z"}) == ""
    assert first_difference({"id": "x <generated-id-1> y"}, {"id": "x 123 y"}) == ""
    assert first_difference({"id": "x <generated-id-1> y"}, {"id": "z 123 y"}) != ""


def test_errors_compare_as_null_or_not_null() -> None:
    assert first_difference({"error": "their words"}, {"error": "our words"}) == ""
    assert first_difference({"error": None}, {"error": "our words"}) != ""


def test_a_file_that_is_no_vector_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"not": "a list"}))
    with pytest.raises(RecordingError, match="expected a list of cases"):
        load_cases(path)
    with pytest.raises(RecordingError, match="can't be read"):
        load_cases(tmp_path / "missing.json")
