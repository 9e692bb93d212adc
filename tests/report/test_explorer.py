"""The explorer without a browser: controls and configurations, numbers, background work, hostile text, export."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, summarising
from workbench import report
from workbench.config import RunConfig, TriggerNode
from workbench.errors import ConfigError, WorkbenchError
from workbench.recordings import Recordings, load_recordings
from workbench.replay.conversation import replay_conversation
from workbench.replay.trace import TABLES
from workbench.report.explorer.choices import KEPT, choices_of, configured, steps_around
from workbench.report.explorer.panel import Explorer
from workbench.report.explorer.work import Computed, Wish, Worker
from workbench.report.labels import rhythm


def loaded(folder: Path, *chats: dict[str, Any]) -> Recordings:
    path = folder / "chats.jsonl"
    path.write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in chats) + "\n", encoding="utf-8")
    return load_recordings(path)


@pytest.fixture(scope="module")
def conversations(tmp_path_factory) -> Recordings:
    return loaded(tmp_path_factory.mktemp("chats"), chat(4, ident="short"), chat(12, ident="长对话"))


@pytest.fixture
def explorer(conversations, tmp_path) -> Explorer:
    """Outside a notebook there is no event loop: everything is computed at once."""
    return report.explore(conversations, summarising("today", token=300), folder=tmp_path)


def exact(conversation: Any, config: RunConfig) -> dict[str, list[dict[str, Any]]]:
    rows = replay_conversation(conversation, config).rows
    return {
        name: [dict(zip(TABLES[name].column_names, row, strict=True)) for row in made] for name, made in rows.items()
    }


# --- controls and configurations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trigger",
    [
        None,
        {"event": 20},
        {"token": 700, "time": 60.0},
        {"any": [{"event": 9}, {"context": {"ratio": 0.3, "min_tokens": 5}}]},
        {"all": [{"event": 9}, {"any": [{"token": 5}, {"time": 3.0}]}]},
        {"any": [{"event": 9}, {"event": 12}]},
        {"any": []},
    ],
    ids=["none", "one", "two", "any", "tree", "twice", "empty"],
)
@pytest.mark.parametrize("mode", ["system", "user"])
def test_controls_left_alone_mean_the_configuration_that_was_given(trigger, mode):
    """WB-UI-03."""
    base = summarising(
        mode=mode, trigger=trigger, compaction={"keep_recent_requests": 3}, counter={"runes_per_token": 1.23456}
    )
    assert configured(base, choices_of(base)).resolved() == base.resolved()


def test_a_trigger_tree_without_controls_is_kept_until_one_is_chosen():
    base = summarising(trigger={"any": [{"event": 9}, {"all": [{"token": 5}, {"time": 3.0}]}]})
    assert choices_of(base).combine == KEPT


@pytest.mark.slow
def test_each_control_changes_its_own_option(explorer):
    """WB-UI-03."""
    explorer.set(
        on={"event", "silence"}, combine="any", event=7, silence_s=60, runes_per_token=1.3, mode="user", words=80,
        skip_recent=4, intra_run=True, compact=True, result_tokens=100,
    )  # fmt: skip
    config = explorer.config
    assert config.trigger == TriggerNode.parse({"any": [{"event": 7}, {"time": 60.0}]})
    assert config.counter.runes_per_token == 1.3
    assert (config.agent.summary_injection_mode, config.agent.sync_summary_intra_run) == ("user", True)
    assert config.summarizer is not None
    assert (config.summarizer.max_summary_words, config.summarizer.skip_recent) == (80, 4)
    assert (config.compaction.enabled, config.compaction.tool_result_max_tokens) == (True, 100)
    explorer.set(summaries=False)
    assert explorer.config.summarizer is None
    assert explorer.config.trigger is None


@pytest.mark.slow
def test_an_unknown_control_or_position_is_told_with_the_nearest_name(explorer):
    with pytest.raises(ConfigError) as told:
        explorer.set(tokens=5)
    assert "token" in told.value.hint
    with pytest.raises(ConfigError, match="position of this control"):
        explorer.set(mode="footer")
    with pytest.raises(ConfigError, match="conversation"):
        explorer.set(conversation="nobody")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runes_per_token", 100.0),
        ("call", 999),
        ("token", "abc"),
        ("event", None),
        ("share", 1.5),
        ("share", -1.0),
        ("on", 5),
        ("on", {"nosuch"}),
    ],
)
def test_a_position_that_is_none_is_refused_and_nothing_moves(explorer, name, value):
    """WB-UI-03: what is shown is always what was asked for."""
    before = explorer.choices
    with pytest.raises(ConfigError, match=name if name != "on" else "on = "):
        explorer.set(words=400, conversation="short", **{name: value})
    assert explorer.choices == before
    assert explorer.conversation.id != "short"


@pytest.mark.slow
def test_a_call_of_another_conversation_is_the_call_that_was_asked_for(explorer):
    assert "call 2" in explorer.set(call=2, conversation="short", view="whole").shown["prompt"]


@pytest.mark.slow
def test_a_start_between_the_steps_of_a_slider_stays_as_it_is(conversations, tmp_path):
    start = summarising(counter={"runes_per_token": 1.23456})
    assert Explorer(conversations, start, folder=tmp_path).config.counter == start.counter


def test_slider_positions_are_round_and_hold_the_value_given():
    assert steps_around(2345, 1000, 5000) == [1000, 1200, 1500, 1800, 2000, 2345, 2500, 3000, 3500, 4000, 5000]


# --- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_are_those_of_an_exact_replay(explorer, conversations):
    """WB-UI-03: of the longest conversation, which stands first; and of the baseline behind it."""
    assert explorer.conversation.id == "长对话"
    for ratio, token in ((1.0, 300), (1.0, 900), (2.0, 300)):
        explorer.set(runes_per_token=ratio, token=token)
        rows = exact(conversations[1], explorer.config)
        found = explorer.numbers
        prompts = [row["prompt_tokens"] for row in rows["calls"]]
        assert (found["prompt_tokens"], found["peak_prompt_tokens"]) == (sum(prompts), max(prompts))
        assert found["fired_calls"] == tuple(row["call"] for row in rows["checks"] if row["fired"])
        assert found["fired_calls"] == explorer.firings
        assert str(found["firings"]) in explorer.shown["numbers"]
    assert explorer.numbers_against["firings"] == 0
    assert explorer.numbers_against["peak_prompt_tokens"] > found["peak_prompt_tokens"]


@pytest.mark.slow
def test_both_views_of_how_full_are_shown_apart(explorer):
    """WB-RPL-19, WB-TUNE-05: the trigger's own value at once from sums, the request's size from the replay."""
    assert "at once, from sums" in explorer.shown["trigger title"]
    assert explorer.shown["trigger"] != explorer.shown["prompts"]
    for picture in (explorer.shown["trigger"], explorer.shown["prompts"]):
        assert picture.count('class="on-light"') == picture.count('class="on-dark"') == 1
    before = dict(explorer.shown)
    explorer.set(token=900)
    assert all(explorer.shown[part] != before[part] for part in ("heading", "trigger", "prompts", "numbers"))


@pytest.mark.slow
def test_what_only_a_replay_can_say_is_called_that(explorer):
    """WB-TUNE-05."""
    explorer.set(skip_recent=3)
    assert explorer.firings is None
    assert "only by replay" in explorer.shown["trigger title"]
    assert explorer.numbers["firings"] > 0


@pytest.mark.slow
def test_the_value_of_a_control_is_told_in_words(explorer):
    found = explorer.set(token=300).numbers
    said = rhythm(found["fired_calls"], found["calls"])
    assert f"more than 300 new tokens: {said}" in explorer.shown["words of token"]
    assert "off" in explorer.shown["words of event"]


@pytest.mark.slow
def test_the_prompt_of_a_call_is_compared_with_the_other_configuration(explorer):
    """WB-UI-03, WB-RPL-12."""
    explorer.set(call=20)
    assert "less (-)" in explorer.shown["prompt"]
    explorer.set(view="whole")
    assert "less (-)" not in explorer.shown["prompt"]
    assert "call 20" in explorer.shown["prompt"]
    explorer.set(view="diff", against="today")
    assert "send the same request" in explorer.shown["prompt"]


@pytest.mark.slow
def test_another_conversation_starts_at_its_last_call(explorer):
    explorer.set(conversation="short")
    assert explorer.numbers["calls"] == 8
    assert "call 7" in explorer.set(view="whole").shown["prompt"]


def test_recordings_without_a_call_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no conversation with a model call"):
        Explorer([], summarising())


# --- hostile text ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hostile_text_is_shown_as_text(tmp_path):
    """WB-UI-04, SEC-07: in names of conversations, configurations, authors, and in every message."""
    evil = "<img src=x onerror=alert(1)>"
    recording = chat(6, ident=evil)
    for message in recording["messages"]:
        message["content"] = (message["content"] or "") + evil
    explorer = report.explore(
        loaded(tmp_path, recording), summarising(evil, token=200), against=summarising(evil + "2"), folder=tmp_path
    )
    explorer.set(against=evil + "2", call=8, view="whole")
    everything = "".join(explorer.shown.values())
    assert "&lt;img src=x onerror" in everything
    assert "<img src=x" not in everything


# --- background ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_notebook_goes_on_while_a_thread_replays(conversations, tmp_path):
    """WB-RPL-10: with a running event loop nothing blocks it, and what comes out is the same."""

    async def notebook() -> Explorer:
        explorer = Explorer(conversations, summarising("today", token=300), folder=tmp_path)
        for _ in range(6000):
            if not explorer.is_busy:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # what the thread has told is heard
        return explorer

    there = asyncio.run(notebook())
    assert "exact replay" in there.shown["state"]
    alone = Explorer(conversations, summarising("today", token=300), folder=tmp_path)
    assert {part: there.shown[part] for part in ("heading", "numbers", "prompt")} == {
        part: alone.shown[part] for part in ("heading", "numbers", "prompt")
    }


@pytest.mark.slow
def test_a_new_wish_stops_the_old_one_and_cancel_stops_all(conversations):
    """WB-RPL-10."""
    computed = Computed(conversations)
    config, other = summarising("now", token=300), summarising("other", token=500)
    heard: list[Any] = []
    halfway, go_on = threading.Event(), threading.Event()
    replay = computed.make_replay

    def slow(place: int, wanted: RunConfig, tell: Any) -> None:
        halfway.set()
        go_on.wait(30)
        replay(place, wanted, tell)

    async def notebook() -> None:
        worker = Worker(computed, heard.append)
        computed.make_replay = slow  # type: ignore[method-assign]
        worker.wish(Wish(1, config, config, 0))
        await asyncio.to_thread(halfway.wait, 30)
        worker.stop()
        go_on.set()
        worker.wait()
        assert computed.replayed(1, config) is None
        computed.make_replay = replay  # type: ignore[method-assign]
        worker.wish(Wish(1, config, other, 0))
        worker.wait()
        assert not worker.is_busy

    asyncio.run(notebook())
    assert computed.replayed(1, config) is not None
    assert computed.replayed(1, other) is not None
    kinds = [news.kind for news in heard]
    assert "stopped" in kinds
    assert kinds.index("stopped") < kinds.index("finished")
    assert kinds[-1] == "finished"
    assert kinds.count("finished") == 1


@pytest.mark.slow
def test_a_failure_in_the_thread_is_shown(conversations, tmp_path):
    config = summarising("lost", summaries={"source": "cassette", "cassette": str(tmp_path / "none.jsonl")})
    explorer = Explorer(conversations, config, folder=tmp_path)
    assert "action" in explorer.shown["state"]
    assert "replayed" in explorer.shown["heading"]
    assert "being replayed" not in explorer.shown["heading"]
    with pytest.raises(WorkbenchError, match="cancelled or failed"):
        _ = explorer.numbers


# --- export ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_exported_configuration_loads_and_is_what_was_shown(explorer, tmp_path):
    """WB-UI-03."""
    explorer.set(token=900, mode="user", runes_per_token=1.5)
    path = explorer.export("chosen")
    assert path == tmp_path / "chosen.toml"
    loaded = RunConfig.load(path)
    assert loaded.name == "chosen"
    assert loaded.config_hash == explorer.config.config_hash


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "../up", "a/b", "/tmp/x", ".hidden", "a\\b", "x\0y"])
def test_an_export_never_leaves_its_folder(explorer, tmp_path, name):
    """SEC-05."""
    with pytest.raises(ConfigError, match="no plain file name"):
        explorer.export(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_export_replaces_no_file(explorer):
    explorer.export("once")
    with pytest.raises(ConfigError, match="there already"):
        explorer.export("once")
    explorer.press_export("once")
    assert "there already" in explorer.shown["exported"]
    explorer.press_export("twice")
    assert "written: twice.toml" in explorer.shown["exported"]
