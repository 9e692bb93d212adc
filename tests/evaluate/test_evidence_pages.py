"""The two pages of figures under `reports/` are what their tools write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import field_facts, needed_facts_table


def test_the_page_of_needed_facts_has_the_verdicts_as_they_are() -> None:
    """WB-RET-01b."""
    page = needed_facts_table.REPORT.read_text(encoding="utf-8")
    for name, (right, of) in needed_facts_table.judged().items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
        assert f"| {right} of {of} |" in row


@pytest.mark.slow
def test_the_page_of_needed_facts_is_up_to_date(shared_path: Path) -> None:
    """WB-RET-01b, WB-RPL-07a: recall rises with the word limit and is near the trial's."""
    page = needed_facts_table.report(shared_path / "data")
    assert page == needed_facts_table.REPORT.read_text(encoding="utf-8"), "run python tools/needed_facts_table.py"


def test_the_page_of_findings_reads_back() -> None:
    page = field_facts.REPORT.read_text(encoding="utf-8")
    assert field_facts.report(field_facts.findings_of(page)) == page


@pytest.mark.slow
def test_the_four_findings_of_the_survey_hold_here_too(shared_path: Path, tmp_path: Path) -> None:
    """WB-TUNE-06, WB-CACHE-02, WB-CAL-01: field.md, section 0."""
    findings = field_facts.measure(shared_path / "data", tmp_path)
    assert [found.agrees for found in findings] == [True] * 4
    assert field_facts.report(findings) == field_facts.REPORT.read_text(encoding="utf-8"), (
        "run python tools/field_facts.py"
    )
