"""Exports: every form states its evidence, loads back equal, holds no key; and what is refused."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import mistune
import pytest
from hypothesis import HealthCheck, given, settings

import workbench as wb
from tests.production.strategies import configs
from tests.replay.conftest import chat, config, summarising
from workbench.clock import FixedClock
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.evaluate.evidence import Evidence, evidence_of
from workbench.production.export import FORMS, file_stem
from workbench.production.record import record_text
from workbench.production.settings_file import json_text, stamp_of, toml_text
from workbench.production.stamp import Stamp
from workbench.replay.runs import RunSet
from workbench.version import __version__

CANARY = "canary-9f31c7e2-do-not-write"


def words(path: Path) -> str:
    """What a file says, without the marks of its form."""
    return path.read_text("utf-8").replace("\\", "").replace("`", "")


@pytest.fixture(scope="module")
def found(runs: RunSet, tuned: RunConfig) -> Evidence:
    return evidence_of(tuned, runs)


# --- what a file states -------------------------------------------------------------------------------------


def test_every_form_states_where_it_is_from(runs: RunSet, tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-02: profile, configuration hash, data hash, run id, key figures with intervals, version, date."""
    made = wb.export(tuned, tmp_path, to=FORMS, evidence=runs, date="2026-03-01")
    run = runs["tuned"]
    assert tuple(made.paths) == FORMS
    figure = made.evidence.figure("prompt_tokens_per_request")
    assert figure.low < figure.value < figure.high
    for form, path in made.paths.items():
        text = words(path)
        for fact in (tuned.config_hash, run.facts["data_hash"], run.run_id, "SEED", __version__, "2026-03-01"):
            assert fact in text, (form, fact)
        said = str(figure.low) if form in ("toml", "json") else f"{figure.value:,.0f} (95 %: {figure.low:,.0f} to "
        assert said in text, form


def test_the_three_figures_to_watch_are_the_replays(runs: RunSet, tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-03: firings per 100 requests, cached share, overflow."""
    facts = runs["tuned"].facts
    made = wb.export(tuned, tmp_path, to=FORMS, evidence=runs["tuned"])
    firings, cached, overflow = made.evidence.watched
    assert firings.value == pytest.approx(100 * facts["firings"] / facts["calls"], abs=1e-6)
    assert cached.value == pytest.approx(facts["cached_tokens"] / facts["prompt_tokens"], abs=1e-6)
    assert overflow.value == pytest.approx(100 * facts["overflow_calls"] / facts["calls"], abs=1e-6)
    assert facts["firings"] > 0
    for form in ("python", "go", "markdown"):
        text = words(made.paths[form])
        assert "o watch in production" in text
        for figure in made.evidence.watched:
            assert figure.doc in text


def test_what_it_was_compared_with_stands_in_the_record(runs: RunSet, tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-01: a decision record says what was compared, on which data, with which result."""
    text = wb.export(tuned, tmp_path, to="markdown", evidence=runs).paths["markdown"].read_text("utf-8")
    comparison = wb.compare(runs["no summary"], runs["tuned"])
    net = comparison.difference("tuned")
    assert f"Against no summary it is {comparison.verdicts[0].verdict} (" in text
    low, high = net.relative_interval
    interval = f"{100 * net.relative:+.1f} % (95 %: {100 * low:+.1f} % to {100 * high:+.1f} %)"
    assert f"| net tokens per conversation | {interval} |" in text
    assert "12 conversations" in text
    for name in runs:
        assert re.search(rf"^\| \**{name}\** \|", text, re.MULTILINE), name
    assert "\n## What a replay can't show\n" in text
    assert "| `trigger` | `{ token = 150 }` | `none` |" in text


def test_the_verdict_names_the_interval_that_holds_0(tmp_path: Path) -> None:
    """WB-EXP-02: with prices it is the money that decides, whatever the net tokens do."""
    lines = [json.dumps(chat(2 + 3 * (i % 4), ident=f"c{i}"), ensure_ascii=False) for i in range(12)]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines), "utf-8")
    priced = {"model": {"name": "gpt-4o"}, "cache": {"provider": "openai", "min_tokens": 0, "block_tokens": 1}}
    late = summarising("late", token=400, **priced)
    found = wb.replay(tmp_path / "chats.jsonl", [config(name="no summary", **priced), late], runs=tmp_path / "runs")
    made = wb.export(late, tmp_path / "out", to=FORMS, evidence=found)
    money, net = (next(one for one in made.evidence.changes if one.name == name) for name in ("cost", "net_tokens"))
    assert money.low < 0 < money.high
    assert net.low > 0
    for path in made.paths.values():
        assert "smaller, but dearer (not sure: the interval of the money holds 0)" in words(path), path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "runs", "comparison"])
def test_evidence_is_a_run_runs_or_a_comparison(runs: RunSet, tuned: RunConfig, tmp_path: Path, kind: str) -> None:
    """WB-EXP-02."""
    both = [runs["no summary"], runs["tuned"]]
    source = {"run": runs["tuned"], "runs": runs, "comparison": wb.compare(*both)}[kind]
    found = wb.export(tuned, tmp_path, to="json", evidence=source).evidence
    assert found.run_id == runs["tuned"].run_id
    assert found.reference == ("" if kind == "run" else "no summary")
    assert bool(found.changes) == (kind != "run")


@pytest.mark.slow
def test_the_evidence_of_a_sweep_is_its_reason(tmp_path: Path) -> None:
    """WB-EXP-02: what is said of the recommendation is said of conversations that it wasn't chosen on."""
    lines = [json.dumps(chat(4 + i % 3, ident=f"c{i}"), ensure_ascii=False) for i in range(5)]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines), "utf-8")
    grid = {"trigger.token": [60, 200]}
    sweep = wb.sweep(tmp_path / "chats.jsonl", summarising("base", token=100), grid, runs=tmp_path / "runs")
    found = wb.export(sweep.config, tmp_path / "out", evidence=sweep).evidence
    assert found.reason == sweep.reason
    assert len(found.compared) == 4


def test_an_export_without_evidence_says_so(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-02: nothing is made up."""
    made = wb.export(tuned, tmp_path, to=FORMS)
    assert made.evidence is None
    assert "evidence" not in tomllib.loads(made.paths["toml"].read_text("utf-8"))["export"]
    for form in ("python", "go"):
        assert "Not replayed: nothing is known about what it does." in made.paths[form].read_text("utf-8")
    assert "without a replay" in made.paths["markdown"].read_text("utf-8")


def test_under_ten_conversations_there_is_no_interval(runs: RunSet, tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-02: a value stands alone, and the file says why."""
    few = wb.load_recordings(write(tmp_path / "few.jsonl", *(chat(4, ident=f"c{i}") for i in range(3))))
    run = wb.replay(few, tuned, runs=tmp_path / "runs")["tuned"]
    found = evidence_of(tuned, run)
    assert all(figure.low is None for figure in found.figures)
    assert found.figure("needed_fact_recall").value is None
    text = "\n".join(Stamp.of(tuned, date="2026-03-01", evidence=found).lines())
    assert "No intervals: they take 10 conversations.\n" in text
    assert "%: " not in text
    assert "needed facts that the requests still say: not known" in text


def write(path: Path, *conversations: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in conversations) + "\n", "utf-8")
    return path


@pytest.mark.slow
def test_where_summaries_and_prices_of_a_replay_are_from_does_not_matter(
    runs: RunSet, tuned: RunConfig, tmp_path: Path
) -> None:
    """WB-EXP-02: production has neither; both hashes are stated."""
    priced = tuned.replace(prices={"currency": "EUR"})
    made = wb.export(priced, tmp_path, to="toml", evidence=runs)
    assert made.evidence.config_hash == tuned.config_hash != made.stamp.config_hash
    with pytest.raises(ConfigError, match=r"none of the runs .* is of configuration 'tuned'") as refused:
        wb.export(tuned.replace(trigger={"token": 151}), tmp_path, evidence=runs)
    assert "replay exactly what is exported" in refused.value.hint


def test_the_date_is_the_clocks_unless_it_is_given(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-02."""
    clock = FixedClock(1_772_323_200_000_000_000)
    assert wb.export(tuned, tmp_path, to="toml", clock=clock).stamp.date == "2026-03-01"
    assert wb.export(tuned, tmp_path, to="toml", date=date(2026, 4, 2)).stamp.date == "2026-04-02"
    with pytest.raises(ConfigError, match="a day such as"):
        wb.export(tuned, tmp_path, to="toml", date="soon")


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(runs: RunSet, tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-02."""
    first, second = (
        wb.export(tuned, tmp_path / name, to=FORMS, evidence=runs, date="2026-03-01", seed=3) for name in "ab"
    )
    for form in FORMS:
        assert first.paths[form].read_bytes() == second.paths[form].read_bytes()


# --- loading back -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_toml_and_json_load_back_equal_with_their_evidence(runs: RunSet, tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-01."""
    made = wb.export(tuned, tmp_path, to=["toml", "json"], evidence=runs)
    for path in made.paths.values():
        loaded = RunConfig.load(path)
        assert loaded == tuned
        assert loaded.config_hash == tuned.config_hash
        assert stamp_of(path) == made.stamp


@pytest.mark.slow
@given(configs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_configuration_loads_back_equal(tmp_path: Path, found: Evidence, made: RunConfig) -> None:
    """WB-EXP-01: hostile texts, no name, trigger trees."""
    hostile = Evidence.from_dict({**found.as_dict(), "run": made.name, "reason": made.name, "warnings": [made.name]})
    stamp = Stamp.of(made, date="2026-03-01", evidence=hostile)
    for ending, text in (("toml", toml_text(made, stamp)), ("json", json_text(made, stamp))):
        path = tmp_path / f"c.{ending}"
        path.write_bytes(text.encode("utf-8"))
        assert RunConfig.load(path) == made
        back = stamp_of(path)
        assert (back.evidence, back.config_hash) == (hostile, stamp.config_hash)


@given(configs)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_hostile_text_is_text_in_the_record(made: RunConfig) -> None:
    """SEC-03: no heading, table row, link or HTML comes from a name or a prompt."""
    shown = as_html(record_text(made, Stamp.of(made, date="2026-03-01")))
    assert (shown.count("<h1>"), shown.count("<h2>"), shown.count("<pre>")) == (1, 3, 1)
    assert not re.search(r"<(a|img|script|em|del|blockquote|h3|hr)\b", shown)
    rows = [row.count("<td") for row in re.findall(r"<tr>.*?</tr>", shown, re.DOTALL)]
    assert set(rows) <= {0, 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "<script>x()</script>",
        "[a](http://b.example)",
        "a | b",
        "# h",
        "*a* _b_ ~~c~~",
        "`a",
        "![x](y)",
        "- a\n\n# b",
        "<http://c>",
    ],
)
def test_a_hostile_name_is_text_in_the_record(name: str, found: Evidence) -> None:
    """SEC-03: wherever it stands, in a sentence or a table."""
    hostile = Evidence.from_dict(
        {**found.as_dict(), "run": name, "reference": name, "reason": name, "warnings": [name], "unreachable": ""}
    )
    made = summarising(name, summarizer={"system_prompt": f"{name} ``` {name}"})
    shown = as_html(record_text(made, Stamp.of(made, date="2026-03-01", evidence=hostile)))
    assert not re.search(r"<(a|img|script|em|del|blockquote|h3|hr)\b", shown)
    assert shown.count("<h2>") == 6
    quiet = as_html(record_text(summarising("a"), Stamp.of(summarising("a"), date="2026-03-01", evidence=found)))
    assert shown.count("<td") == quiet.count("<td")


def as_html(text: str) -> str:
    return str(mistune.create_markdown(escape=False, plugins=["table", "strikethrough", "url"])(text))


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_trigger_that_never_fires_needs_a_word(runs: RunSet, tmp_path: Path) -> None:
    """BUG-05: and nothing is written before that; the files say what was allowed."""
    never = runs["never"].config
    with pytest.raises(ConfigError, match=r"never: the trigger never fires on this corpus.*the largest \d") as refused:
        wb.export(never, tmp_path / "out", to=FORMS, evidence=runs)
    assert "allow_unreachable=True" in refused.value.hint
    assert not (tmp_path / "out").exists()
    made = wb.export(never, tmp_path / "out", to=FORMS, evidence=runs, allow_unreachable=True)
    for path in made.paths.values():
        assert "the trigger never fires on this corpus" in words(path)


def test_a_configuration_without_summaries_is_no_trigger_that_never_fires(runs: RunSet, tmp_path: Path) -> None:
    """BUG-05."""
    made = wb.export(runs["no summary"].config, tmp_path, evidence=runs)
    assert made.evidence.unreachable == ""
    assert made.evidence.reference == "tuned"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"to": "tomll"}, "did you mean toml?"),
        ({"to": []}, "at least one of"),
        ({"to": "go", "backend": "mongo"}, "inmemory, redis"),
    ],
)
def test_unknown_forms_are_told(tuned: RunConfig, tmp_path: Path, wanted: dict[str, Any], told: str) -> None:
    """WB-EXP-01."""
    with pytest.raises(ConfigError) as refused:
        wb.export(tuned, tmp_path / "out", **wanted)
    assert told in refused.value.one_line()
    assert not (tmp_path / "out").exists()


def test_one_form_may_be_a_file(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-01: its ending says which."""
    made = wb.export(tuned, tmp_path / "service.go")
    assert made.paths == {"go": tmp_path / "service.go"}
    with pytest.raises(ConfigError, match="is one file, to be written as go; asked for: toml"):
        wb.export(tuned, tmp_path / "service.go", to="toml")
    assert set(wb.export(tuned, tmp_path / "both").paths) == {"toml", "markdown"}


def test_a_folder_that_cannot_be_is_told(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-01."""
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ConfigError, match="can't be written"):
        wb.export(tuned, tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("tuned", "tuned"),
        ("../../etc/passwd", "etc_passwd"),
        ("1.3 chars/token · user", "config_1_3_chars_token_user"),
        ("压缩 600", "压缩_600"),
        ("...", "configuration"),
        ("x" * 60, "x" * 60),
        ("x" * 300, "x" * 51 + "_0123abcd"),
        ("x" * 50 + " y" * 50, "x" * 50 + "_0123abcd"),
        ("con\x00fig\n", "con_fig"),
        ("class", "config_class"),
        ("None", "config_None"),
        ("con", "config_con"),
        ("string", "config_string"),  # on the path it would stand in front of Python's own
        ("workbench", "config_workbench"),
    ],
)
def test_a_name_is_a_file_of_the_folder_and_a_module(name: str, stem: str, tmp_path: Path) -> None:
    """SEC-05: whatever a configuration is named, its files stay in the folder."""
    assert file_stem(name, "0123abcd4567") == stem
    made = wb.export(config(name=name), tmp_path, to=FORMS)
    assert {path.parent for path in made.paths.values()} == {tmp_path}


def test_long_names_that_begin_alike_are_files_of_their_own(tmp_path: Path) -> None:
    """WB-EXP-01: a sweep names its configurations by all their options."""
    name = "all:[time:300.0,event:8] summary_injection_mode=system tool_result_max_tokens=340 enabled="
    paths = [
        path
        for is_on in (True, False)
        for path in wb.export(
            config(name=f"{name}{is_on}", compaction={"enabled": is_on}), tmp_path, to=FORMS
        ).paths.values()
    ]
    assert len({path.name for path in paths}) == len(paths)
    assert {len(path.stem) for path in paths} == {60}


def test_a_file_of_another_configuration_is_not_written_over(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-01: nor anything beside it; the same configuration may be exported again."""
    first = wb.export(tuned, tmp_path, to=FORMS, date="2026-03-01")
    before = {path: path.read_bytes() for path in first.paths.values()}
    other = tuned.replace(trigger={"token": 151})
    for form in FORMS:
        with pytest.raises(ConfigError) as refused:
            wb.export(other, tmp_path, to=form)
        assert refused.value.one_line().startswith(f"{first.paths[form]} is there already, and isn't of this config")
        assert "another folder" in refused.value.hint
    first.paths["toml"].unlink()
    with pytest.raises(ConfigError, match="is there already"):
        wb.export(other, tmp_path, to=FORMS)
    assert not first.paths["toml"].exists()
    again = wb.export(tuned, tmp_path, to=FORMS, date="2026-03-02")
    assert again.paths == first.paths
    assert all(path.read_bytes() != before[path] for path in again.paths.values())


def test_an_export_may_take_the_place_of_the_file_it_came_from(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-EXP-01: and of no other."""
    path = tmp_path / "mine.toml"
    path.write_text(tuned.to_toml(), "utf-8")
    wb.export(RunConfig.load(path), path)
    assert stamp_of(path).config_hash == tuned.config_hash
    path.write_text("[trigger]\ntoken = 7\n", "utf-8")
    with pytest.raises(ConfigError, match="isn't of this configuration"):
        wb.export(tuned, path)
    assert path.read_text("utf-8") == "[trigger]\ntoken = 7\n"


def test_a_go_file_is_no_test_and_of_no_system(tmp_path: Path) -> None:
    """WB-EXP-01: Go reads meaning into `_test` and `_linux`."""
    names = [wb.export(config(name=name), tmp_path, to="go").paths["go"].name for name in ("my test", "on_windows")]
    assert names == ["my-test.go", "on-windows.go"]


# --- secrets ------------------------------------------------------------------------------------------------


def test_no_key_is_in_any_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SEC-08: a configuration with an endpoint and the name of its key's variable, all forms and backends: 0 hits."""
    for variable in ("OPENAI_API_KEY", "OUR_MODEL", "REDIS_PASSWORD", "MYSQL_TOKEN"):
        monkeypatch.setenv(variable, CANARY)
    made = summarising(
        "live",
        summaries={
            "source": "live",
            "model": "small",
            "cassette": "c.jsonl",
            "base_url": "https://models.example.com/v1",
            "api_key_env": "OUR_MODEL",
        },
        model={"name": "gpt-4o"},
    )
    for backend in ("inmemory", "redis", "postgres", "mysql", "clickhouse", "pgvector"):
        wb.export(made, tmp_path / backend, to=FORMS, backend=backend)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 30
    assert [path for path in written if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("summarizer.prompt", f"Use {CANARY} for {{conversation_text}} {{max_summary_words}}"),
        ("summarizer.prompt", "Key sk-" + "proj4a8B7c6D5e4F3g2H1 {conversation_text} {max_summary_words}"),
        ("agent.preload_memory_playbook", f"The password is {CANARY}"),
        ("compaction.keep_tool_names", [CANARY]),
        ("name", f"tuned {CANARY}"),
    ],
)
def test_a_text_that_holds_a_key_is_refused_without_saying_it(
    place: str, text: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SEC-08: nothing is written, and the error names the option only."""
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    made = summarising("tuned").replace(**{place: text})
    with pytest.raises(ConfigError, match=f"^{place} holds what looks like a key or a password") as refused:
        wb.export(made, tmp_path / "out", to=FORMS)
    assert CANARY not in refused.value.one_line()
    assert "proj4a8" not in refused.value.one_line()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "variable", ["DB_PASSWD", "AWS_ACCESS_KEY_ID", "OPENAI_API_KEY_2", "GH_PAT", "SENTRY_DSN", "MYSECRET", "apikey"]
)
def test_what_a_variable_of_any_such_name_holds_is_refused(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SEC-08."""
    monkeypatch.setenv(variable, CANARY)
    made = summarising("tuned", summarizer={"prompt": f"{CANARY} {{conversation_text}}"})
    with pytest.raises(ConfigError, match="looks like a key or a password"):
        wb.export(made, tmp_path, to="toml")


@pytest.mark.parametrize("variable", ["PATH_TO_KEYBOARD", "TOKENIZER", "PATIENCE", "MONKEYS"])
def test_a_name_that_only_sounds_so_is_no_secret(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, "Sum up in few words.")
    made = summarising("tuned", summarizer={"prompt": "Sum up in few words. {conversation_text}"})
    assert wb.export(made, tmp_path, to="toml").paths["toml"].exists()


def test_an_export_prints_as_one_line(tuned: RunConfig, tmp_path: Path) -> None:
    """WB-API-03."""
    assert repr(wb.export(tuned, tmp_path, to=["toml", "go"])) == "Exported(tuned: tuned.toml, tuned.go)"
