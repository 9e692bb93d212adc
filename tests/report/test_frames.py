"""Trace rows as data frames."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.report.fakes import fake_runs
from workbench.errors import ConfigError
from workbench.replay.trace import TABLES
from workbench.report.frames import RunLike, each_run, frame

RUNS = fake_runs((5, 3), None)


@pytest.mark.parametrize("table", TABLES)
def test_a_frame_has_the_columns_of_the_trace_and_their_meaning(table):
    """WB-RPL-11, WB-API-03."""
    made = frame(RUNS, table)
    assert list(made.columns) == ["run", *TABLES[table].column_names]
    assert made.attrs["doc"] == TABLES[table].doc
    assert set(made.attrs["columns"]) == set(made.columns)


def test_rows_keep_their_values_and_order():
    made = frame(RUNS, "calls")
    expected = [(run.name, row["call"], row["prompt_tokens"]) for run in RUNS.values() for row in run.rows("calls")]
    assert list(made[["run", "call", "prompt_tokens"]].itertuples(index=False, name=None)) == expected


def test_unknown_is_not_zero():
    made = frame(RUNS, "calls")
    assert made["window"].isna().all()
    assert made["overflow"].isna().all()
    assert pd.isna(made["window"].sum(min_count=1))


def test_one_run_and_one_conversation_can_be_asked_for():
    made = frame(RUNS["today"], "calls", "客服-02")
    assert set(made["conversation"]) == {"客服-02"}
    assert len(made) == 3


def test_an_unknown_table_names_the_nearest_one():
    with pytest.raises(ConfigError, match="table = 'call'") as caught:
        frame(RUNS, "call")
    assert caught.value.hint == "did you mean calls?"


def test_a_run_set_and_a_run_are_told_apart():
    assert [run.name for run in each_run(RUNS)] == list(RUNS)
    assert [run.name for run in each_run(RUNS["today"])] == ["today"]
    assert isinstance(RUNS["today"], RunLike)
