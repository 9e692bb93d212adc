"""Prompt templates: placeholders, one pass, built-in prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import PromptRenderError
from workbench.summary.prompt import (
    Placeholder,
    Prompts,
    built_in_fork_prompt,
    built_in_prompt,
    placeholder_names,
    render,
    template_parts,
)

VALUES = {"a": "A", "b": "B"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{a}-{{a}}-{{ a }}", "A-A-A"),
        ("{a?}{x?}{{ x? }}|", "A|"),
        ("{ a }", "{ a }"),
        ("{}", "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ("{a b}", "{a b}"),
        ("{a", "{a"),
        ("a}", "a}"),
        ("{{a}", "{A"),
        ("{ P<{a}> }", "{ P<{a}> }"),
        ("{{{a}}}", "{{{a}}}"),
        ("{a}{a}", "AA"),
    ],
)
def test_what_is_a_placeholder_and_what_is_text(template, text):
    """SUM-PRM-01."""
    assert render(template, VALUES) == text


def test_a_name_without_a_value_fails_and_is_named():
    """SUM-PRM-03, SUM-ERR-03."""
    with pytest.raises(PromptRenderError, match=r"prompt: .*\{x\}, \{\{ y \}\}"):
        render("{a} {x} {{ y }} {x}", VALUES)


@given(st.text(st.sampled_from("ab{}? \n"), max_size=30))
def test_what_was_put_in_is_never_looked_at_again(text):
    """SUM-PRM-02: one pass, from left to right."""
    assert render("<{a}|{b}>", {"a": text, "b": "{a}"}) == f"<{text}|{{a}}>"


@given(st.text(st.sampled_from("ab{}? '\n"), max_size=30))
def test_a_template_is_its_own_parts(template):
    """SUM-PRM-01: reading a template loses nothing of it."""
    parts = template_parts(template)
    assert "".join(part.raw if isinstance(part, Placeholder) else part for part in parts) == template


def test_the_word_limit_renders_as_number_or_as_nothing():
    """SUM-PRM-04, E18."""
    template = "<{conversation_text}> {max_summary_words}"
    limited = Prompts(user=template, max_summary_words=100).completed()
    assert limited.render_user(conversation_text="c", previous_summary="") == "<c> 100"
    unlimited = Prompts(user=template, max_summary_words=-1).completed()
    assert unlimited.render_user(conversation_text="c", previous_summary="") == "<c> "


def test_the_previous_summary_renders_empty_on_a_first_pass():
    """SUM-PRM-04."""
    prompts = Prompts(user="[{previous_summary}] {conversation_text}").completed()
    assert prompts.separates_previous_summary
    assert prompts.render_user(conversation_text="c", previous_summary="") == "[] c"


def test_the_built_in_prompt_keeps_its_duties():
    """SUM-PRM-05."""
    prompt = built_in_prompt(0)
    assert "\n<conversation>\n{conversation_text}\n</conversation>\n" in prompt
    assert prompt.endswith("\nSummary:")
    assert placeholder_names(prompt) == {"conversation_text"}
    for duty in ("nothing up", "instructions or rules", "left out or failed"):
        assert duty in prompt.replace("\n", " ")


def test_the_built_in_fork_prompt_keeps_its_duties():
    """SUM-PRM-06."""
    prompt = built_in_fork_prompt(0)
    assert placeholder_names(prompt) == set()
    for duty in ("conversation above", "goals, decisions, constraints, open tasks", "Do not call any tool", "latest"):
        assert duty in prompt.replace("\n", " ")


def test_built_in_prompts_name_a_limit_only_when_there_is_one():
    """SUM-OPT-02."""
    for built_in in (built_in_prompt, built_in_fork_prompt):
        assert "max_summary_words" not in placeholder_names(built_in(0))
        assert "max_summary_words" in placeholder_names(built_in(50))


def test_empty_templates_mean_the_built_in_ones():
    """SUM-OPT-04."""
    prompts = Prompts().completed()
    assert prompts.user == built_in_prompt(0)
    assert prompts.fork == built_in_fork_prompt(0)
    assert prompts.render_system() == ""
    assert prompts.faults() == []


@pytest.mark.parametrize(
    ("prompts", "named"),
    [
        (Prompts(user="no place"), "{conversation_text}"),
        (Prompts(user="{conversation_text}", max_summary_words=9), "{max_summary_words}"),
        (Prompts(system="{conversation_text}"), "{conversation_text}"),
        (Prompts(system="{previous_summary}"), "{previous_summary}"),
        (Prompts(fork="{{conversation_text}}"), "{conversation_text}"),
        (Prompts(fork="{previous_summary?}"), "{previous_summary}"),
    ],
)
def test_a_broken_rule_names_the_placeholder(prompts, named):
    """SUM-OPT-01, SUM-OPT-02, SUM-OPT-03, SUM-ERR-01."""
    (fault,) = prompts.completed().faults()
    assert named in str(fault)


def test_the_limit_may_stand_in_either_prompt():
    """SUM-OPT-02."""
    assert Prompts(user="{conversation_text} {max_summary_words}", max_summary_words=9).completed().faults() == []
    assert Prompts(user="{conversation_text}", system="{max_summary_words}", max_summary_words=9).faults() == []
