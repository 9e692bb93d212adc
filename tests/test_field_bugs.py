"""Faults that users of comparable systems reported, with the input that would bring them out here (bugs.md).

Those that aren't here stand beside the code that they are about; `grep BUG-` finds them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import recorded
from tests.report.test_plots import steps_of
from tests.service.helpers import Watch, say, service_of, session_with
from workbench.config import RunConfig
from workbench.evaluate.compare import compare
from workbench.evaluate.cost import cost_of
from workbench.evaluate.lint import Finding, lint
from workbench.evaluate.providers import PROVIDERS, CacheSimulation, Sent
from workbench.evaluate.summary_checks import check_summaries
from workbench.model.scripted import ScriptedModel
from workbench.recordings import Recordings
from workbench.replay.cache import PrefixTree, part_text
from workbench.replay.conversation import replay_conversation
from workbench.replay.explain import explain_check
from workbench.replay.replay import replay
from workbench.replay.trace import TABLES
from workbench.report import tokens_per_call, trigger_value
from workbench.report.comparison import comparison_text
from workbench.service.run_sync import run_sync
from workbench.session.types import SessionKey
from workbench.summary.summarizer import Summarizer
from workbench.tokens import SimpleTokenCounter

__all__ = ["recorded"]
Load = Callable[..., Recordings]


@dataclass(frozen=True)
class Replayed:
    """Conversations pushed through the engine under one configuration; the rows stay in memory."""

    name: str
    config: RunConfig
    tables: dict[str, list[dict[str, Any]]]
    requests: tuple[Any, ...]

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        return [row for row in self.tables[table] if conversation in (None, row["conversation"])]


def replayed(recordings: Recordings, **values: Any) -> Replayed:
    """With summaries in the prompt; both counters take each code point for a token unless told otherwise."""
    values.setdefault("billing", {"encoding": "runes:1"})
    values.setdefault("counter", {"runes_per_token": 1.0})
    values.setdefault("agent", {"add_session_summary": True})
    if "trigger" in values:
        values.setdefault("summarizer", {})
    config = RunConfig.from_values({"name": "today", **values})
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    requests: list[Any] = []
    for conversation in recordings:
        trace = replay_conversation(
            conversation, config, on_sent=lambda _, sent: requests.append(tuple(sent.request.messages))
        )
        for name, rows in trace.rows.items():
            tables[name] += [dict(zip(TABLES[name].column_names, row, strict=True)) for row in rows]
    return Replayed(config.name, config, tables, tuple(requests))


def turns(*texts: tuple[str, str], ident: str = "c", **fields: Any) -> dict[str, Any]:
    return {"id": ident, "messages": [{"role": role, "content": text} for role, text in texts], **fields}


def findings(run: Replayed) -> dict[str, Finding]:
    return {found.rule: found for found in lint(run).findings}


def chinese(n_chars: int, seed: int = 0) -> str:
    """Han characters without repetition of any length."""
    generator = random.Random(seed)
    return "".join(chr(generator.randint(0x4E00, 0x9FA5)) for _ in range(n_chars))


def sized_part(role: str, n_tokens: int, mark: str = "x") -> str:
    """A text whose message is so many code points as a part of a request."""
    return mark + "x" * (n_tokens - len(mark) - len(f"<|{role}|>\n\n"))


# --- triggers and counting -----------------------------------------------------------------------------


def test_bug_01_usage_that_a_recording_reports_never_enters_the_trigger(recorded: Load) -> None:
    """BUG-01: 480 code points of new text are 120 tokens and what the authors' labels add, whatever was billed."""
    decisions = []
    for factor in (1, 3):
        messages = []
        for i in range(40):
            usage = {
                "prompt_tokens": 1600 * factor,
                "completion_tokens": 12 * factor,
                "total_tokens": 1612 * factor,
            }
            messages.append({"role": "user", "content": "继续"})
            messages.append({"role": "assistant", "content": f"好的，这是第{i:02d}段。", "usage": usage})
        run = replayed(
            recorded({"id": "c", "messages": messages}), trigger={"token": 4000}, counter={"runes_per_token": 4.0}
        )
        assert {row["recorded_prompt_tokens"] for row in run.rows("calls")} == {1600 * factor}
        rows = run.rows("checks")
        assert [row["fired"] for row in rows] == [False] * 80
        assert 120 <= max(row["value"] for row in rows) < 400
        decisions.append([(row["fired"], row["value"], row["reason"]) for row in rows])
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize(("ratio", "tokens", "fires"), [(1.6, 10_000, True), (4.0, 4_000, False)])
def test_bug_02_trigger_compaction_tailoring_and_figure_count_alike(
    recorded: Load, ratio: float, tokens: int, fires: bool
) -> None:
    """BUG-02: 16,000 characters against a limit of 8,000 tokens, and the record says what counted them."""
    counter = {"runes_per_token": ratio}
    text = chinese(16_000)
    recordings = recorded(turns(("user", text), ("assistant", "好"), ("user", "再来"), ("assistant", "好")))
    run = replayed(recordings, trigger={"token": 8000}, counter=counter)
    first = run.rows("checks")[0]
    assert first["fired"] is fires
    assert first["value"] == pytest.approx(tokens, rel=0.01)
    (check,) = json.loads(first["detail"])
    assert check["counter"] == f"runes:{ratio:g}"
    assert f"counted by runes:{ratio:g}" in explain_check(first)

    # The figure draws the values of these checks.
    (axes, *_) = trigger_value({"today": run}).axes
    drawn = list(steps_of(axes, "value").get_data().values)
    assert drawn == [row["value"] for row in run.rows("checks")]

    call = {"id": "k1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "读"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "k1", "name": "read", "content": text},
        {"role": "assistant", "content": "好"},
    ]
    compaction = {"enabled": True, "tool_result_max_tokens": 100_000, "oversized_tool_result_max_tokens": 8000}
    run = replayed(recorded({"id": "c", "messages": messages}), compaction=compaction, counter=counter)
    rewritten = run.rows("compactions")
    assert [row["tokens_before"] for row in rewritten] == ([tokens] if fires else [])

    pairs = [("user", chinese(4000, i)) if i % 2 == 0 else ("assistant", chinese(4000, i)) for i in range(4)]
    recordings = recorded(turns(*pairs, ("user", "好"), ("assistant", "好")))
    run = replayed(recordings, tailoring={"enabled": True, "max_input_tokens": 8000}, counter=counter)
    assert (run.rows("calls")[-1]["tailored_tokens"] > 0) is fires


@pytest.mark.parametrize(("ratio", "fires"), [(1.6, True), (4.0, False)])
def test_bug_02_a_counter_set_after_the_session_was_loaded_holds(ratio: float, fires: bool) -> None:
    """BUG-02: the session is there first, with counts already asked for; then comes the summarizer."""

    async def main() -> bool:
        service = service_of(ScriptedModel(["s"]))
        session = await session_with(service, say(1, chinese(16_000)))
        before = Summarizer(ScriptedModel(["s"]), token_threshold=8000, token_counter=SimpleTokenCounter(2.5))
        assert await before.should_summarize(session) is False
        after = Summarizer(ScriptedModel(["s"]), token_threshold=8000, token_counter=SimpleTokenCounter(ratio))
        return await after.should_summarize(session)

    assert run_sync(main()) is fires


def test_bug_05_a_threshold_out_of_reach_is_named_with_the_largest_that_is_not(recorded: Load) -> None:
    """BUG-05: 12 sessions, none with more than 8,000 new tokens, against a threshold of 100,000."""
    sessions = [turns(("user", "字" * (7981 - 200 * i)), ("assistant", "好"), ident=f"s{i}") for i in range(12)]
    run = replayed(recorded(*sessions), trigger={"token": 100_000})
    largest = int(max(row["value"] for row in run.rows("checks")))
    found = findings(run)["never-fires"]
    assert found.severity == "warning"
    assert largest == 8_000
    assert "never fires on this corpus: 0 of 12 conversations" in found.text
    assert "largest delta 8,000" in found.text
    assert "the largest threshold that fires is 7,999" in found.text

    reachable = found.evidence["largest_reachable_threshold"]
    assert [
        sum(row["fired"] for row in replayed(recorded(*sessions), trigger={"token": int(limit)}).rows("checks")) > 0
        for limit in (reachable, reachable + 1)
    ] == [True, False]


def test_bug_07_a_share_of_the_window_is_shown_in_tokens_firings_and_money_for_each_model(recorded: Load) -> None:
    """BUG-07: half of each window but never under the minimum, compared with "greater than"."""
    recordings = recorded(turns(*[(role, "字" * 1000) for _ in range(52) for role in ("user", "assistant")]))
    limits, firings, costs = [], [], []
    for window in (3_000, 100_000, 200_000, 1_000_000):
        run = replayed(
            recordings,
            trigger={"context": {"ratio": 0.5}},
            model={"context_window": window},
            cache={"provider": "openai"},
            prices={"main": {"input": 2.0, "output": 8.0}},
            summaries={"source": "sized", "sized_tokens": 300},
        )
        rows = run.rows("checks")
        assert {row["context_window"] for row in rows} == {window}
        (limit,) = {row["threshold"] for row in rows}
        assert all(row["fired"] == (row["value"] > limit) for row in rows)
        limits.append(limit)
        firings.append(sum(row["fired"] for row in rows))
        costs.append(cost_of(run).cost)
        table = findings(run)["share-of-window"].evidence["limits"]
        assert (table[str(window)], table["1000000"]) == (limit, 500_000)
    assert limits == [2_000, 50_000, 100_000, 500_000]
    assert firings[0] > firings[1] > firings[2] > firings[3] == 0
    assert len({round(cost, 6) for cost in costs}) == 4

    unknown = replayed(recordings, trigger={"context": {"ratio": 0.5}}, model={"name": "my-ft"})
    assert {row["context_window"] for row in unknown.rows("checks")} == {8192}
    found = findings(unknown)["share-of-window"]
    assert "the model's window isn't known, so the fallback of 8,192 was taken here" in found.text
    assert "isn't known" not in findings(run)["share-of-window"].text


def test_bug_08_an_overflow_that_comes_before_the_trigger_is_a_warning_and_a_band_of_the_figure(
    recorded: Load,
) -> None:
    """BUG-08: system 3,000, tools 12,000, 3,500 new tokens; window 16,000, threshold 4,000."""
    parameters = {"type": "object", "properties": {}}
    tools = [
        {"type": "function", "function": {"name": f"t{i:02d}", "description": "d" * 187, "parameters": parameters}}
        for i in range(40)
    ]
    conversation = turns(
        ("system", sized_part("system", 3000)),
        ("user", sized_part("user", 3400)),
        ("assistant", "a" * 50),
        ("user", "q" * 20),
        ("assistant", "ok"),
        tools=tools,
    )
    run = replayed(recorded(conversation), trigger={"token": 4000}, model={"context_window": 16_000})
    checks, calls = run.rows("checks"), run.rows("calls")
    assert 3_400 < max(row["value"] for row in checks) < 3_700
    assert not any(row["fired"] for row in checks)
    last = calls[-1]
    assert last["system_tokens"] == 3_000
    assert last["schema_tokens"] == pytest.approx(12_000, rel=0.05)
    assert last["prompt_tokens"] == pytest.approx(18_500, rel=0.05)
    assert last["overflow"]

    found = findings(run)["overflow-first"]
    assert found.severity == "warning"
    assert "the window overflows before the trigger fires in 1 conversation" in found.text
    assert found.evidence["fixed_tokens"] == last["system_tokens"] + last["schema_tokens"]
    roomy = replayed(recorded(conversation), trigger={"token": 4000}, model={"context_window": 20_000})
    assert "overflow-first" not in findings(roomy)

    (axes, *_) = tokens_per_call({"today": run}).axes
    fixed = steps_of(axes, "system and schemas").get_data()
    heights = [top - bottom for top, bottom in zip(fixed.values, fixed.baseline, strict=True)]
    assert heights[-1] == found.evidence["fixed_tokens"]
    top = max(patch.get_data().values.max() for patch in axes.patches if hasattr(patch, "get_data"))
    assert top >= last["prompt_tokens"] > 16_000


# --- what is kept --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "cut"), [(4.0, False), (1.0, True)])
def test_bug_14_an_oversized_result_is_cut_between_code_points(recorded: Load, ratio: float, cut: bool) -> None:
    """BUG-14: 20,000 characters, an emoji and a combining accent at the end; limit 8,192 tokens.

    What is kept and the marker's number make up the whole but for the marker's own length (ASM-CMP-43).
    """
    long = "汉" * 20_000 + "🙂e\u0301"
    call = {"id": "k1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "读"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "k1", "name": "read", "content": long},
        {"role": "assistant", "content": "好"},
    ]
    compaction = {"enabled": True, "tool_result_max_tokens": 100_000, "oversized_tool_result_max_tokens": 8192}
    run = replayed(
        recorded({"id": "c", "messages": messages}), compaction=compaction, counter={"runes_per_token": ratio}
    )
    result = run.requests[1][-1]
    assert (result.tool_id, result.tool_name) == ("k1", "read")
    result.content.encode("utf-8")
    if not cut:
        assert result.content == long
        return
    head, rest = result.content.split("\n\n[... ", 1)
    marker, tail = rest.split("]\n\n", 1)
    assert long.startswith(head)
    assert long.endswith(tail)
    assert tail.endswith("🙂e\u0301")
    assert min(len(head), len(tail)) > 1_000
    inserted = len(result.content) - len(head) - len(tail)
    assert len(head) + len(tail) + int(marker.split(" ", 1)[0]) + inserted in {len(long), len(long) - 1}
    assert len(result.content) <= 8192


# --- the summary call ----------------------------------------------------------------------------------


def test_bug_17_nothing_left_to_summarise_makes_no_call_and_says_why() -> None:
    """BUG-17: one message of 2,000 characters, the newest event is skipped, 100 tokens are enough to fire."""
    model, watch = ScriptedModel(["never asked"]), Watch()

    async def main() -> str | None:
        summarizer = Summarizer(
            model,
            token_threshold=100,
            skip_recent=lambda events: 1,
            token_counter=SimpleTokenCounter(1.0),
        )
        service = service_of(summarizer=summarizer, observer=watch)
        session = await session_with(service, say(1, "字" * 2000))
        await service.create_session_summary(session)
        return await service.get_session_summary_text(session)

    assert not run_sync(main())
    assert model.requests == []
    (check,) = watch.checks
    assert check.trigger.fired is False
    assert check.trigger.stopped_by == "nothing to summarize in the selected events"
    assert watch.attempts == []


REFUSALS = [
    "请提供需要总结的对话内容。",
    "抱歉，我没有看到需要总结的对话，请您先发送聊天记录。",
    "Please provide the conversation you would like me to summarize.",
    "I don't see any conversation to summarise. Could you share the transcript?",
    "要約する会話の内容を提供してください。",
    "요약할 대화 내용을 제공해 주세요.",
]
SUMMARIES = [
    "用户请客服提供退款说明，客服已发送邮件。",
    "客户请求提供订单 7731 的发票内容清单，客服答应明天寄出。",
    "The customer asked whether the shop can provide an invoice; it was sent by e-mail.",
    "The agent asked the customer to please provide the text of the error message and said it can't help with refunds.",
    "利用者は請求書の再発行を希望し、担当者が手続きを案内した。",
    "고객이 주문 7731의 환불을 요청했고 상담원이 처리했다.",
]


def test_bug_17_a_model_that_asks_for_the_conversation_is_flagged(recorded: Load) -> None:
    """BUG-17, WB-RET-04: such an answer doesn't pass for a summary."""
    model = ScriptedModel(REFUSALS[:1])

    async def main() -> str | None:
        service = service_of(model, summary={"event_threshold": 0})
        session = await session_with(service, say(1, "订单 7731 到哪了？"), say(2, "已发货。", role="assistant"))
        await service.create_session_summary(session)
        found = await service.get_session(SessionKey("app", "user", "s"))
        assert found is not None
        return await service.get_session_summary_text(found)

    stored = run_sync(main())
    assert stored == REFUSALS[0]
    (conversation,) = recorded(turns(("user", "订单 7731 到哪了？"), ("assistant", "已发货。"))).load()
    texts = [stored, *REFUSALS, *SUMMARIES]
    rows = [
        {"summary": i, "status": "written", "text": text, "boundary_event_id": None} for i, text in enumerate(texts)
    ]
    flagged = [one.is_refusal for one in check_summaries(conversation, rows)]
    assert flagged == [True, *[True] * len(REFUSALS), *[False] * len(SUMMARIES)]
    assert "refusal" in check_summaries(conversation, rows)[0].faults


def test_bug_19_braces_of_a_conversation_stay_as_they_are() -> None:
    """BUG-19: placeholders of a conversation are text, and no brace is doubled or lost."""
    text = '{"a": {"b": 1}} {previous_summary} {conversation_text} {{x}} {0} %s $y'
    model = ScriptedModel(["first summary", "second summary"])

    async def main() -> None:
        service = service_of(summarizer=Summarizer(model, event_threshold=0, max_summary_words=50))
        session = await session_with(service, say(1, text), say(2, "ok", role="assistant"))
        await service.create_session_summary(session)
        await service.append_event(session, say(3, text))
        await service.append_event(session, say(4, "ok", role="assistant"))
        await service.create_session_summary(session)

    run_sync(main())
    assert len(model.requests) == 2
    for request, earlier in zip(model.requests, (0, 1), strict=True):
        sent = "\n".join(message.content for message in request.messages)
        assert sent.count(text) == 1
        assert sent.count("first summary") == earlier


# --- prompt cache and price ----------------------------------------------------------------------------


@pytest.mark.parametrize(("common", "reused"), [(1_000, 0), (1_023, 0), (1_024, 1_024), (1_200, 1_152), (2_047, 1_920)])
def test_bug_20_reuse_is_measured_over_the_whole_prefix(common: int, reused: int) -> None:
    """BUG-20: two requests of several messages each; the rule is 1,024 and steps of 128."""
    tree = PrefixTree(SimpleTokenCounter(1.0))
    size = common // 4
    shared = ["s" * size, "u" * size, "a" * size, "t" * (common - 3 * size)]
    assert tree.observe(0, [*shared, "one thing" * 100]) is None
    prefix = tree.observe(4, ["another" * 100])
    assert prefix is not None
    assert prefix.tokens == common
    second = Sent(10**9, common + 700, prefix_tokens=prefix.tokens, prefix_call=0, recent_tokens=prefix.recent_tokens)
    for name, expected in (("openai", reused), ("gemini", 0)):
        rule = PROVIDERS[name]
        cache = CacheSimulation(rule)
        cache.call(Sent(0, common + 900))
        assert cache.call(second).cached == expected
        assert rule.source
        assert rule.date
    assert (PROVIDERS["openai"].min_tokens, PROVIDERS["openai"].block_tokens) == (1024, 128)
    assert PROVIDERS["gemini"].min_tokens == 4096


def long_then_short(recorded: Load) -> Recordings:
    """System 2,000; history 40,000 in four messages; a tail of 10,000 in two; one more turn."""
    sizes = [10_000] * 4 + [5_000] * 2 + [100, 20]
    texts = [
        (role, sized_part(role, n, str(i))) for i, n in enumerate(sizes) for role in [("user", "assistant")[i % 2]]
    ]
    return recorded(turns(("system", sized_part("system", 2000)), *texts))


LAYOUT: dict[str, Any] = {
    "billing": {"encoding": "runes:1"},
    "counter": {"runes_per_token": 1.0},
    "trigger": {"event": 5},
    "summarizer": {"skip_recent": 2},
    "summaries": {"source": "sized", "sized_tokens": 500},
    "cache": {"provider": "anthropic", "min_tokens": 0},
    "prices": {"main": {"input": 10.0, "output": 50.0}},
}


def test_bug_22_layouts_differ_in_what_is_written_again(recorded: Load, tmp_path: Path) -> None:
    """BUG-22, WB-CACHE-03: behind the system message the summary spares it, inside it nothing is spared."""
    configs = [
        RunConfig.from_values(
            {"name": mode, "agent": {"add_session_summary": True, "summary_injection_mode": mode}, **LAYOUT}
        )
        for mode in ("user", "system")
    ]
    runs = replay(long_then_short(recorded), configs, runs=tmp_path, progress=False)
    last = {name: run.rows("calls")[-1] for name, run in runs.items()}
    uses = {name: run.cost.main_calls[-1].use for name, run in runs.items()}
    for name, reused in (("user", 2_000), ("system", 0)):
        row, use = last[name], uses[name]
        assert row["history_tokens"] == 10_000
        assert 500 < row["summary_tokens"] < 800  # 500 and the frame around it
        assert row["prompt_tokens"] == 2_000 + row["summary_tokens"] + 10_000 + 100
        assert (use.cached, use.written) == (reused, row["prompt_tokens"] - reused)
        assert row["break_cause"] == use.cause == "summary_appeared"
    # The first message that differs: the one behind the system message, or that one itself.
    assert (last["user"]["break_part"], last["system"]["break_part"]) == (1, 0)
    assert uses["system"].lost - uses["user"].lost >= 2_000
    ranked = sorted(runs, key=lambda name: runs[name].cost.cost)
    assert ranked == ["user", "system"]


def test_bug_22_a_provider_that_matches_whole_blocks_of_tokens_spares_the_old_system_text(recorded: Load) -> None:
    """BUG-22: not every provider needs whole messages; the summary stands behind the instruction."""
    values = {**LAYOUT, "cache": {"provider": "openai"}}
    run = replayed(long_then_short(recorded), **values)
    use = cost_of(run).main_calls[-1].use
    assert use.cached == 1_920  # 2,000 in steps of 128
    assert run.rows("calls")[-1]["partial_tokens"] == 2_000


def test_bug_23_smaller_prompts_with_a_higher_bill_are_called_that(recorded: Load, tmp_path: Path) -> None:
    """BUG-23: 17 calls that grow to 17,000 tokens, reads at a tenth, a summary at each second call."""
    texts = [(role, sized_part(role, 500, f"{i:02d}")) for i in range(17) for role in ("user", "assistant")]
    money = {
        "prices": {"main": {"input": 10.0, "output": 50.0, "cache_read": 1.0, "cache_write": 10.0}},
        "cache": {"provider": "openai", "min_tokens": 0, "block_tokens": 1},
        "billing": {"encoding": "runes:1"},
        "counter": {"runes_per_token": 1.0},
    }
    configs = [
        RunConfig.from_values({"name": "no compaction", **money}),
        RunConfig.from_values(
            {
                "name": "each second call",
                "trigger": {"event": 3},
                "summarizer": {},
                "agent": {"add_session_summary": True},
                "summaries": {"source": "sized", "sized_tokens": 400},
                **money,
            }
        ),
    ]
    runs = replay(recorded(turns(*texts)), configs, runs=tmp_path, progress=False)
    plain, eager = runs["no compaction"], runs["each second call"]
    assert [row["prompt_tokens"] for row in plain.rows("calls")][-1] == 16_500
    assert eager.facts["firings"] == 8
    found = compare(runs)
    (verdict,) = found.verdicts
    assert (verdict.reference, verdict.verdict) == ("no compaction", "smaller, but dearer")
    assert verdict.break_even.call is None
    text = " ".join(comparison_text(found).split())
    assert "smaller, but dearer; prompt tokens −81 %, money +39 %." in text
    assert "+15.1k (+52 %)" in text
    assert "It pays in no conversation of these recordings" in text

    # The same in money, by hand: each prompt repeats the one before it, 1,000 tokens are new.
    prompts = [500 + 1000 * i for i in range(17)]
    by_hand = sum(10.0 * (b - a) + 1.0 * a for a, b in zip([0, *prompts], prompts, strict=False))
    answers = 17 * 500 * 50.0
    assert plain.facts["cost"] * 1e6 == pytest.approx(by_hand + answers)
    assert eager.cost.summary_cost > 0
    assert eager.facts["cost"] > plain.facts["cost"] > eager.facts["cost"] - eager.cost.summary_cost


def test_parts_are_as_long_as_the_tests_above_make_them() -> None:
    from workbench.model.types import Message

    assert len(part_text(Message(role="user", content=sized_part("user", 500, "q")))) == 500
