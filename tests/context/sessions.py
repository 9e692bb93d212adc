"""Random sessions for property tests: several agents, re-used ids, late results, summaries, dropped events."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from workbench.context.assemble import Invocation
from workbench.model.types import (
    ASSISTANT,
    EMPTY_MESSAGE,
    SYSTEM,
    TOOL,
    USER,
    Choice,
    ContentPart,
    Message,
    Response,
    ToolCall,
)
from workbench.session.rounds import PER_CALL_RESULT
from workbench.session.types import Event, Session, Summary, SummaryBoundary


@dataclass
class Storyteller:
    """Grows a session event by event and knows who would ask next.

    `wildness` is the share of irregular steps: 0 is a plain tool-using dialogue.
    """

    seed: int
    wildness: float = 0.1
    summaries: bool = True
    drops: bool = False
    foreign: bool = True
    session: Session = field(init=False)
    n_events: int = 0
    n_requests: int = 0
    request_id: str = ""
    invocation_id: str = ""
    message: Message = EMPTY_MESSAGE
    open_calls: list[tuple[str, str]] = field(default_factory=list)
    old_calls: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.session = Session(app_name="app", user_id="u", id="s")
        self.time_ns = 1_000_000

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def wild(self) -> bool:
        return self.chance(self.wildness)

    # --- steps ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """One more thing happens."""
        if not self.request_id or (not self.open_calls and self.chance(0.3)):
            self.start_request()
        elif self.open_calls and not self.wild():
            self.answer_calls()
        elif self.chance(0.5):
            self.call_tools()
        elif self.wild():
            self.something_odd()
        else:
            self.say()
        if self.summaries and self.chance(0.12):
            self.summarise()
        if self.drops and self.chance(0.15) and len(self.session.events) > 4:
            self.session.drop_oldest(self.rng.randint(1, 3))
        if self.drops and self.chance(0.1):
            self.reread()

    def start_request(self) -> None:
        self.n_requests += 1
        if self.wild() and self.n_requests > 2:
            self.request_id = f"r{self.rng.randint(1, self.n_requests)}"
        else:
            self.request_id = f"r{self.n_requests}"
        self.invocation_id = f"i{self.n_requests}"
        self.open_calls.clear()
        parts = (ContentPart("file", url="x", name="a.txt"),) if self.wild() else ()
        self.message = Message(role=USER, content=self.text(), content_parts=parts)
        if not self.wild():
            self.add(self.message, author="user")

    def call_tools(self) -> None:
        n_calls = self.rng.choice([1, 1, 1, 2, 3])
        calls = []
        for _ in range(n_calls):
            call_id = f"c{self.rng.randint(0, 3)}" if self.wild() else f"c{self.n_events}-{len(calls)}"
            name = self.rng.choice(
                ["read", "search", "shell", "session_load", ""] if self.wild() else ["read", "shell"]
            )
            arguments = self.rng.choice(
                ['{"a":1}', "", "{oops", '{"b":"' + "y" * 90 + '"}'] if self.wild() else ['{"a":1}']
            )
            calls.append(ToolCall(id=call_id, name=name, arguments=arguments))
            self.open_calls.append((call_id, name))
            self.old_calls.append((call_id, name))
        self.add(
            Message(
                role=ASSISTANT,
                content=self.text() if self.chance(0.4) else "",
                reasoning_content="thinking" if self.chance(0.3) else "",
                tool_calls=tuple(calls),
            )
        )

    def answer_calls(self) -> None:
        n_answers = len(self.open_calls) if self.chance(0.8) else 1
        answers, self.open_calls = self.open_calls[:n_answers], self.open_calls[n_answers:]
        if self.wild():
            self.rng.shuffle(answers)
        one_each = self.wild()
        messages = [self.result(*answer) for answer in answers]
        if one_each:
            for message in messages:
                self.add(message, extensions={PER_CALL_RESULT: True} if self.chance(0.5) else {})
        elif messages:
            self.add(*messages)

    def result(self, call_id: str, name: str) -> Message:
        content = self.text(self.rng.choice([4, 30, 400])) if not self.wild() else ""
        return Message(role=TOOL, content=content, tool_id=call_id, tool_name=name if not self.wild() else "")

    def say(self) -> None:
        reasoning = "because" if self.chance(0.4) else ""
        self.add(Message(role=ASSISTANT, content=self.text(), reasoning_content=reasoning))

    def something_odd(self) -> None:
        what = self.rng.randint(0, 8)
        if what == 0 and self.old_calls:
            self.add(self.result(*self.rng.choice(self.old_calls)))
        elif what == 1:
            self.add(Message(role=USER, content=self.text()), author="user")
        elif what == 2:
            self.invocation_id = f"i{self.rng.randint(1, 99)}"
        elif what == 3:
            self.add(Message(role=ASSISTANT, content="part"), partial=True)
        elif what == 4:
            self.add(Message(role=ASSISTANT, content=self.text()), filter_key=self.rng.choice(["app/x", "other", ""]))
        elif what == 5:
            self.add(Message(role=SYSTEM, content="note"))
        elif what == 6:
            self.add(Message(role=ASSISTANT, content="unfinished"), done=False)
        elif what == 7:
            self.add(Message(role="", content=self.text()), author="user")
        else:
            self.add(Message(role=USER, content="For context: " + self.text()), author="user")

    def add(
        self,
        *messages: Message,
        author: str = "",
        partial: bool = False,
        done: bool = True,
        filter_key: str = "app",
        extensions: dict[str, object] | None = None,
    ) -> None:
        self.n_events += 1
        self.time_ns += 0 if self.wild() else self.rng.randint(1, 5)
        if not author:
            author = "helper" if self.foreign and self.wild() else "agent"
        self.session.append(
            Event(
                id="" if self.wild() and self.chance(0.2) else f"e{self.n_events}",
                author=author,
                time_ns=self.time_ns - (3 if self.wild() else 0),
                response=Response(
                    choices=tuple(Choice(message, index=i) for i, message in enumerate(messages)),
                    is_partial=partial,
                    done=done and not partial,
                ),
                request_id=self.request_id,
                invocation_id=self.invocation_id,
                branch="agent",
                filter_key=filter_key,
                extensions=extensions or {},
            )
        )

    def text(self, n_chars: int = 12) -> str:
        return "".join(self.rng.choice("abc de汉") for _ in range(n_chars)).strip() or "x"

    def summarise(self) -> None:
        """A summary that ends somewhere behind the last one."""
        events = [event for event in self.session.events if event.id]
        if not events:
            return
        last = events[-1 if self.chance(0.5) else self.rng.randrange(len(events))]
        boundary = SummaryBoundary("app", last.time_ns, "" if self.wild() else last.id)
        key = "app/x" if self.wild() else "app"
        self.session.summaries[key] = Summary(f"summary {self.n_events}", last.time_ns, boundary)

    def reread(self) -> None:
        """The session is read from a store again: another object, the same events."""
        self.session = self.session.clone()

    # --- who asks -------------------------------------------------------------------------------------

    def invocation(self, **changes: object) -> Invocation:
        facts: dict[str, object] = {
            "session": self.session,
            "agent_name": "agent",
            "invocation_id": self.invocation_id,
            "request_id": self.request_id,
            "filter_key": "app",
            "branch": "agent",
            "message": self.message,
        }
        return Invocation(**(facts | changes))  # type: ignore[arg-type]
