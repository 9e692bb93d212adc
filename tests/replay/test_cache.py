"""Prompt parts and prefixes (WB-CACHE-01, -01a)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.model.types import Message, ToolCall, ToolSpec
from workbench.replay.cache import PrefixTree, common_prefix_tokens, common_text, part_text, tools_text
from workbench.replay.meter import shared_messages
from workbench.tokens import SimpleTokenCounter

ONE_RUNE = SimpleTokenCounter(1.0)


def test_a_part_holds_role_content_calls_and_ids_in_a_fixed_order() -> None:
    """WB-CACHE-01."""
    call = ToolCall(id="c1", name="find", arguments='{"q": "汉"}')
    text = part_text(Message(role="assistant", content="看看", tool_calls=(call,)))
    assert (
        text == '<|assistant|>\n看看\n[{"arguments":"{\\"q\\": \\"汉\\"}","id":"c1","name":"find","type":"function"}]\n'
    )
    assert part_text(Message(role="tool", content="ok", tool_id="c1", tool_name="find")) == "<|tool|>\nok\nfind c1\n"


def test_tool_declarations_are_one_part_with_sorted_keys() -> None:
    """WB-CACHE-01."""
    tool = ToolSpec(name="b", description="d", parameters_json='{"z": 1, "a": 2}')
    assert tools_text([tool]) == (
        '[{"function":{"description":"d","name":"b","parameters":{"a":2,"z":1}},"type":"function"}]'
    )
    assert tools_text([]) == ""


def test_the_common_text_of_two_parts_ends_at_a_newline_and_needs_the_same_role() -> None:
    """WB-CACHE-01."""
    assert common_text("<|user|>\nline one\nline two", "<|user|>\nline one\nline 2") == "<|user|>\nline one\n"
    assert common_text("<|user|>\nsame", "<|system|>\nsame") == ""


def test_append_only_requests_reuse_everything_before() -> None:
    """WB-CACHE-01a: prefix_reuse is exactly 1.0."""
    tree = PrefixTree(ONE_RUNE)
    assert tree.observe(0, ["aa\n", "bb\n"]) is None
    second = tree.observe(2, ["cc\n"])
    assert second is not None
    assert (second.tokens, second.reusable_tokens) == (6, 6)


def test_a_change_in_the_middle_is_found_again_when_an_older_request_comes_back() -> None:
    tree = PrefixTree(ONE_RUNE)
    tree.observe(0, ["a\n", "b\n", "c\n"])
    changed = tree.observe(1, ["X\n"])
    back = tree.observe(1, ["b\n", "c\n"])
    assert changed is not None
    assert changed.tokens == 2
    assert back is not None
    assert back.tokens == 6


def test_a_seeded_prefix_of_another_conversation_counts_as_seen() -> None:
    """WB-CACHE-01a, cache_scope = corpus."""
    tree = PrefixTree(ONE_RUNE)
    tree.seed(["<|system|>\nhello\n"])
    first = tree.observe(0, ["<|system|>\nhello\n", "<|user|>\nhi\n"])
    assert first is not None
    assert first.tokens == len("<|system|>\nhello\n")


def test_a_prefix_is_the_newest_requests_that_had_it() -> None:
    """WB-CACHE-02: how old a prefix is decides whether a provider still has it."""
    tree = PrefixTree(ONE_RUNE)
    tree.observe(0, ["a\n", "b\n", "c\n"])
    assert tree.observe(1, ["X\n"]).request == 0
    back = tree.observe(1, ["b\n", "d\n"])
    assert (back.tokens, back.request, back.recent_tokens) == (4, 0, 2)
    again = tree.observe(1, ["X\n", "e\n"])
    assert (again.tokens, again.request, again.recent_tokens) == (4, 1, 2)
    longer = tree.observe(3, ["f\n"])
    assert (longer.tokens, longer.request, longer.recent_tokens) == (6, 3, 6)


def test_a_seeded_prefix_has_no_request_of_its_own() -> None:
    """WB-CACHE-01a."""
    tree = PrefixTree(ONE_RUNE)
    tree.seed(["a\n"])
    assert tree.observe(0, ["a\n", "b\n"]).request is None
    assert tree.observe(0, ["a\n", "c\n"]).request == 0


PARTS = st.lists(
    st.sampled_from(["<|u|>\na\nb\n", "<|u|>\na\nc\n", "<|s|>\na\n", "<|u|>\n", "<|u|>\na\nb\nd\n"]), max_size=6
)


@given(st.lists(PARTS.filter(bool), min_size=1, max_size=8))
def test_the_tree_agrees_with_comparing_whole_texts(requests: list[list[str]]) -> None:
    """WB-CACHE-01: the structural shortcut equals the slow comparison."""
    tree = PrefixTree(ONE_RUNE)
    earlier: list[list[str]] = []
    previous: list[str] = []
    for texts in requests:
        n_shared = 0
        while n_shared < min(len(previous), len(texts)) and previous[n_shared] == texts[n_shared]:
            n_shared += 1
        prefix = tree.observe(n_shared, texts[n_shared:])
        if earlier:
            assert prefix is not None
            assert prefix.tokens == common_prefix_tokens(texts, earlier, ONE_RUNE)
            assert prefix.reusable_tokens == max(sum(map(len, other)) for other in earlier)
            assert prefix.request is not None
            assert common_prefix_tokens(texts, [earlier[prefix.request]], ONE_RUNE) == prefix.tokens
            assert prefix.recent_tokens <= common_prefix_tokens(texts, earlier[-1:], ONE_RUNE)
        else:
            assert prefix is None
        earlier.append(texts)
        previous = texts


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_shared_leading_messages_are_counted_right(left: list[int], right: list[int]) -> None:
    pool = [Message(role="user", content=str(i)) for i in range(3)]
    first, second = tuple(pool[i] for i in left), tuple(pool[i] for i in right)
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert shared_messages(first, second) == expected
