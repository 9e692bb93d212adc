"""The CI recipe does what it says: its steps are run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import cli
from workbench.regression.baseline import load_baseline
from workbench.regression.suite import load_suite

ROOT = Path(__file__).resolve().parents[2]
RECIPE = (ROOT / "datasets" / "ci-recipe.yml").read_text(encoding="utf-8")
SUITE = ROOT / "datasets" / "service.suite.toml"


def steps() -> dict[str, list[str]]:
    """Name of each step that runs commands -> its lines."""
    found = re.findall(r"- name: (.+)\n(?: +if: .+\n)? +run: (\|\n(?: {10}.+\n)+|.+\n)", RECIPE)
    return {name: [line.strip() for line in text.removeprefix("|\n").splitlines()] for name, text in found}


def variables() -> dict[str, str]:
    return dict(re.findall(r"^  ([A-Z]+): (\S+)$", RECIPE, re.MULTILINE))


def test_the_recipe_installs_checks_and_compares_without_a_key() -> None:
    """WB-FRESH-02a."""
    assert list(steps()) == ["install", "check the suite", "compare the notebook"]
    install, check, compare = (" ".join(lines) for lines in steps().values())
    assert "--require-hashes --requirement requirements.lock" in install
    assert "workbench check" in check
    assert "pytest --nbval" in compare
    assert "secrets." not in RECIPE
    assert not re.search(r"api[_-]?key|token:|password", RECIPE, re.IGNORECASE)
    assert {name: (ROOT / path).is_file() for name, path in variables().items()} == {"SUITE": True, "NOTEBOOK": True}


def test_the_command_of_the_recipe_parses() -> None:
    """WB-FRESH-02a."""
    command = steps()["check the suite"][0].replace('"$SUITE"', variables()["SUITE"])
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "workbench"]
    assert cli.parser().parse_args(words[3:]).junit == "reports/summaries.xml"


def test_the_bundled_suite_has_a_cassette_a_baseline_and_every_kind_of_expectation() -> None:
    """WB-REG-01."""
    suite = load_suite(SUITE)
    assert suite.cassette is not None
    assert suite.cassette.is_file()
    baseline = load_baseline(suite)
    assert baseline is not None
    assert len(baseline.conversations) == 6
    rules = suite.rules
    assert all((list(rules.limits.given()), list(rules.each.given()), rules.conversations, list(rules.drift.given())))
    assert rules.summaries.invented_numbers == 0


@pytest.mark.slow
def test_the_steps_run_as_they_stand(tmp_path: Path) -> None:
    """WB-FRESH-02a: in a checkout, with nothing in the environment but a path."""
    names = variables()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", **names}
    (command,) = steps()["check the suite"]
    command = command.replace("python ", f"{sys.executable} ").replace("reports/", f"{tmp_path}/")
    done = subprocess.run(["sh", "-ec", command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "service: passed" in done.stdout
    assert (tmp_path / "summaries.xml").read_text(encoding="utf-8").startswith("<?xml")
