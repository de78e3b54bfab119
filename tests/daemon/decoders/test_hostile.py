"""Messages that were bent at random: each becomes events or a dead letter, and no reason quotes what was said."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import turn_subject
from daemon.decoders.formats import FORMATS
from events.dead_letters import DeadLetter
from events.envelope import NewEvent
from events.time import EARLIEST, LATEST
from tests.daemon.decoders.made import SECRET_WORDS, STREAM, a_decoder, a_message

ROUNDS = 400
MONDAY_MS = 1_719_824_400_000
IDS = {"user_id": "alice", "session_id": "s1"}
TURN = {"role": "user", "content": SECRET_WORDS, "name": "Alice", "timestamp": MONDAY_MS, "metadata": {"a": [1]}}
CHAT = {
    **IDS,
    **TURN,
    "id": "m-1",
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": SECRET_WORDS}}],
    "parts": [{"type": "image_url", "image_url": {"url": "x"}}],
}
WELL_FORMED: dict[str, list[dict[str, Any]]] = {
    "native": [
        {"type": "turn", "id": "m-1", **IDS, **TURN},
        {"type": "turns", **IDS, "turns": [TURN, TURN]},
        {
            "type": "memory",
            "id": "x",
            **IDS,
            "content": SECRET_WORDS,
            "embedding": [0.5, 1],
            "embedding_model": "m",
        },
        {"type": "session.close", **IDS, "timestamp": 5},
    ],
    "openai": [
        CHAT,
        {**IDS, "id": "b", "messages": [CHAT, {"role": "tool", "tool_call_id": "c", "content": "x"}]},
    ],
    "cloudevents": [
        {
            "specversion": "1.0",
            "id": "e",
            "source": "/a",
            "type": "ai.chat.turn.v1",
            "data": CHAT,
            "time": "2024-07-01T09:00:00Z",
        }
    ],
    "openclaw": [
        {
            "id": "c",
            "ts": MONDAY_MS,
            "agent": "main",
            "session": "main:matrix:alice",
            "type": "msg.in",
            "payload": {"from": "alice", "content": SECRET_WORDS, "timestamp": MONDAY_MS},
        }
    ],
}
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 2**70, 1e300, -0.5, "", " ", "x" * 2000, SECRET_WORDS, "\x00", "🙂"),
    *(
        [],
        {},
        [None],
        [[]],
        {"a": None},
        [{"type": "text"}],
        {"type": "turn"},
        "2024-02-30",
        "9999-12-31T23:59:59-14:00",
    ),
)


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a body, from the outside in."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in inner:
        yield (*path, name)
        yield from places(value, (*path, name))


def bent(body: Any, dice: random.Random) -> Any:
    """A copy with one place removed, renamed, or of another value."""
    body = msgspec.json.decode(msgspec.json.encode(body))
    *outer, name = dice.choice(list(places(body)))
    holder = body
    for each in outer:
        holder = holder[each]
    how = dice.random()
    if how < 0.2:
        del holder[name]
    elif how < 0.3 and isinstance(holder, dict):
        holder[dice.choice([SECRET_WORDS, "text", "user", "created_at", "type", "specversion"])] = holder.pop(name)
    else:
        holder[name] = dice.choice(ODD_VALUES)
    return body


def damaged(payload: bytes, dice: random.Random) -> bytes:
    """Bytes cut off, or another one among them."""
    at = dice.randrange(len(payload))
    return payload[:at] if dice.random() < 0.5 else payload[:at] + bytes([dice.randrange(256)]) + payload[at + 1 :]


def check(became: tuple[NewEvent, ...] | DeadLetter, message: BusMessage) -> None:
    if isinstance(became, DeadLetter):
        assert became.reason
        assert SECRET_WORDS not in became.reason
        assert became.bus.seq == message.stream_seq
        return
    for event in became:
        assert event.user_id
        assert event.session_id
        assert EARLIEST <= event.happened_at <= LATEST
        assert event.bus is not None


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_comes_is_events_or_a_dead_letter(name: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    decoders = (a_decoder(name), a_decoder(name, user="{2}", session="{payload.room}"), a_decoder(name, ours=True))
    letters = events = 0
    for round_ in range(ROUNDS):
        body: Any = dice.choice(WELL_FORMED[name])
        for _ in range(dice.randint(0, 3)):
            body = bent(body, dice) if body else body
        payload = msgspec.json.encode(body)
        if dice.random() < 0.1:
            payload = damaged(payload, dice)
        headers = {"ce-id": "e", "ce-source": "/b"} if dice.random() < 0.1 else {}
        subject = dice.choice(["chat.alice", turn_subject("alice", "s1"), "memforest", "a..b"])
        message = BusMessage(subject, payload, headers, STREAM, round_, MONDAY_MS)
        for decoder in decoders:
            became = decoder.decode(message, "e1")
            check(became, message)
            assert decoder.decode(message, "e1") == became, "the same message is the same, always"
            letters += isinstance(became, DeadLetter)
            events += not isinstance(became, DeadLetter)

    assert letters > ROUNDS / 10
    assert events > ROUNDS / 10


def test_the_decoders_agree_on_what_they_are_all_given() -> None:
    """A native message is read alike by each, wherever it comes from."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(ROUNDS // 4):
        body = bent(dice.choice(WELL_FORMED["native"]), dice)
        if body.get("type") not in ("turn", "turns", "memory", "session.close") or "specversion" in body:
            continue  # what is not ours may be theirs
        became = [a_decoder(name).decode(a_message(body), "e1") for name in FORMATS]

        assert all(each == became[0] for each in became), body
