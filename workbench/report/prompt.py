"""One request as a person reads it: what it holds, why, and what another configuration sends instead (WB-RPL-12).

In: calls of the same number under one or several configurations. Out: terminal text, or HTML for a notebook. What
both requests share is one line; of two texts that begin alike only the rest is shown. Texts come from outside:
escaped in the terminal (SEC-13), through `markup.py` in HTML (SEC-07).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.model.types import Message
from workbench.replay.trace import BREAK_CAUSES
from workbench.report.labels import UNKNOWN, counted, display_width, escaped, percent, quoted, shorten, within
from workbench.report.markup import Markup, element, joined, verbatim
from workbench.report.overview import billing_counter, engine_counter
from workbench.report.terminal import LINE_WIDTH, broken, figures_table

if TYPE_CHECKING:
    from workbench.replay.prompt import Call, PromptDiff, PromptMessage

_PARTS = (
    ("system", "system_tokens"),
    ("tool declarations", "schema_tokens"),
    ("summary", "summary_tokens"),
    ("history", "history_tokens"),
    ("tool results", "tool_result_tokens"),
    ("current message", "current_tokens"),
    ("overhead", "overhead_tokens"),
    ("whole prompt", "prompt_tokens"),
    ("as the engine estimates", "estimated_tokens"),
    ("reused prefix", "prefix_tokens"),
)
_EQUAL, _REMOVED, _ADDED = " ", "-", "+"
_SHARED_WORTH_CUTTING = 60
_TEXT_WIDTH = 400
"""Columns of a folded text in a notebook."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A message in a list, or (`message` is None) a stretch that both requests have."""

    sign: str
    index: int
    message: PromptMessage | None
    n_shared: int = 0
    """Leading characters of its text that stand in the other request too."""
    remark: str = ""


def message_text(message: Message) -> str:
    """All that a message says: content, parts, reasoning, calls."""
    pieces = [message.content if message.content.strip() else f"[{message.content!r}]"] if message.content else []
    pieces += [
        part.text if part.type == "text" else f"[{part.type} {part.name or part.url}]" for part in message.content_parts
    ]
    pieces += [f"(reasoning) {message.reasoning_content}"] if message.reasoning_content else []
    pieces += [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    if message.tool_name and not message.content.startswith(message.tool_name):
        pieces.insert(0, f"← {message.tool_name}:")
    return "\n".join(pieces)


def calls_text(calls: Sequence[Call], *, full: bool = False) -> str:
    """What `replay --show` prints.

    Args:
        calls: The same call of one or several runs; the others are compared with the first.
        full: Every text from its beginning to its end.
    """
    blocks = ["\n".join(broken(_heading(calls), LINE_WIDTH)), _parts_table(calls)]
    blocks += ["\n".join([quoted(call.run), *_about(call)]) for call in calls]
    if len(calls) == 1:
        blocks.append("\n".join(_message_lines(list(_all_lines(calls[0])), full=full)))
    for other in calls[1:]:
        diff = calls[0].diff(other)
        heading = broken(_diff_heading(diff), LINE_WIDTH)
        blocks.append("\n".join([*heading, *_message_lines(list(_diff_lines(diff)), full=full)]))
    if not full:
        blocks.append("Texts are shortened: --full shows them whole, --json the request as it goes over the wire.")
    return "\n\n".join(blocks)


def call_html(call: Call) -> str:
    """A call in a notebook."""
    return _block(_heading([call]), [call], list(_all_lines(call)))


def diff_html(diff: PromptDiff) -> str:
    """Two calls in a notebook."""
    return _block(_diff_heading(diff), [diff.before, diff.after], list(_diff_lines(diff)))


# --- what is said -----------------------------------------------------------------------------------------


def _heading(calls: Sequence[Call]) -> str:
    first = calls[0]
    where = f"{quoted(first.conversation, 60)}, call {first.index}"
    sizes = "; ".join(f"{_size(call)} under {quoted(call.run)}" for call in calls)
    return f"{where}: {sizes}"


def _size(call: Call) -> str:
    share = call.row["window_share"]
    of_window = f", {percent(share)} of the window" if share is not None else ""
    return f"{call.row['prompt_tokens']:,} tokens in {counted(len(call.messages), 'message')}{of_window}"


def _diff_heading(diff: PromptDiff) -> str:
    if diff.is_empty:
        return f"{quoted(diff.before.run)} and {quoted(diff.after.run)} send the same request"
    removed = added = n_removed = n_added = 0
    for block in diff.blocks:
        if not block.is_equal:
            before, after = diff.tokens_of(block)
            removed, added = removed + before, added + after
            n_removed, n_added = n_removed + len(block.before), n_added + len(block.after)
    tools = "" if diff.same_tools else "; other tool declarations"
    return (
        f"From {quoted(diff.before.run)} to {quoted(diff.after.run)}: {_amount(n_removed, removed)} less (-), "
        f"{_amount(n_added, added)} more (+){tools}"
    )


def _amount(n_messages: int, tokens: int) -> str:
    return f"{counted(n_messages, 'message')} of {counted_tokens(tokens)}" if n_messages else "no message"


def counted_tokens(tokens: int) -> str:
    """`1 token`, `12,300 tokens`."""
    return f"{tokens:,} token{'' if tokens == 1 else 's'}"


def _part_rows(calls: Sequence[Call]) -> list[list[str]]:
    rows = [[name, *(_figure(call.row[column]) for call in calls)] for name, column in _PARTS]
    return [row for row in rows if any(text not in ("0", UNKNOWN) for text in row[1:])]


def _figure(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _parts_table(calls: Sequence[Call]) -> str:
    names = [shorten(call.run, 24) for call in calls]
    return figures_table([f"tokens ({billing_counter(calls[0])})", *names], _part_rows(calls))


def _about(call: Call) -> list[str]:
    """Why the request is as it is, a label and its lines each."""
    lines: list[str] = []
    for label, text in _facts(call):
        first, *rest = text.split("\n")
        pieces = [piece for line in (first, *rest) for piece in broken(escaped(line), LINE_WIDTH - 12)]
        lines += [f"  {label:10}{pieces[0]}", *(f"{'':12}{piece}" for piece in pieces[1:])]
    return lines


def _facts(call: Call) -> Iterator[tuple[str, str]]:
    row = call.row
    yield "trigger", call.explanation
    yield "counter", f"the engine counts {engine_counter(call)}; the table counts {billing_counter(call)}"
    yield "prefix", _prefix(call)
    if row["summary_key"] is not None:
        key = row["summary_key"] or "the full session"
        age = row["summary_age_events"]
        behind = "" if age is None else f", {counted(age, 'event')} ago" if age else ", the newest"
        upto = f", up to event {row['boundary_event_id']}{behind}" if row["boundary_event_id"] else ""
        yield "summary", f"of {key}{upto}"
    passes = [(n, row[f"pass{n}_results"]) for n in range(3)]
    if any(results for _, results in passes):
        each = ", ".join(f"{counted(results, 'result')} by pass {n}" for n, results in passes if results)
        yield (
            "compacted",
            f"{each}; about {counted_tokens(row['compaction_saved_tokens'])} saved, by the engine's counter",
        )
    if row["tailored_messages"]:
        what = counted(row["tailored_messages"], "message")
        yield "tailored", f"{what} left out, {counted_tokens(row['tailored_tokens'])} by the engine's counter"


def _prefix(call: Call) -> str:
    row = call.row
    if row["prefix_tokens"] is None:
        return "no earlier request in this conversation"
    text = f"{row['prefix_tokens']:,} of {row['reusable_tokens']:,} tokens were sent before"
    if row["break_cause"] is None:
        return f"{text}; nothing broke it"
    cause = BREAK_CAUSES.get(row["break_cause"], row["break_cause"])
    return f"{text}; {cause}: {counted_tokens(row['lost_tokens'])} sent anew"


# --- the lists --------------------------------------------------------------------------------------------


def _all_lines(call: Call) -> Iterator[_Line]:
    for index, message in enumerate(call.messages):
        yield _Line(_EQUAL, index, message)


def _diff_lines(diff: PromptDiff) -> Iterator[_Line]:
    before, after = diff.before.messages, diff.after.messages
    for block in diff.blocks:
        if block.is_equal:
            n_messages, tokens = len(block.before), diff.tokens_of(block)[0]
            yield _Line(
                _EQUAL,
                -1,
                None,
                remark=f"… {n_messages:,} equal message{'' if n_messages == 1 else 's'}, {counted_tokens(tokens)}",
            )
            continue
        shared = [_shared_chars(before[i], after[j]) for i, j in zip(block.before, block.after, strict=False)]
        for place, i in enumerate(block.before):
            yield _Line(_REMOVED, i, before[i], shared[place] if place < len(shared) else 0)
        for place, j in enumerate(block.after):
            yield _Line(_ADDED, j, after[j], shared[place] if place < len(shared) else 0)


def _shared_chars(before: PromptMessage, after: PromptMessage) -> int:
    """How many characters two messages of the same role begin with alike; 0 when it isn't worth a remark."""
    if before.message.role != after.message.role:
        return 0
    a, b = message_text(before.message), message_text(after.message)
    n_shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if n_shared < min(len(a), len(b)):
        n_shared = a.rfind("\n", 0, n_shared) + 1 or n_shared
    return n_shared if n_shared >= _SHARED_WORTH_CUTTING else 0


def _text_of(line: _Line, message: PromptMessage, *, full: bool) -> str:
    text = message_text(message.message)
    if full or not line.n_shared:
        return text
    return f"[{line.n_shared:,} equal characters] {text[line.n_shared :].lstrip() or '[nothing more]'}"


def _message_lines(lines: Sequence[_Line], *, full: bool) -> list[str]:
    shown = [line.message for line in lines if line.message is not None]
    part_width = max((len(message.part) for message in shown), default=0)
    out = []
    for line in lines:
        if line.message is None:
            out.append(f"  {line.remark}")
            continue
        message = line.message
        role = escaped(message.message.role or "user")
        head = f"{line.sign} {line.index:>4}  {role:9}  {message.part:{part_width}}  {message.tokens:>7,}"
        text = _text_of(line, message, full=full)
        if not full:
            room = max(LINE_WIDTH - len(head) - 2, 24)
            out.append(f"{head}  {_beginning(text, room)}".rstrip())
            continue
        out.append(f"{head}  {shorten(message.event_id, 40)}".rstrip())
        out += [f"{line.sign}       {escaped(piece)}".rstrip() for piece in text.split("\n")]
    return out


def _beginning(text: str, max_width: int) -> str:
    """What a text begins with, on one line."""
    line = escaped(" ".join(text[: 4 * max_width].split()))
    fits = display_width(line) <= max_width and len(text) <= 4 * max_width
    return line if fits else within(line, max_width - 1) + "…"


# --- HTML -------------------------------------------------------------------------------------------------

# No style sheet reaches a notebook; the sign says the same without colour.
_BACKGROUND = {_EQUAL: None, _REMOVED: "background:rgba(194,59,34,.13)", _ADDED: "background:rgba(0,115,79,.13)"}
_CELL = "text-align:left;vertical-align:top"
_NUMBER = "text-align:right;vertical-align:top"
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere"


def _block(heading: str, calls: Sequence[Call], lines: Sequence[_Line]) -> Markup:
    parts: list[Markup] = [element("div", element("b", heading)), _parts_html(calls)]
    for call in calls:
        about = joined([_lines_html([label, *text.split("\n")]) for label, text in _facts(call)], verbatim("\n"))
        title = f"{quoted(call.run)}: trigger, prefix, summary"
        parts.append(element("details", element("summary", title), element("pre", about)))
    head = [element("th", title, style=_CELL) for title in ("", "message", "role", "part", "tokens", "text")]
    body = [_row_html(line) for line in lines]
    parts.append(element("table", element("thead", element("tr", *head)), element("tbody", *body)))
    return element("div", *parts)


def _parts_html(calls: Sequence[Call]) -> Markup:
    head = [element("th", f"tokens ({billing_counter(calls[0])})", style=_CELL)]
    head += [element("th", call.run, style=_NUMBER) for call in calls]
    body = [
        element("tr", element("td", name, style=_CELL), *(element("td", figure, style=_NUMBER) for figure in figures))
        for name, *figures in _part_rows(calls)
    ]
    return element("table", element("thead", element("tr", *head)), element("tbody", *body))


def _row_html(line: _Line) -> Markup:
    if line.message is None:
        return element("tr", element("td"), element("td", line.remark, colspan="5", style=_CELL))
    message = line.message
    text = _text_of(line, message, full=False)
    content = element("div", _lines_html(text.split("\n")), style=_WRAPPED)
    if len(text) > _TEXT_WIDTH or text.count("\n") > 5:
        whole = element("div", _lines_html(message_text(message.message).split("\n")), style=_WRAPPED)
        content = element("details", element("summary", _beginning(text, _TEXT_WIDTH)), whole)
    cells = [line.sign.strip(), str(line.index), message.message.role or "user", message.part]
    return element(
        "tr",
        *(element("td", cell, style=_CELL) for cell in cells),
        element("td", f"{message.tokens:,}", style=_NUMBER),
        element("td", content, style=_CELL),
        style=_BACKGROUND[line.sign],
    )


def _lines_html(lines: Sequence[str]) -> Markup:
    """Lines that stay lines: text loses its line breaks on the way into markup."""
    return joined([escaped(line) for line in lines], verbatim("\n"))


__all__ = ["call_html", "calls_text", "diff_html", "message_text"]
