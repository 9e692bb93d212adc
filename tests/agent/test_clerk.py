"""The agent of the notebook: tools that read files, a summary that hides a fact, and a history that brings it back."""

from __future__ import annotations

import asyncio
import csv
import json
from dataclasses import replace
from typing import Any

import pytest

import workbench as wb
from workbench.agent.flow import SentRequest
from workbench.demo import datasets_folder
from workbench.demo.clerk import scripted_clerk
from workbench.model.extractive import ExtractiveModel
from workbench.replay.cache import part_text

KEY = wb.SessionKey("desk", "user-1", "session-1")
PARCELS = ("0042", "0052", "0099", "0007", "0066")
QUESTION = "Which reference do I quote for the claim?"


class Desk:
    """One session at the desk, and what was asked of its models and tools."""

    def __init__(self) -> None:
        project = json.loads((datasets_folder() / "zh-en-coding" / "project.json").read_text(encoding="utf-8"))
        files = project["zh-en-coding-01"]["commits"][0]["files"]
        self.orders = {row["order_id"]: row for row in csv.DictReader(files["orders/2026-03-09.csv"])}
        self.bills = {
            row["order_id"]: int(row["fee_cents"]) for row in csv.DictReader(files["statements/2026-03-09.csv"])
        }
        self.looked_up: list[str] = []
        self.sent: list[SentRequest] = []
        self.agent = wb.LLMAgent(
            name="clerk",
            model=scripted_clerk(),
            instruction="You work at a parcel desk.",
            tools=[wb.FunctionTool(self.look_up_order), wb.FunctionTool(self.look_up_bill)],
            settings=wb.RunConfig(agent={"add_session_summary": True}).agent,
        )
        summarizer = wb.Summarizer(ExtractiveModel(), event_threshold=10, max_summary_words=25)
        self.service = wb.InMemorySessionService(summarizer=summarizer)

    def look_up_order(self, order_id: str) -> dict[str, Any]:
        """Postcode, weight and size of a parcel."""
        self.looked_up.append(order_id)
        return self.orders[order_id]

    def look_up_bill(self, order_id: str) -> dict[str, Any]:
        """What the carrier billed for a parcel, in cents."""
        return {"order_id": order_id, "fee_cents": self.bills[order_id]}

    async def ask(self, question: str, *, on_demand: bool = False) -> list[wb.Event]:
        """The events of one turn, once its summary is made."""
        settings = self.agent.settings.replace(enable_on_demand_session=on_demand)
        agent = replace(self.agent, settings=settings)
        runner = wb.Runner(app_name="desk", agent=agent, session_service=self.service, on_request=self.sent.append)
        events = [event async for event in runner.run(KEY.user_id, KEY.session_id, question)]
        await self.service.wait_for_summaries()
        return events

    async def morning(self, reference: str) -> None:
        """Six turns; the first one names the reference."""
        await self.ask(f"The carrier has opened a claim, reference {reference}. Begin with PX-260309-0118.")
        for number in PARCELS:
            await self.ask(f"PX-260309-{number}, please.")


def called(events: list[wb.Event]) -> list[str]:
    return [call.name for event in events for call in event.message.tool_calls]


@pytest.mark.parametrize("reference", ["CLM-4471", "CLM-90210"])
def test_history_on_demand_brings_back_what_a_summary_has_hidden(reference: str) -> None:
    """ASM-OND-01, ASM-OND-03, ASM-OND-10, ASM-OND-20, SUM-RNR-01: the whole way, with nothing but public parts."""

    async def main() -> None:
        desk = Desk()
        async with desk.service:
            await desk.morning(reference)
            session = await desk.service.get_session(KEY)
            assert session is not None
            summary = await desk.service.get_session_summary_text(session)
            assert summary
            assert reference not in summary
            assert reference in session.events[0].message.content
            assert reference not in "".join(map(part_text, desk.sent[-1].request.messages))
            without = await desk.ask(QUESTION)
            assert called(without) == []
            assert without[-1].message.content == "I can no longer see a claim reference in this conversation."
            remembering = await desk.ask(QUESTION, on_demand=True)
            assert called(remembering) == ["session_search", "session_load"]
            assert remembering[-1].message.content == f"The claim reference is {reference}."

    asyncio.run(main())


def test_the_tools_are_called_with_what_the_user_named_and_their_results_are_reported() -> None:
    """ASM-RUN-09: two calls of one answer are one event with two results."""

    async def main() -> None:
        desk = Desk()
        async with desk.service:
            events = await desk.ask("PX-260309-0118, please.")
            assert called(events) == ["look_up_order", "look_up_bill"]
            (results,) = [event for event in events if event.message.tool_id]
            assert [message.tool_name for message in results.messages] == ["look_up_order", "look_up_bill"]
            assert events[-1].message.content == "PX-260309-0118 weighs 5.0 kg; the carrier billed 51.95 yuan."
            assert desk.looked_up == ["PX-260309-0118"]
            unknown = await desk.ask("PX-260309-9999, please.")
            assert "callable tool execution failed" in unknown[-1].message.content
            assert (await desk.ask("Thank you."))[-1].message.content == "Noted."

    asyncio.run(main())


def test_a_reference_in_sight_is_quoted_without_a_search() -> None:
    """ASM-OND-01: the tools are offered, and not needed."""

    async def main() -> None:
        desk = Desk()
        async with desk.service:
            await desk.ask("The claim has the reference CLM-1.")
            events = await desk.ask(QUESTION, on_demand=True)
            assert {tool.name for tool in desk.sent[-1].request.tools} >= {"session_search", "session_load"}
            assert (called(events), events[-1].message.content) == ([], "The claim reference is CLM-1.")

    asyncio.run(main())


def test_what_was_never_said_is_not_made_up() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.service:
            await desk.morning("to follow")
            events = await desk.ask(QUESTION, on_demand=True)
            assert called(events)[0] == "session_search"
            assert events[-1].message.content == "I can no longer see a claim reference in this conversation."

    asyncio.run(main())
