"""The bundled recordings hold what their README files promise, and the generator is one rule, not a dice."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from workbench.clock import ns_from_text
from workbench.errors import ConfigError
from workbench.recordings import load_recordings
from workbench.recordings.generate import generate_conversation, write_generated

ROOT = Path(__file__).resolve().parent.parent / "datasets"
CHAT_FOLDERS = ("zh-service", "zh-en-coding", "en-research", "ja-support", "ko-support")
FOLDERS = (*CHAT_FOLDERS, "multi-agent")
MAX_BYTES = 1_500_000
LANGUAGES = ("zh", "en", "mixed", "ja", "ko")

MACHINE_PATHS = re.compile(
    r"/home/|/Users/|/var/folders|/tmp/tmp|site-packages|[A-Z]:\\\\"
)  # this one's: test_repository.py
ADDRESSES = re.compile(r"[\w.+-]+@([\w-]+(?:\.[\w-]+)+)")
LINKS = re.compile(r"https?://([\w.-]+)")

Json = dict[str, Any]


def json_lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def chats() -> list[Json]:
    return [chat for folder in CHAT_FOLDERS for chat in json_lines(ROOT / folder / "conversations.jsonl")]


def text_of(message: Json) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join([message["content"] or "", *(call["function"]["arguments"] for call in calls)])


def by_id(rows: list[Json]) -> dict[str, Json]:
    return {row["id"]: row for row in rows}


CHATS = chats()
CHAT_IDS = [chat["id"] for chat in CHATS]


def faults_of(messages: list[Json]) -> list[str]:
    """What is wrong with the order of roles, calls and results."""
    faults = []
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        role = message["role"]
        if (role == "system") != (index == 0):
            faults.append(f"{index}: system message out of place")
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                faults.append(f"{index}: a result without a call")
            else:
                open_calls.remove(message["tool_call_id"])
        elif open_calls:
            faults.append(f"{index}: calls without a result before it")
        if role == "assistant":
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
            if not open_calls and not message["content"]:
                faults.append(f"{index}: an empty answer")
        if role == messages[index - 1]["role"] == "user":
            faults.append(f"{index}: two user messages in a row")
    return faults


def test_every_data_file_is_in_the_checksum_list_and_unchanged():
    """WB-DATA-01."""
    listed = dict(reversed(line.split("  ")) for line in (ROOT / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
    found = {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in ROOT.rglob("*")
        if path.suffix in {".jsonl", ".json"}
    }
    assert found == listed


def test_the_data_stay_small():
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < MAX_BYTES


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_where_its_data_come_from(folder: str):
    """WB-DATA-01."""
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    for promise in (
        "## Origin",
        "No sentence comes from a third party",
        "Licence: MIT",
        "## Size",
        "probes.jsonl",
        "SHA256SUMS",
    ):
        assert promise in text


def test_the_index_counts_right():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for conversation in load_recordings(ROOT):
        row = next(line for line in text.splitlines() if f"`{conversation.id}`" in line)
        n_leading = 0 if conversation.format == "workbench" else 1  # the chat form counts its system message
        counts = [
            n_leading + sum(1 for _ in conversation.messages),
            len(conversation.requests),
            len(conversation.calls),
            sum(message.role == "tool" for message in conversation.messages),
        ]
        assert [int(cell) for cell in row.split("|")[3:7]] == counts


def test_the_loader_reads_every_folder_without_a_problem():
    """WB-DATA-01."""
    recordings = load_recordings(ROOT)
    conversations = list(recordings)
    assert not recordings.problems
    assert {conversation.id for conversation in conversations} == {*CHAT_IDS, "multi-agent-01"}
    assert not any(conversation.assumed_time for conversation in conversations)


@pytest.mark.parametrize("chat", CHATS, ids=CHAT_IDS)
def test_roles_calls_and_results_fit_together(chat: Json):
    assert faults_of(chat["messages"]) == []
    assert chat["messages"][-1]["role"] == "assistant"
    call_ids = [call["id"] for message in chat["messages"] for call in message.get("tool_calls") or ()]
    assert len(call_ids) == len(set(call_ids))


@pytest.mark.parametrize("chat", CHATS, ids=CHAT_IDS)
def test_calls_use_the_tools_as_declared(chat: Json):
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in chat["tools"]}
    for message in chat["messages"]:
        for call in message.get("tool_calls") or ():
            schema = schemas[call["function"]["name"]]
            arguments = json.loads(call["function"]["arguments"])
            assert set(schema["required"]) <= set(arguments) <= set(schema["properties"])


@pytest.mark.parametrize("chat", CHATS, ids=CHAT_IDS)
def test_time_never_stands_still_or_runs_back(chat: Json):
    times = [ns_from_text(message["timestamp"]) for message in chat["messages"]]
    assert all(earlier < later for earlier, later in pairwise(times))


@pytest.mark.parametrize("folder", CHAT_FOLDERS)
def test_probes_point_at_messages_that_hold_the_answer(folder: str):
    """WB-RET-02."""
    conversations = by_id(json_lines(ROOT / folder / "conversations.jsonl"))
    probes = json_lines(ROOT / folder / "probes.jsonl")
    assert {probe["conversation"] for probe in probes} == set(conversations)
    for probe in probes:
        messages = conversations[probe["conversation"]]["messages"]
        source, needed = messages[probe["source_index"]], messages[probe["needed_index"]]
        assert probe["question"]
        assert probe["answer"] in text_of(source), probe
        assert probe["answer"] in text_of(needed), probe
        assert needed["role"] == "assistant", probe
        assert 0 < probe["source_index"] < probe["needed_index"] - 5, probe


def test_probes_of_the_native_recording_count_events():
    """WB-RET-02."""
    (conversation,) = load_recordings(ROOT / "multi-agent")
    for probe in json_lines(ROOT / "multi-agent" / "probes.jsonl"):
        source, needed = (conversation.events[probe[key]] for key in ("source_index", "needed_index"))
        for event in (source, needed):
            texts = [m.content for m in event.messages] + [c.arguments for m in event.messages for c in m.tool_calls]
            assert probe["answer"] in "\n".join(texts), probe


def test_names_of_conversations_and_probes_are_unique():
    probes = [probe["id"] for folder in FOLDERS for probe in json_lines(ROOT / folder / "probes.jsonl")]
    assert len(probes) == len(set(probes))
    assert len(CHAT_IDS) == len(set(CHAT_IDS))


def test_the_main_recordings_have_the_promised_shape():
    """WB-DATA-01: several days, large tool results, a long tool loop in one request, several filter keys."""
    conversations = {conversation.id: conversation for conversation in load_recordings(ROOT)}
    service = conversations["zh-service-01"]
    assert len(service.calls) >= 55
    assert service.duration_s > 7 * 86_400
    results = [len(message.content) for message in conversations["zh-en-coding-01"].messages if message.role == "tool"]
    assert sum(size > 2_900 for size in results) >= 4
    loop = conversations["en-research-01"].requests[0]
    assert sum(len(message.tool_calls) for event in loop.answers for message in event.messages) >= 25
    keys = {event.filter_key for event in conversations["multi-agent-01"].events}
    assert keys == {"tripdesk", "tripdesk/transport", "tripdesk/lodging", "tripdesk/catering"}


def test_nothing_points_at_a_machine_or_a_person():
    """No paths of the machine that made the data; addresses and links only of example.com."""
    for path in ROOT.rglob("*"):
        if not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_text(encoding="utf-8").replace("\\n", "\n")  # line ends of JSON texts
        if path.suffix != ".py":
            assert not MACHINE_PATHS.search(text), path
        for domain in (*ADDRESSES.findall(text), *LINKS.findall(text)):
            assert domain == "example.com" or domain.endswith(".example.com"), (path, domain)


# --- tool results of the coding recordings -------------------------------------------------------------


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    path = ROOT / "zh-en-coding" / "make_tool_results.py"
    spec = importlib.util.spec_from_file_location("make_tool_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def fresh_and_stored(maker: ModuleType, number: int) -> list[tuple[str, str]]:
    conversation = json_lines(maker.RECORDING)[number]
    project = json.loads(maker.PROJECTS.read_text(encoding="utf-8"))[conversation["id"]]
    plain = [
        (maker.UNSTABLE.sub("", fresh), maker.UNSTABLE.sub("", conversation["messages"][index]["content"]))
        for index, fresh in maker.refresh(conversation, project)
    ]
    assert plain
    return plain


def test_tool_results_without_a_test_run_can_be_made_again(maker: ModuleType):
    """WB-DATA-01: made by running real commands on real files."""
    for fresh, stored in fresh_and_stored(maker, 1):
        assert fresh == stored


@pytest.mark.slow
def test_tool_results_with_test_runs_can_be_made_again(maker: ModuleType):
    """WB-DATA-01: made by running real commands on real files."""
    for fresh, stored in fresh_and_stored(maker, 0):
        assert fresh == stored


# --- generator ------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes():
    """WB-DATA-01."""
    first, second = (json.dumps(generate_conversation(n_events=400, seed=3, language="mixed")) for _ in range(2))
    assert first == second
    assert hashlib.sha256(first.encode()).hexdigest() == GENERATED_SHA256


GENERATED_SHA256 = "688df9691cc075f47fd868ee1b83077a9f096ba45a928907627bfe92c4e47c5b"
"""Of 400 events from seed 3: a change means that recordings quoted by their seed are other recordings now."""


def test_another_seed_gives_another_conversation():
    one, two = (generate_conversation(n_events=40, seed=seed, language="en")["messages"] for seed in (1, 2))
    assert one != two


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("n_events", [0, 1, 2, 3, 4, 5, 99, 1000])
def test_a_generated_conversation_has_the_asked_length_and_a_sane_order(language: str, n_events: int):
    chat = generate_conversation(n_events=n_events, seed=n_events, language=language)  # type: ignore[arg-type]
    assert len(chat["messages"]) == n_events + 1
    assert faults_of(chat["messages"]) == []
    times = [ns_from_text(message["timestamp"]) for message in chat["messages"]]
    assert all(earlier < later for earlier, later in pairwise(times))


def test_ten_thousand_events_take_less_than_two_seconds():
    """WB-DATA-01."""
    start = time.process_time()
    chat = generate_conversation(n_events=10_000, seed=1)
    assert time.process_time() - start < 2.0
    assert len(chat["messages"]) == 10_001


def test_facts_come_back_long_after_they_were_said():
    messages = generate_conversation(n_events=6000, seed=5, language="zh")["messages"]
    places: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        if message["role"] in {"user", "assistant"}:
            for case in re.findall(r"[A-Z]{2}\d{6}-\d{5}", message["content"] or ""):
                places.setdefault(case, []).append(index)
    assert sum(found[-1] - found[0] > 1000 for found in places.values()) > 100


def test_generated_gaps_reach_from_seconds_to_days():
    messages = generate_conversation(n_events=2000, seed=5)["messages"]
    times = [ns_from_text(message["timestamp"]) for message in messages]
    gaps_s = [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
    assert min(gaps_s) < 5
    assert max(gaps_s) > 86_400


def test_the_share_of_tool_turns_is_a_choice():
    def n_results(tool_share: float) -> int:
        messages = generate_conversation(n_events=1000, seed=9, tool_share=tool_share)["messages"]
        return sum(message["role"] == "tool" for message in messages)

    assert n_results(0.0) == 0
    assert 0 < n_results(0.3) < n_results(1.0)


def test_a_generated_file_is_read_back_as_recordings(tmp_path: Path):
    path = write_generated(tmp_path / "new" / "long.jsonl", n_events=50, seed=1, language="ja", n_conversations=2)
    recordings = load_recordings(path)
    assert [(c.id, len(c.events)) for c in recordings] == [("generated-ja-1", 50), ("generated-ja-2", 50)]
    assert not recordings.problems


@pytest.mark.parametrize(
    ("field", "value"), [("n_events", -1), ("language", "fr"), ("tool_share", 1.5)], ids=["length", "language", "share"]
)
def test_the_generator_names_a_wrong_argument(field: str, value: object):
    with pytest.raises(ConfigError, match=field):
        generate_conversation(**{"n_events": 1, "seed": 1, field: value})  # type: ignore[arg-type]
