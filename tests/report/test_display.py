"""What a notebook shows for runs."""

from __future__ import annotations

from tests.report.fakes import fake_run, fake_runs
from workbench.report.display import run_html, runs_html
from workbench.report.overview import overview

RUNS = fake_runs((24, 9))


def test_a_run_set_shows_the_table_of_the_report():
    """WB-UI-05, WB-API-03."""
    made = runs_html(RUNS)
    assert overview(RUNS).heading.replace("'", "&#x27;") in made
    assert made.count("<tr") == 1 + len(RUNS)
    assert "recommended" in made


def test_one_run_shows_its_sentence():
    """WB-UI-05."""
    made = run_html(RUNS["today"])
    assert "wrote 3 summaries" in made or "wrote" in made
    assert made.count("<tr") == 2


def test_names_are_escaped_in_notebooks():
    """SEC-07."""
    name = "<img src=x onerror=alert(1)>"
    made = runs_html({name: fake_run(name, {"<b>": 3}), "b": fake_run("b", {"<b>": 3})})
    assert "<img" not in made
    assert "&lt;img" in made


def test_an_empty_run_set_says_so():
    assert runs_html({}) == "<p>No run to show.</p>"
