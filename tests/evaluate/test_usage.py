"""Calibration from usage alone: a provider's rule is found again from its counts."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.evaluate.texts import conversation, conversations, texts
from workbench.errors import ConfigError, NotEnoughDataError
from workbench.evaluate.calibration_file import calibration_values, load_calibration, save_calibration
from workbench.evaluate.usage import calibrate_usage
from workbench.model.types import ToolSpec
from workbench.recordings import load_recordings
from workbench.replay.cache import tools_text
from workbench.tokens import TiktokenCounter

pytestmark = pytest.mark.slow  # long texts or whole data sets; `make test-more` runs these

SYSTEM = "你是客服，请简短回答。"
TOOLS = tuple(ToolSpec(name=f"tool_{i}", description="查询订单", parameters_json="{}") for i in range(5))


def with_usage(
    name: str,
    said: list[str],
    *,
    ratio=1.5,
    per_message=4,
    per_tool=9,
    per_request=3,
    tools=(),
    system=SYSTEM,
    hidden=0,
):
    """A conversation whose answers report what a provider of these rules would count."""
    reported, chars, messages = [], len(system), int(bool(system))
    schema = len(tools_text(tools)) / ratio + per_tool * len(tools)
    for i, text in enumerate(said):
        if i % 2:
            reported.append(round(chars / ratio + per_message * messages + schema + per_request + hidden))
        chars += len(text)
        messages += 1
    return conversation(name, said, reported, instruction=system, tools=tools)


def recorded(n: int = 20, *, n_messages: int = 20, **rules):
    """Conversations whose steps bring one, two or more messages: else overhead and text can't be told apart."""
    return [with_usage(f"u{i}", texts(n_messages, seed=i, longest=8), **rules) for i in range(n)]


def test_ratio_and_overhead_per_message_are_found_again():
    """WB-CAL-03."""
    found = calibrate_usage(recorded())
    assert found.ratio == pytest.approx(1.5, rel=0.01)
    assert found.interval[0] <= found.ratio <= found.interval[1]
    assert found.per_message == pytest.approx(4, abs=0.3)
    assert found.per_request == pytest.approx(3, abs=2)
    assert found.error < 0.05
    assert (found.calls, found.steps, found.left_out) == (200, 180, 0)
    assert found.counter() == {"kind": "runes", "runes_per_token": round(found.ratio, 3)}
    assert found.billing()["per_message"] == 4
    assert found.safe_ratio <= found.ratio


def test_the_overhead_per_tool_schema_is_found_again():
    """WB-CAL-03."""
    mixed = [
        with_usage(f"u{i}", texts(20, seed=i, longest=8), tools=TOOLS[: i % 4], per_tool=30, per_request=12)
        for i in range(24)
    ]
    found = calibrate_usage(mixed)
    assert found.per_tool == pytest.approx(30, abs=2)
    assert found.per_request == pytest.approx(12, abs=3)


def test_what_can_not_be_told_apart_is_none_with_a_warning():
    """WB-CAL-03: equal tools everywhere, no system message, a prompt that the recording lacks."""
    equal = calibrate_usage(recorded(tools=TOOLS[:2]))
    assert equal.per_tool is None
    assert any("offer 2 tools" in warning for warning in equal.warnings)
    silent = calibrate_usage(recorded(system=""))
    assert (silent.per_tool, silent.per_request) == (None, None)
    assert any("no system message" in warning for warning in silent.warnings)
    hidden = calibrate_usage(recorded(hidden=5000))
    assert hidden.ratio == pytest.approx(1.5, rel=0.01), "a hidden prompt doesn't touch the ratio"
    assert hidden.per_request == pytest.approx(5003, abs=3)
    assert any("hidden prompt" in warning for warning in hidden.warnings)
    level = [with_usage(f"u{i}", ["好" * 30, "是" * 30] * 10) for i in range(12)]
    found = calibrate_usage(level)
    assert found.per_message is None
    assert "per message" in found.warnings[0]


def test_steps_that_text_does_not_explain_are_left_out_and_counted():
    """WB-CAL-03: the context was edited, or something came in that the recording lacks."""
    kept = recorded(19)
    odd = with_usage("odd", texts(20, seed=99, longest=8))
    reported = [usage.prompt_tokens for usage in odd.usage.values()]
    for place in range(4, len(reported)):
        reported[place] += 90_000  # an attachment from here on
    reported[7] = 10  # the history was dropped for one call
    edited = conversation("odd", [m.content for m in odd.messages], reported, instruction=SYSTEM)
    found = calibrate_usage([*kept, edited])
    assert found.ratio == pytest.approx(1.5, rel=0.01)
    assert found.left_out == 3


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_calls_with_usage_are_an_error(n):
    """WB-CAL-03."""
    with pytest.raises(NotEnoughDataError) as caught:
        calibrate_usage([*recorded(n), *conversations(5)])
    assert (caught.value.have, caught.value.need) == (9 * n, 20)


def test_usage_by_a_real_tokenizer_gives_that_tokenizer_s_ratio(tmp_path, shared_path):
    """WB-CAL-03, WB-DATA-02: real Chinese dialogues, billed by o200k_base with 4 tokens per message; through files."""
    counter = TiktokenCounter("o200k_base")
    lines, chars, tokens = [], 0, 0
    for one in list(load_recordings(shared_path / "data" / "kdconv"))[:60]:
        messages: list[dict] = [{"role": "system", "content": SYSTEM}]
        total = counter.count_text(SYSTEM) + 4
        for message in one.messages:
            entry = {"role": message.role, "content": message.content}
            if message.role == "assistant":
                entry["usage"] = {"prompt_tokens": total, "completion_tokens": 1, "total_tokens": total + 1}
            messages.append(entry)
            total += counter.count_text(message.content) + 4
            chars += len(message.content)
            tokens += counter.count_text(message.content)
        lines.append(json.dumps({"id": one.id, "messages": messages}, ensure_ascii=False))
    path = tmp_path / "billed.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = calibrate_usage(load_recordings(path))
    assert found.ratio == pytest.approx(chars / tokens, rel=0.04)
    assert found.per_message == pytest.approx(4, abs=1)
    assert found.interval[0] - 0.03 < chars / tokens < found.interval[1] + 0.03


def test_a_calibration_from_usage_comes_back_from_its_file(tmp_path):
    """WB-CAL-05."""
    found = calibrate_usage([one.replace(model="m-1") for one in recorded(tools=TOOLS[:1])], seed=3)
    for name in ("u.toml", "u.json"):
        loaded = load_calibration(save_calibration(found, tmp_path / name))
        assert calibration_values(loaded) == calibration_values(found)
    assert found.model == "m-1"
    assert "m-1" in repr(found)
    with pytest.raises(ConfigError, match="runes, safe"):
        found.counter("scripts")


def test_the_order_of_conversations_does_not_matter_to_the_fit():
    """WB-CAL-03."""
    rows = recorded()
    shuffled = Random(1).sample(rows, len(rows))
    assert calibrate_usage(rows).ratio == pytest.approx(calibrate_usage(shuffled).ratio)
