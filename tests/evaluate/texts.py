"""Small texts of our own in several scripts, and conversations made of them."""

from __future__ import annotations

from random import Random

from workbench.model.types import ASSISTANT, USER, Choice, Message, Response, Usage
from workbench.recordings.types import Conversation
from workbench.session.types import Event

PIECES = {
    "zh": [
        "订单还没有发货",
        "请帮我查一下物流",
        "您好，已经为您登记",
        "退款会在三天内到账",
        "这个地址不在配送范围",
        "谢谢，再见。",
    ],
    "ja": [
        "注文はまだ届いていません",
        "配送状況をご確認ください",
        "ありがとうございます。",
        "返金は三日以内です",
        "カードで払いました",
    ],
    "ko": [
        "주문이 아직 도착하지 않았어요",
        "배송 상태를 확인해 주세요",
        "감사합니다",
        "환불은 삼일 안에 됩니다",
        "카드로 결제했어요",
    ],
    "en": [
        "the order has not arrived yet",
        "please check where it is now",
        "thank you, that is all I need",
        "a refund takes three days",
    ],
    "code": [
        '{"order_id": "A-17", "state": "sent"}',
        'result = query(id="B-2", limit=10)',
        "if (x[0] == y) { return f(x); }",
    ],
    "digits": ["7731 2209 4415", "2026-03-02 09:12", "13800138000"],
}


def texts(n: int, *, seed: int = 0, kinds: tuple[str, ...] = ("zh",), longest: int = 4) -> list[str]:
    """`n` messages, each of a few pieces of one kind."""
    rng = Random(seed)
    return [
        " ".join(rng.choice(PIECES[kind]) for _ in range(rng.randint(1, longest)))
        for kind in (rng.choice(kinds) for _ in range(n))
    ]


def conversation(name: str, said: list[str], usages: list[int] | None = None, **more: object) -> Conversation:
    """User and assistant in turn; `usages` are the prompt tokens that each answer reports."""
    events = []
    reported = iter(usages or [])
    for i, text in enumerate(said):
        role = ASSISTANT if i % 2 else USER
        message = Message(role=role, content=text)
        usage = Usage(prompt_tokens=next(reported)) if role == ASSISTANT and usages else None
        response = Response(choices=(Choice(message=message),), usage=usage)
        events.append(
            Event(id=f"{name}:{i:04d}", author=role, time_ns=(i + 1) * 10**9, filter_key="replay", response=response)
        )
    return Conversation(id=name, events=tuple(events), **more)


def conversations(n: int, *, messages: int = 20, seed: int = 0, kinds: tuple[str, ...] = ("zh",)) -> list[Conversation]:
    """`n` conversations of their own words."""
    return [conversation(f"c{i:02d}", texts(messages, seed=seed * 1000 + i, kinds=kinds)) for i in range(n)]
