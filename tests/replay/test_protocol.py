"""The protocol check: each rule, and that the incremental check agrees with a look at the whole request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workbench.model.types import ContentPart, Message, ToolCall, response_of
from workbench.replay.protocol import (
    ModelRules,
    ProtocolChecker,
    ProtocolViolation,
    RunningTurn,
    holds,
    violations_of,
)
from workbench.session.open_calls import OpenCalls
from workbench.session.types import Event

ASK = Message(role="user", content="订单 7731 到哪了？")
SYSTEM = Message(role="system", content="Answer briefly.")
STRICT = ModelRules(user_first=True, single_system=True)


def call(*ids: str) -> Message:
    return Message(role="assistant", tool_calls=tuple(ToolCall(id=one, name="query", arguments="{}") for one in ids))


def result(call_id: str, content: str = "已发货") -> Message:
    return Message(role="tool", content=content, tool_id=call_id, tool_name="query")


def found(*messages: Message, rules: ModelRules = STRICT, current: Message = ASK) -> list[tuple[int, str, str]]:
    return [(one.message, one.rule, one.detail) for one in violations_of(messages, RunningTurn(current), rules)]


def test_a_complete_request_has_no_violation() -> None:
    """WB-RPL-18."""
    answer = Message(role="assistant", content="明天到")
    assert found(SYSTEM, ASK, call("a", "b"), result("b"), result("a", ""), answer) == []


def test_a_call_needs_its_result_directly_behind_it() -> None:
    """WB-RPL-18: complete and adjacent."""
    assert found(ASK, call("a", "b"), result("a")) == [(1, "unanswered_call", "b")]
    other = Message(role="user", content="嗯")
    assert found(ASK, call("a"), other, result("a")) == [(1, "unanswered_call", "a"), (3, "stray_result", "a")]


def test_a_result_needs_its_call_and_only_once() -> None:
    """WB-RPL-18."""
    assert found(ASK, result("a")) == [(1, "stray_result", "a")]
    assert found(ASK, call("a"), result("a"), result("a")) == [(3, "stray_result", "a")]


def test_no_message_is_empty() -> None:
    """WB-RPL-18."""
    assert found(ASK, Message(role="assistant")) == [(1, "empty_message", "assistant")]
    assert found(ASK, Message(role="assistant", content_parts=(ContentPart("image", url="x"),))) == []


def test_the_first_role_is_one_that_the_model_takes() -> None:
    """WB-RPL-18."""
    hello = Message(role="assistant", content="您好")
    assert found(SYSTEM, hello, ASK) == [(1, "first_role", "assistant")]
    assert found(SYSTEM, hello, ASK, rules=ModelRules()) == []
    assert (0, "first_role", "tool") in found(result("a"), ASK, rules=ModelRules())


def test_a_system_message_stands_in_front_where_the_model_needs_it() -> None:
    """WB-RPL-18."""
    assert found(SYSTEM, ASK, SYSTEM) == [(2, "second_system", "")]
    assert found(ASK, SYSTEM, rules=ModelRules()) == []


def test_the_current_user_message_is_there() -> None:
    """WB-RPL-18."""
    assert found(SYSTEM, Message(role="user", content="别的")) == [(-1, "no_current_message", "")]
    assert found(SYSTEM, Message(role="user", content=f"概要\n\n{ASK.content}")) == []
    assert found(SYSTEM, Message(role="user", content="别的"), current=Message()) == []


def test_a_message_with_parts_is_found_behind_the_names_of_its_files() -> None:
    file = ContentPart("file", name="a.txt")
    sent = Message(role="user", content_parts=(ContentPart("text", text="Attached files (1): a.txt\n"), file))
    assert holds(sent, Message(role="user", content_parts=(file,)))
    assert not holds(sent, Message(role="user", content_parts=(ContentPart("file", name="b.txt"),)))


def test_a_covered_call_that_waits_is_named() -> None:
    """WB-RPL-18."""
    turn = RunningTurn(ASK, open_calls=("k1",))
    assert violations_of((ASK,), turn) == (ProtocolViolation(-1, "open_call_covered", "k1"),)


# --- calls that wait ----------------------------------------------------------------------------------


def event(message: Message, *, request: str = "r1", branch: str = "main", done: bool = True) -> Event:
    return Event(id="e", request_id=request, branch=branch, response=response_of(message, done=done))


def waiting(*events: Event, covered: int | None = None) -> tuple[str, ...]:
    calls = OpenCalls()
    for position, one in enumerate(events):
        calls.step(position, one)
    return calls.among(lambda position: position < (len(events) if covered is None else covered))


def test_a_call_waits_until_its_result_is_stored() -> None:
    """WB-RPL-18: open calls."""
    assert waiting(event(ASK), event(call("a", "b"))) == ("a", "b")
    assert waiting(event(ASK), event(call("a", "b")), event(result("a"), done=False)) == ("b",)
    assert waiting(event(ASK), event(call("a")), covered=1) == ()


def test_nobody_waits_any_more_when_the_request_ended_or_the_user_went_on() -> None:
    """WB-RPL-18."""
    asked = [event(ASK), event(call("a"))]
    assert waiting(*asked, event(Message(role="assistant", content="算了"))) == ()
    assert waiting(*asked, event(ASK, request="r2")) == ()
    assert waiting(*asked, event(ASK, request="r2", branch="side")) == ("a",)
    assert waiting(*asked, event(ASK)) == ("a",)


# --- the incremental check against a look at everything ------------------------------------------------


def whole_look(messages: tuple[Message, ...], turn: RunningTurn, rules: ModelRules) -> set[ProtocolViolation]:
    """The rules read off the specification, one after the other, each over the whole request."""
    faults: list[tuple[int, str, str]] = []
    taken: set[int] = set()
    for i, message in enumerate(messages):
        for n, one in enumerate(message.tool_calls):
            earlier = [other.id for other in message.tool_calls[:n]].count(one.id)
            behind = [
                j
                for j in range(i + 1, len(messages))
                if all(between.role == "tool" for between in messages[i + 1 : j + 1]) and messages[j].tool_id == one.id
            ]
            if earlier < len(behind) and one.id:
                taken.add(behind[earlier])
            else:
                faults.append((i, "unanswered_call", one.id))
    for i, message in enumerate(messages):
        if message.role == "tool" and i not in taken:
            faults.append((i, "stray_result", message.tool_id))
        if message.role != "tool" and not (message.content or message.tool_calls or message.content_parts):
            faults.append((i, "empty_message", message.role))
        if message.role == "system" and i > 0 and rules.single_system:
            faults.append((i, "second_system", ""))
    others = [i for i, message in enumerate(messages) if message.role != "system"]
    allowed = ("user",) if rules.user_first else ("user", "assistant")
    if others and messages[others[0]].role not in allowed:
        faults.append((others[0], "first_role", messages[others[0]].role))
    if not any(m.role == "user" and m.content.endswith(turn.message.content) for m in messages):
        faults.append((-1, "no_current_message", ""))
    faults += [(-1, "open_call_covered", one) for one in turn.open_calls]
    return {ProtocolViolation(*fault) for fault in faults}


POOL = (
    SYSTEM,
    ASK,
    Message(role="user", content=f"概要\n\n{ASK.content}"),
    Message(role="user", content="谢谢"),
    Message(role="assistant", content="好的"),
    Message(role="assistant"),
    call("a"),
    call("a", "b"),
    call("b", "b"),
    call(""),
    result("a"),
    result("b"),
    result(""),
)
edits = st.tuples(st.integers(0, 12), st.lists(st.sampled_from(POOL), max_size=5), st.booleans(), st.booleans())


@given(st.lists(edits, max_size=8), st.booleans(), st.booleans())
def test_the_incremental_check_agrees_with_a_look_at_the_whole_request(
    steps: list[tuple[int, list[Message], bool, bool]], user_first: bool, single_system: bool
) -> None:
    """WB-RPL-18: requests that keep a prefix of the one before, with new objects or old ones, right hints or none."""
    rules = ModelRules(user_first, single_system)
    checker = ProtocolChecker(rules)
    messages: tuple[Message, ...] = ()
    for n_kept, new, fresh, other_turn in steps:
        added = tuple(replace(message) for message in new) if fresh else tuple(new)
        kept = messages[:n_kept]
        messages = (*kept, *added)
        turn = RunningTurn(POOL[3] if other_turn else ASK, ("z",) if fresh else ())
        assert set(checker.check(added, turn, n_shared=len(kept))) == whole_look(messages, turn, rules)
        assert len(checker.check(messages, turn)) == len(violations_of(messages, turn, rules))


def test_work_is_proportional_to_what_is_new() -> None:
    """WB-RPL-18: behind a shared prefix of 20,000 messages, only the new ones are looked at."""

    class Counted(Message):
        """A message that counts how often one is looked at."""

        __slots__ = ()
        n_read = 0

        def __getattribute__(self, name: str) -> Any:
            Counted.n_read += 1
            return super().__getattribute__(name)

    history = (SYSTEM, *(ASK, Counted(role="assistant", content="好")) * 10_000)
    checker = ProtocolChecker(STRICT)
    checker.check(history, RunningTurn(ASK))
    Counted.n_read = 0
    assert checker.check((ASK, call("a"), result("a")), RunningTurn(ASK), n_shared=len(history)) == ()
    assert Counted.n_read < 40
