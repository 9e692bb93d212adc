"""The formats of benchmarks, corpora and agents, each on small files and on the real ones."""

from __future__ import annotations

import json

import pytest

from tests.recordings.files import document, jsonl, say, texts
from workbench.clock import ns_from_text
from workbench.errors import RecordingError
from workbench.model.types import Usage
from workbench.recordings import format_names, load_recordings


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


def roles(conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def test_the_formats_are_listed_by_name():
    """WB-REC-02."""
    assert format_names() == (
        "workbench", "duckdb", "claude-code", "tau-bench", "swe-agent", "trpc", "otel-genai", "openai-responses", "sharegpt",
        "langchain", "anthropic", "openai-chat", "dialogue", "csv",
    )  # fmt: skip


# --- tau-bench -------------------------------------------------------------------------------------------


def test_results_of_tau_bench_are_named_after_task_and_trial(tmp_path):
    """WB-REC-02 `tau-bench`."""
    results = [
        {"task_id": 3, "trial": trial, "reward": 0.5, "info": {"x": 1}, "traj": [say("user"), say("assistant")]}
        for trial in (0, 1)
    ]
    recordings = load_recordings(document(tmp_path / "results.json", results, indent=2))
    assert [c.id for c in recordings] == ["task3-trial0", "task3-trial1"]
    assert recordings[0].metadata == {"task_id": 3, "trial": 0, "reward": 0.5}
    assert [c.line for c in recordings] == [2, 20]
    assert any("reward details" in loss for loss in recordings.losses)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"traj": 7}, "traj is a number, expected an array"),
        ([1], "expected an object, got an array of 1"),
        ({"traj": [say("narrator")]}, 'role "narrator"; expected system, user, assistant or tool'),
    ],
)
def test_a_broken_result_costs_only_itself(result, expected, tmp_path):
    """REL-11."""
    good = {"task_id": 1, "trial": 0, "traj": [say("user"), say("assistant")]}
    recordings = load_recordings(document(tmp_path / "results.json", [good, result], indent=2))
    assert texts(recordings) == [expected]
    assert len(recordings) == 1


# --- dialogue --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "printed"])
def test_crosswoz_is_an_object_of_dialogues_by_id(indent, tmp_path):
    """WB-REC-02 `dialogue`: the roles usr and sys are given."""
    messages = [
        {"role": "usr", "content": "你好", "dialog_act": []},
        {"role": "sys", "content": "您好", "sys_state": {}},
    ]
    value = {"11290": {"goal": [1], "messages": messages}, "11291": {"goal": [2], "messages": messages}}
    recordings = load_recordings(document(tmp_path / "woz.json", value, indent=indent))
    assert [(c.id, contents(c), roles(c)) for c in recordings] == [
        ("11290", ["你好", "您好"], "ua"),
        ("11291", ["你好", "您好"], "ua"),
    ]
    assert recordings.formats == {"dialogue": 2}
    assert any("annotations" in loss for loss in recordings.losses)


def test_kdconv_alternates_speakers_and_says_so(tmp_path):
    """WB-REC-02 `dialogue`."""
    value = [{"name": "长城", "messages": [{"message": "甲"}, {"message": "乙", "attrs": []}, {"message": "丙"}]}]
    recordings = load_recordings(document(tmp_path / "kd.json", value))
    assert roles(recordings[0]) == "uau"
    assert recordings[0].id == "kd-00001"
    assert any("turn about" in loss for loss in recordings.losses)


def persona_chat(**changes):
    utterances = [
        {"utterance_id": i, "interlocutor_id": speaker, "text": text, "timestamp": f"2022-08-09T00:4{i}:33.603000"}
        for i, (speaker, text) in enumerate([("AC", "こんばんは"), ("AG", "はい"), ("AC", "では")])
    ]
    return {"dialogue_id": 418, "interlocutors": ["AC", "AG"], "utterances": utterances, "evaluations": [], **changes}


def test_real_persona_chat_has_times_in_japan(tmp_path):
    """WB-REC-02 `dialogue`, B23: the corpus names no zone; the assumption is stated."""
    path = document(tmp_path / "00418.json", persona_chat(), indent=4)
    recordings = load_recordings(path)
    (conversation,) = recordings
    assert (conversation.id, roles(conversation)) == ("418", "uau")
    assert conversation.events[0].time_ns == ns_from_text("2022-08-09T00:40:33.603+09:00")
    assert not conversation.assumed_time
    assert any("+09:00" in loss for loss in recordings.losses)
    (moved,) = load_recordings(path, zone="UTC")
    assert moved.events[0].time_ns == ns_from_text("2022-08-09T00:40:33.603Z")


@pytest.mark.parametrize(
    "value",
    [
        {"dialog": ["a", "b", "c"]},
        {"turns": [{"speaker": "x", "utterance": "a"}, {"speaker": "y", "utterance": "b"}, {"speaker": "x", "utterance": "c"}]},
        {"conversation": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}]},
        {"utterances": [{"speaker": "USER", "text": "a"}, {"speaker": "SYSTEM", "text": "b"}, {"speaker": "USER", "text": "c"}]},
    ],
    ids=["texts", "speakers", "from", "names"],
)  # fmt: skip
def test_lists_of_utterances_under_usual_names_are_found(value, tmp_path):
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", value, value))
    assert recordings.formats == {"dialogue": 2}
    assert (contents(recordings[0]), roles(recordings[0])) == (["a", "b", "c"], "uau")


@pytest.mark.parametrize(
    ("rows", "mapping", "expected"),
    [
        ([{"q": "a", "a": "b"}, {"q": "c", "a": "d"}], "user=q,assistant=a", [("uaua", ["a", "b", "c", "d"])]),
        ([{"who": "X", "t": "a"}, {"who": "Y", "t": "b"}], "text=t,speaker=who", [("ua", ["a", "b"])]),
        ([{"who": "X", "t": "a"}, {"who": "Y", "t": "b"}], {"text": "t", "speaker": "who", "user": "Y"}, [("au", ["a", "b"])]),
        (
            [{"who": "X", "t": "a"}, {"who": "Y", "t": "b"}, {"who": "Z", "t": "c"}],
            "text=t,speaker=who,user=X|Z,assistant=Y",
            [("uau", ["a", "b", "c"])],
        ),
        ([{"d": 1, "t": "a"}, {"d": 1, "t": "b"}, {"d": 2, "t": "c"}], "text=t,id=d", [("ua", ["a", "b"]), ("u", ["c"])]),
        ([{"log": [{"m": {"t": "a"}}, {"m": {"t": "b"}}]}], "turns=log,text=m.t", [("ua", ["a", "b"])]),
        ([{"turns": [{"text": "a"}, {"text": "b"}]}], "text=text", [("ua", ["a", "b"])]),
    ],
    ids=["columns", "speakers", "one-side", "many-names", "grouped", "nested", "found-turns"],
)  # fmt: skip
def test_a_mapping_reads_any_rows(rows, mapping, expected, tmp_path):
    """WB-REC-02 `dialogue` with --map."""
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", *rows), map=mapping)
    assert [(roles(c), contents(c)) for c in recordings] == expected


def test_a_mapping_may_name_a_column_of_times(tmp_path):
    rows = [{"t": "a", "at": "2026-03-01T10:00:00Z"}, {"t": "b", "at": "2026-03-01T10:01:00Z"}]
    (conversation,) = load_recordings(jsonl(tmp_path / "a.jsonl", *rows), map="text=t,time=at")
    assert conversation.duration_s == 60


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": "b", "turns": [{"t": 7}]}, "message 1: content is a number, expected text or parts"),
        ({"id": "b", "turns": [{}]}, "message 1 has neither content nor tool calls"),
        ({"id": "b", "turns": ["x"]}, "expected an object, got a text"),
        ({"id": "b", "turns": 5}, "turns is a number, expected an array"),
        ([1, 2], "expected an object, got an array of 2"),
        ({"id": " ", "turns": [{"t": "a"}]}, "session id is empty"),
        (
            {"id": "b", "turns": [{"t": "a", "who": "nobody"}]},
            'role "nobody"; expected the user or the assistant of --map',
        ),
    ],
)
def test_rows_that_do_not_fit_the_mapping_cost_only_themselves(row, expected, tmp_path):
    """REL-11."""
    good = {"id": "a", "turns": [{"t": "a", "who": "X"}]}
    path = jsonl(tmp_path / "a.jsonl", good, row)
    recordings = load_recordings(path, map="turns=turns,text=t,id=id,speaker=who,user=X,assistant=Y")
    assert texts(recordings) == [expected]
    assert [c.id for c in recordings] == ["a"]


# --- swe-agent -------------------------------------------------------------------------------------------


def trajectory(*history, **more):
    return {"trajectory": [{"action": "ls", "execution_time": 0.1}], "history": list(history), "info": {}, **more}


def test_tool_results_of_swe_agent_name_their_call_in_a_list(tmp_path):
    """WB-REC-02 `swe-agent`."""
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    value = trajectory(
        say("system", "s"),
        say("user", [{"type": "text", "text": "task"}], message_type="observation"),
        say("assistant", "look", action="ls", tool_calls=[call]),
        say("tool", [{"type": "text", "text": "a.py"}], tool_call_ids=["c1"]),
        info={"exit_status": "submitted", "model_stats": {"api_calls": 1}, "submission": "diff"},
        replay_config={"problem_statement": {"id": "issue-1"}},
    )
    recordings = load_recordings(document(tmp_path / "x.traj", value, indent=1))
    (conversation,) = recordings
    assert (conversation.id, roles(conversation), contents(conversation)) == (
        "issue-1",
        "uat",
        ["task", "look", "a.py"],
    )
    assert conversation.events[2].message.tool_id == "c1"
    assert conversation.metadata == {"exit_status": "submitted", "model_stats": {"api_calls": 1}}
    assert recordings.problems == ()


OBSERVED = (
    say("system", "s"),
    say("user", "demonstration", is_demo=True),
    say("user", "task"),
    say("assistant", "I look", action="ls\n"),
    say("user", "a.py"),
    say("assistant", "I submit", action="submit"),
)


def test_observations_with_role_user_are_tool_results(tmp_path):
    """WB-REC-04 rule 2: not a person's; the reader decides."""
    recordings = load_recordings(document(tmp_path / "katy.traj", trajectory(*OBSERVED)))
    (conversation,) = recordings
    assert (roles(conversation), len(conversation.requests), len(conversation.calls)) == ("uata", 1, 2)
    call = conversation.events[1].message.tool_calls[0]
    assert json.loads(call.arguments) == {"command": "ls"}
    assert conversation.events[2].message.tool_id == call.id
    assert conversation.id == "katy"
    assert any("observations" in loss for loss in recordings.losses)
    assert any("demonstrations" in loss for loss in recordings.losses)


def test_observations_can_be_read_as_a_persons_messages(tmp_path):
    """WB-REC-04 rule 2: --observations user."""
    path = document(tmp_path / "katy.traj", trajectory(*OBSERVED))
    (conversation,) = load_recordings(path, observations="user")
    assert (roles(conversation), len(conversation.requests)) == ("uaua", 2)


def test_only_the_history_of_a_trajectory_has_to_be_right(tmp_path):
    value = {"trajectory": 7, "history": [say("user", "task")], "info": 7, "replay_config": "{}"}
    assert contents(load_recordings(document(tmp_path / "x.traj", value))[0]) == ["task"]


def test_a_trajectory_without_history_is_a_problem(tmp_path):
    with pytest.raises(RecordingError, match="history is a number, expected an array"):
        load_recordings(document(tmp_path / "x.traj", {"trajectory": [], "history": 7}), format="swe-agent")


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "list"])
def test_rows_of_swe_smith_hold_their_messages_as_one_text(as_text, tmp_path):
    """WB-REC-02 `swe-agent`: observations with role user are no person's (WB-REC-04 rule 2)."""
    messages = [
        say("system", [{"type": "text", "text": "s"}]),
        say("user", "fix it"),
        say("assistant", "look\n```ls```"),
        say("user", "OBSERVATION: a.py"),
        say("assistant", "done"),
    ]
    row = {
        "messages": json.dumps(messages) if as_text else messages,
        "instance_id": "repo.1",
        "resolved": True,
        "model": "claude",
        "traj_id": "repo.1.x",
    }
    recordings = load_recordings(jsonl(tmp_path / "train.jsonl", row, {**row, "messages": "[", "traj_id": "y"}))
    (conversation,) = recordings
    assert (recordings.formats, conversation.id, conversation.model) == ({"swe-agent": 1}, "repo.1.x", "claude")
    assert (conversation.instruction, roles(conversation)) == ("s", "uata")
    assert conversation.metadata == {"instance_id": "repo.1", "traj_id": "repo.1.x", "resolved": True}
    assert texts(recordings) == ["messages is a text that can't be read; JSON ends early at column 1"]
    assert recordings.problems[0].line == 2


def test_trajectories_of_swe_smith_are_named_by_a_setup_in_text(shared_path):
    """WB-DATA-02, WB-REC-03: the model is known, too."""
    for conversation in load_recordings(shared_path / "data" / "swe-smith"):
        assert conversation.id in conversation.source
        assert conversation.model.startswith("claude-")
        assert all(e.message.tool_name for e in conversation.events if e.message.role == "tool")


# --- claude-code -----------------------------------------------------------------------------------------


def node(kind, uuid, parent, content, *, at=0, **more):
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": more.pop("session", "s1"),
        "isSidechain": more.pop("side", False),
        "timestamp": f"2025-06-14T10:{at // 60:02d}:{at % 60:02d}Z",
        "message": message,
        **more,
    }


def answer(uuid, parent, *blocks, answer_id="m1", output=1, at=1, **more):
    usage = {
        "input_tokens": 100,
        "output_tokens": output,
        "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 0,
    }
    message = {"id": answer_id, "model": "claude", "usage": usage, "stop_reason": "end_turn"}
    return node("assistant", uuid, parent, list(blocks), at=at, message=message, requestId="r1", **more)


def text(content):
    return {"type": "text", "text": content}


REPEATED = (
    node("user", "u1", None, "hello"),
    answer("a1", "u1", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
    answer("a2", "a1", text("hi")),
    answer("a3", "a2", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}, output=250),
    node("user", "u2", "a3", [{"type": "tool_result", "tool_use_id": "t1", "content": [text("a.py"), text("b.py")]}], at=2),
)  # fmt: skip


def test_rows_of_one_answer_are_one_event_with_the_last_usage(tmp_path):
    """WB-REC-04 rule 3, WB-REC-07, BUG-26."""
    recordings = load_recordings(jsonl(tmp_path / "s1.jsonl", *REPEATED))
    (conversation,) = recordings
    assert roles(conversation) == "uat"
    message = conversation.events[1].message
    assert (message.content, message.reasoning_content, message.reasoning_signature) == ("hi", "hm", "sig")
    assert (message.tool_calls[0].name, message.tool_calls[0].arguments) == ("Bash", '{"command":"ls"}')
    assert conversation.events[2].message.content == "a.py\nb.py"
    assert list(conversation.usage.values()) == [
        Usage(
            prompt_tokens=140,
            completion_tokens=250,
            cached_tokens=40,
            cache_creation_tokens=0,
            cache_read_tokens=40,
        )
    ]
    assert (conversation.merged_rows, len(conversation.calls), conversation.model) == (2, 1, "claude")
    assert "rows merged: 2 in " in recordings.losses[0]


def test_a_resumed_session_is_billed_once(tmp_path):
    """BUG-26: both sessions show the turn, the totals count it once, and 5 rows were merged."""
    jsonl(tmp_path / "a.jsonl", *REPEATED[:4])
    jsonl(tmp_path / "b.jsonl", *({**row, "sessionId": "s2"} for row in REPEATED[:4]))
    recordings = load_recordings(tmp_path)
    assert [(c.id, roles(c), len(c.usage)) for c in recordings] == [("s1", "ua", 1), ("s2", "ua", 0)]
    assert [c.merged_rows for c in recordings] == [2, 2]
    assert any(loss.startswith("rows merged: 5 ") for loss in recordings.losses)


def test_the_newest_branch_is_the_conversation(tmp_path):
    """WB-REC-02 `claude-code`: a tree by parentUuid."""
    rows = (
        node("user", "u1", None, "hello"),
        answer("a1", "u1", text("old")),
        answer("a2", "u1", text("new"), answer_id="m2"),
        node("user", "u2", "a2", "more"),
    )
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", *rows))
    assert contents(recordings[0]) == ["hello", "new", "more"]
    assert any("abandoned branches: 1 " in loss for loss in recordings.losses)


def test_side_chains_are_conversations_of_their_own(tmp_path):
    rows = (
        node("user", "u1", None, "hello"),
        node("user", "x1", None, "sub task", side=True),
        answer("x2", "x1", text("sub answer"), answer_id="m9", side=True),
        answer("a1", "u1", text("hi")),
    )
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", *rows))
    assert {c.id: contents(c) for c in recordings} == {"s1": ["hello", "hi"], "s1~side1": ["sub task", "sub answer"]}


def test_a_session_goes_on_behind_a_compaction(tmp_path):
    rows = (
        node("user", "u1", None, "hello"),
        answer("a1", "u1", text("hi")),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None, "sessionId": "s1"},
        node("user", "u2", "b1", "This session is continued", isCompactSummary=True),
        node("user", "u3", "u2", "go on", at=5),
        {"type": "summary", "summary": "a talk", "leafUuid": "u3"},
    )
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", *rows))
    assert contents(recordings[0]) == ["hello", "hi", "go on"]
    assert recordings[0].metadata == {"summaries": ["a talk"]}
    assert any("made by the recorded tool itself" in loss for loss in recordings.losses)


def test_cache_writes_by_lifetime_are_kept(tmp_path):
    """WB-REC-07, BUG-25."""
    row = answer("a1", "u1", text("hi"))
    row["message"]["usage"]["cache_creation"] = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}
    (conversation,) = load_recordings(jsonl(tmp_path / "a.jsonl", node("user", "u1", None, "hello"), row))
    assert conversation.events[1].extensions == {
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}
    }


def test_a_transcript_that_ends_inside_a_row_gives_what_is_complete(tmp_path):
    """B30."""
    path = tmp_path / "a.jsonl"
    lines = "".join(json.dumps(row) + "\n" for row in REPEATED)
    path.write_text(lines[:-40])
    recordings = load_recordings(path)
    assert texts(recordings) == ["last message is unfinished; left out"]
    assert roles(recordings[0]) == "ua"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (node("user", "u1", None, "again"), 'event id "u1" was used at line 1'),
        (node("user", "u9", "a1", [{"type": "hologram"}]), 'message 3, part 1: type "hologram" is not known'),
        (node("user", "u9", "a1", 7), "message 3: content is a number, expected text or parts"),
        (node("user", "u9", "a1", None), "message 3 has neither content nor tool calls"),
        ({**node("user", "u9", "a1", ""), "message": 7}, "message is a number, expected an object"),
    ],
)
def test_a_broken_row_costs_its_session_only(row, expected, tmp_path):
    """REL-11."""
    rows = (node("user", "u1", None, "hello"), answer("a1", "u1", text("hi")), row)
    other = node("user", "v1", None, "other", session="s2")
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", *rows, other))
    assert texts(recordings) == [expected]
    assert [c.id for c in recordings] == ["s2"]


def test_rows_without_a_session_or_of_another_kind_are_no_conversation(tmp_path):
    """B27."""
    rows = (
        *REPEATED,
        node("user", "z1", None, "x", session=""),
        {"type": "queue-operation", "uuid": "q", "parentUuid": None, "sessionId": "s1"},
        [1, 2, 3],
    )
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", *rows))
    assert texts(recordings) == ["session id is empty", "expected an object, got an array of 3"]
    assert len(recordings) == 1


def test_messages_that_no_model_made_are_left_out(tmp_path):
    synthetic = answer("a1", "u1", text("interrupted"))
    synthetic["message"]["model"] = "<synthetic>"
    empty = answer("a2", "a1", answer_id="m2")
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", node("user", "u1", None, "hello"), synthetic, empty))
    assert roles(recordings[0]) == "u"
    assert len(recordings.losses) == 2
