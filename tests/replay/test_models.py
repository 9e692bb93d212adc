"""A change of model in mid-session: window, tailoring, prices and cache follow it (WB-RPL-15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, config, recorded, summarising
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.evaluate.cost import cost_of
from workbench.recordings import Recordings, load_recordings
from workbench.replay.conversation import replay_conversation
from workbench.replay.models import CallModel, model_plan
from workbench.replay.replay import replay
from workbench.replay.runs import Run
from workbench.replay.trace import TABLES
from workbench.session.types import Event

__all__ = ["recorded"]  # the fixture of the replays

BIG, SMALL = "gpt-4.1", "gpt-4o"
PRICED = {"cache": {"provider": "openai", "min_tokens": 0, "block_tokens": 1, "lifetime_s": 3600}}


def changing(*changes: dict[str, Any], **values: Any) -> RunConfig:
    model = {"name": BIG, **values.pop("model", {}), "changes": list(changes)}
    return config(name="changing", model=model, **values)


def rows(trace: Any, table: str = "calls") -> list[dict[str, Any]]:
    return [dict(zip(TABLES[table].column_names, row, strict=True)) for row in trace.rows[table]]


def one(recordings: Recordings) -> Any:
    return next(iter(recordings))


def test_from_a_request_on_every_call_goes_to_the_other_model(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-15: name, window and overflow follow; requests count from 0, two calls each."""
    conversation = one(recorded(chat(6)))
    found = rows(replay_conversation(conversation, changing({"request": 3, "name": "tiny", "context_window": 300})))
    assert [row["model"] for row in found] == [BIG] * 6 + ["tiny"] * 6
    assert {row["window"] for row in found[:6]} == {1_047_576}
    assert {row["window"] for row in found[6:]} == {300}
    assert not any(row["overflow"] for row in found[:6])
    assert any(row["overflow"] for row in found[6:])


@pytest.mark.parametrize(("share", "first"), [(0.5, 6), (0.51, 7), (0.01, 1), (0.99, 12)])
def test_a_share_of_the_conversation_is_one_of_its_calls(
    recorded: Callable[..., Recordings], share: float, first: int
) -> None:
    """WB-RPL-15: also inside a request, between two of its calls."""
    conversation = one(recorded(chat(6)))
    found = rows(replay_conversation(conversation, changing({"share": share, "name": SMALL})))
    assert [row["model"] for row in found] == ([BIG] * 12)[:first] + [SMALL] * (12 - first)


def test_the_prefix_breaks_where_the_model_changes_and_the_cause_says_so(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-15, WB-CACHE-03: another model's cache has nothing; going back finds what was left there."""
    conversation = one(recorded(chat(9)))
    away = changing({"request": 3, "name": SMALL}, {"request": 6, "name": BIG})
    plain, found = rows(replay_conversation(conversation, changing())), rows(replay_conversation(conversation, away))
    assert [row["prompt_tokens"] for row in found] == [row["prompt_tokens"] for row in plain], "it sends the same"
    broken = {row["call"]: row for row in found if row["break_cause"] not in (None, "first_call")}
    assert {call: row["break_cause"] for call, row in broken.items()} == {6: "model_changed", 12: "model_changed"}
    first, back = broken[6], broken[12]
    assert (first["prefix_tokens"], first["break_part"]) == (0, 0)
    assert first["lost_tokens"] == found[5]["prompt_tokens"]
    assert (back["prefix_tokens"], back["prefix_call"]) == (found[5]["prompt_tokens"], 5)
    assert back["lost_tokens"] == found[11]["prompt_tokens"] - found[5]["prompt_tokens"]
    for row, before in zip(found[1:], plain[1:], strict=True):
        if row["call"] not in broken:
            assert row["prefix_tokens"] == before["prefix_tokens"], "each of them only adds to the one before"


def test_tailoring_and_a_share_of_the_window_follow_the_new_window(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-15: the engine reads the window of the model that it calls."""
    conversation = one(recorded(chat(10)))
    tailored = changing(
        {"request": 5, "context_window": 700}, model={"context_window": 100_000}, tailoring={"enabled": True},
        counter={"runes_per_token": 1.0},
    )  # fmt: skip
    found = rows(replay_conversation(conversation, tailored))
    assert not any(row["tailored_messages"] for row in found[:10])
    assert any(row["tailored_messages"] for row in found[10:])
    assert {row["model"] for row in found} == {BIG}, "only the window changes"
    share = summarising(
        "share", trigger={"context": {"ratio": 0.5, "min_tokens": 0}},
        model={"name": BIG, "context_window": 100_000, "changes": [{"request": 5, "context_window": 800}]},
    )  # fmt: skip
    checks = rows(replay_conversation(conversation, share), "checks")
    windows = [check["context_window"] for check in checks]
    assert set(windows) == {100_000, 800}
    assert windows == sorted(windows, reverse=True)
    assert not any(check["fired"] for check in checks if check["context_window"] == 100_000)
    assert any(check["fired"] for check in checks if check["context_window"] == 800)


def stored(recordings: Recordings, wanted: RunConfig, folder: Path) -> Run:
    (run,) = replay(recordings, wanted, runs=folder, progress=False).values()
    return run


def test_each_call_is_billed_by_its_model_and_the_change_has_its_price(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-15, WB-COST-01, WB-CACHE-03."""
    chats = recorded(chat(8))
    own = {"main": {"input": 10.0, "output": 0.0, "cache_read": 1.0, "cache_write": 10.0}}
    run = stored(chats, changing({"request": 4, "name": SMALL}, prices=own, **PRICED), tmp_path)
    cost = cost_of(run)
    calls = cost.main_calls
    assert [call.use.cause for call in calls if call.use and call.use.cause] == ["first_call", "model_changed"]
    changed = calls[8]
    assert changed.use is not None
    assert (changed.use.cached, changed.use.lost) == (0, calls[7].prompt_tokens)
    assert calls[9].use is not None
    assert calls[9].use.cached == changed.prompt_tokens, "the new model's cache fills as the old one's did"
    by_name = cost_of(stored(chats, changing({"request": 4, "name": SMALL}, **PRICED), tmp_path / "named"))
    assert {model for model, _ in by_name.priced_by} == {BIG, SMALL}
    fixed = changing({"request": 4, "name": SMALL}, prices={"model": BIG}, **PRICED)
    assert {model for model, _ in cost_of(stored(chats, fixed, tmp_path / "fixed")).priced_by} == {BIG}


def native(folder: Path, *names: str) -> Recordings:
    """A recording whose answers name models in turn; the last name holds on."""
    source = folder / "source.jsonl"
    source.write_text(json.dumps(chat(4), ensure_ascii=False) + "\n", encoding="utf-8")
    (conversation,) = load_recordings(source)
    model_of = dict(zip_longest((call.event.id for call in conversation.calls), names, fillvalue=names[-1]))

    def named(event: Event) -> Event:
        if event.id not in model_of or event.response is None:
            return event
        return event.replace(response=replace(event.response, model=model_of[event.id]))

    return Recordings.of([replace(conversation, events=tuple(map(named, conversation.events)))])


def test_names_that_change_in_the_recording_are_followed(tmp_path: Path) -> None:
    """WB-RPL-15: where the answers name several models; the configuration's own name stands above them."""
    conversation = one(native(tmp_path, BIG, BIG, BIG, SMALL, BIG))
    found = rows(replay_conversation(conversation, config(name="as it was")))
    assert [row["model"] for row in found] == [BIG] * 3 + [SMALL] + [BIG] * 4
    assert [row["break_cause"] for row in found][3:5] == ["model_changed"] * 2
    assert [row["window"] for row in found][2:4] == [1_047_576, 128_000]
    own = rows(replay_conversation(conversation, config(name="own", model={"name": SMALL})))
    assert {row["model"] for row in own} == {SMALL}


def test_one_name_on_all_answers_is_no_change(tmp_path: Path) -> None:
    """A provider answers with the dated name of what was asked for: that is one model."""
    plan = model_plan(one(native(tmp_path, "gpt-4o-2024-08-06")), config(name="as it was"))
    assert (plan.first_calls, plan.models) == ((0,), (CallModel("gpt-4o", None),))


def test_what_is_changed_on_purpose_stays_changed(tmp_path: Path) -> None:
    """WB-RPL-15: recorded names of later calls don't hold any more."""
    wanted = config(name="what if", model={"changes": [{"request": 1, "name": "other", "context_window": 9_000}]})
    plan = model_plan(one(native(tmp_path, BIG, BIG, BIG, SMALL, BIG)), wanted)
    assert [plan.at(call).name for call in range(8)] == [BIG] * 2 + ["other"] * 6
    assert plan.at(7).window == 9_000


def test_a_change_behind_the_last_call_never_comes(recorded: Callable[..., Recordings]) -> None:
    plan = model_plan(one(recorded(chat(3))), changing({"request": 50, "name": SMALL}))
    assert plan.first_calls == (0,)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"request": 1, "share": 0.5, "name": "a"}, "changes"),
        ({"name": "a"}, "changes"),
        ({"request": 1}, "changes"),
        ({"request": 0, "name": "a"}, "request"),
        ({"share": 1.0, "name": "a"}, "share"),
    ],
    ids=str,
)
def test_a_change_says_when_and_what(change: dict[str, Any], field: str) -> None:
    """WB-CFG-02."""
    with pytest.raises(ConfigError, match=field):
        changing(change)


def test_a_change_is_an_option_of_the_file(tmp_path: Path) -> None:
    """WB-CFG-04: TOML out, the same back."""
    wanted = changing({"request": 4, "name": SMALL}, {"share": 0.9, "context_window": 8_000})
    path = tmp_path / "changing.toml"
    path.write_text(wanted.to_toml(), encoding="utf-8")
    assert RunConfig.load(path) == wanted
