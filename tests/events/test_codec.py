from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import pytest

from events.codec import EVENT_TYPES, UPCASTERS, Event, decode_event, encode_event
from events.decisions import (
    FactsRouted,
    FactsSuperseded,
    GenerationPromoted,
    JudgedPair,
    PairsJudged,
    PairVerdict,
    Route,
    ScenesMerged,
    Supersession,
    Thresholds,
)
from events.errors import LogDamaged
from events.eventtree import CompactionUndone, NodesMerged, Policy, PolicyChanged, UnitMembers, UnitsPartitioned
from events.memory import (
    Admission,
    Alias,
    ExtractedFact,
    FactCorrected,
    FactPinned,
    FactRetracted,
    FactRole,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    Mention,
    ParkReason,
    Pointer,
    StateOf,
    Task,
    Usage,
    Word,
    WorkParked,
    WorkResumed,
)
from events.session import (
    ChunkClosed,
    Erasure,
    MemoryImported,
    Part,
    Replacement,
    ReplayStarted,
    SessionClosed,
    SessionErased,
    SessionForgotten,
    SessionReplayed,
    TimeSource,
    TurnConflicted,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserErased,
    UserForgotten,
)

GOLDEN = Path(__file__).parent / "golden"
A = bytes.fromhex("aa" * 16)
B = bytes.fromhex("bb" * 16)
C = bytes.fromhex("cc" * 16)
PROMPT = bytes.fromhex("dd" * 8)
USAGE = Usage(1, 2, 3, 4, 5, 6, 7, 8)

# What the golden files hold. A file that was released once must be read like this for ever.
TWO_FACTS = (
    ExtractedFact(
        text="Alice moved to Miami.",
        turns=(0, 2),
        time_start=1_719_792_000_000,
        time_end=1_719_878_399_999,
        role=FactRole.EVENT,
        mentions=(Mention("Alice", False), Mention("Miami", True)),
        topics=("moving",),
        state=StateOf("Alice", "home"),
    ),
    ExtractedFact(text="Alice likes the sea.", turns=(1,), time_start=-5, time_end=-5),
)
MIAMI = ExtractedFact("Alice moved to Miami.", (0,), 1_719_792_000_000, 1_719_878_399_999, FactRole.EVENT)
TAMPA = dataclasses.replace(MIAMI, text="Alice moved to Tampa.")
ERASURE = Erasure(
    first=1,
    last=39,
    turns=7,
    extractions=3,
    summaries=2,
    groups=1,
    decisions=4,
    words=57,
    names=13,
    dead_letters=1,
    bus_erased=8,
    bus_left=2,
    bus_left_until=1_719_824_400_000,
    tombstoned=True,
    admitted_again=5,
    scanned_files=9,
    scanned_bytes=81_920,
    windows=640,
    sampled=True,
    residues=0,
)
EXPECTED: dict[str, Event] = {
    "turn.recorded.v1": TurnRecorded(
        content="I moved to Miami.\u0000 我搬到了迈阿密。",
        role="user",
        turn_id="m-17",
        revision=0,
        name="Alice",
        agent_id=None,
        metadata='{"channel":"home"}',
        parts=(
            Part("image_url", "https://example.org/a.png", "the harbour"),
            Part("file", "file-7", None),
        ),
        time_source=TimeSource.ZONE_ASSUMED,
    ),
    "turn.conflicted.v1": TurnConflicted(stands=12, content="I moved to Tampa.", role="user", name=None),
    "memory.imported.v1": MemoryImported(
        content="Alice is allergic to nuts.",
        turn_id="x-1",
        metadata='{"from":"mem0"}',
        embedding="AAAAPwAAgL8=",
        embedding_model="small-2",
    ),
    "chunk.closed.v1": ChunkClosed(last_turn=31),
    "session.closed.v1": SessionClosed(),
    "session.forgotten.v1": SessionForgotten(),
    "replay.started.v1": ReplayStarted(),
    "session.replayed.v1": SessionReplayed(started=30, replaced=(Replacement(5, 31), Replacement(9, 33))),
    "session.erased.v1": SessionErased(forgotten=40, erasure=ERASURE),
    "user.forgotten.v1": UserForgotten(),
    "user.erased.v1": UserErased(
        forgotten=40, erasure=dataclasses.replace(ERASURE, bus_left=0, bus_left_until=None, tombstoned=False)
    ),
    "turn.revised.v1": TurnRevised(
        turn=A,
        revision=2,
        content="I moved to Tampa.",
        role="user",
        turn_id="m-17",
        name="Alice",
        metadata='{"edited":true}',
        time_source=TimeSource.BUS,
    ),
    "turn.retracted.v1": TurnRetracted(turn=A),
    # Version 1 knew no revisions: it covered what it read, and read nothing besides.
    "facts.extracted.v1": FactsExtracted(
        generation=1,
        chunk=A,
        turns=(3, 4, 6),
        context=(),
        covers=(3, 4, 6),
        replaces=None,
        model="offline-1",
        facts=TWO_FACTS,
    ),
    "facts.extracted.v2": FactsExtracted(
        generation=1,
        chunk=A,
        turns=(3, 4, 6),
        context=(2,),
        covers=(3, 4, 5),
        replaces=8,
        model="offline-1",
        facts=TWO_FACTS,
    ),
    "facts.admitted.v1": FactsAdmitted(
        generation=1, admissions=(Admission(A, Pointer(9, 0)), Admission(B, Pointer(9, 1)))
    ),
    "interval.summarised.v1": IntervalSummarised(
        generation=2, digest=A, sources=(3, 9), model="offline-1", text="A move."
    ),
    "units.partitioned.v1": UnitsPartitioned(generation=1, units=(UnitMembers(A, (A, B)),)),
    "nodes.merged.v1": NodesMerged(
        generation=1, unit=A, members=(A, B), sources=(9, 11), model="offline-1", text="One text."
    ),
    "fact.retracted.v1": FactRetracted(fact=A, turns=(3,), read=(2, 3), was=MIAMI),
    "fact.corrected.v1": FactCorrected(fact=A, turns=(3,), read=(2, 3), was=MIAMI, says=TAMPA),
    "fact.pinned.v1": FactPinned(fact=A, pinned=False, replaces=17, turns=(3,), read=(2, 3), says=MIAMI),
    "work.parked.v1": WorkParked(
        task=Task.EXTRACT, request=B, reason=ParkReason.ANSWER_INVALID, turns=(3, 4), covers=(3, 5)
    ),
    # Since then the answers say what was asked, and all work what it took.
    "facts.extracted.v3": FactsExtracted(
        generation=1,
        chunk=A,
        turns=(3, 4, 6),
        context=(2,),
        covers=(3, 4, 5),
        replaces=8,
        model="offline-1",
        facts=TWO_FACTS,
        request=C,
        usage=USAGE,
        missed=2,
    ),
    "interval.summarised.v2": IntervalSummarised(
        generation=2, digest=A, sources=(3, 9), model="offline-1", text="A move.", request=C, usage=USAGE
    ),
    "nodes.merged.v2": NodesMerged(
        generation=1,
        unit=A,
        members=(A, B),
        sources=(9, 11),
        model="offline-1",
        text="One text.",
        request=C,
        usage=USAGE,
    ),
    "work.parked.v2": WorkParked(
        task=Task.EXTRACT,
        request=B,
        reason=ParkReason.ANSWER_INVALID,
        turns=(3, 4),
        covers=(3, 5),
        usage=USAGE,
    ),
    # Since then an event tells of several units, and what a group costs.
    "units.partitioned.v2": UnitsPartitioned(generation=1, units=(UnitMembers(A, (A, B)), UnitMembers(C, (C,)))),
    "nodes.merged.v3": NodesMerged(
        generation=1,
        unit=A,
        members=(A, B),
        sources=(9, 11),
        model="offline-1",
        text="One text.",
        request=C,
        usage=USAGE,
        loss=12345,
        extractive=True,
    ),
    "compaction.undone.v1": CompactionUndone(generation=1, facts=(A, B)),
    "policy.changed.v1": PolicyChanged(
        Policy(
            online=False,
            ratio=700,
            min_age_s=604800,
            never_merged=(FactRole.PREFERENCE, FactRole.PLAN),
        )
    ),
    # Since then names that were given for one entity are read.
    "facts.extracted.v4": FactsExtracted(
        generation=1,
        chunk=A,
        turns=(3, 4, 6),
        context=(2,),
        covers=(3, 4, 5),
        replaces=8,
        model="offline-1",
        facts=TWO_FACTS,
        request=C,
        usage=USAGE,
        missed=2,
        aliases=(Alias("Alice", "Ally", 1),),
    ),
    "facts.routed.v1": FactsRouted(generation=1, routes=(Route(A, (B, C)), Route(B, ()))),
    "scenes.merged.v1": ScenesMerged(generation=1, kept=A, absorbed=(B,)),
    "facts.superseded.v1": FactsSuperseded(
        generation=1, supersessions=(Supersession(A, B, 1_719_792_000_000), Supersession(C, None, None))
    ),
    "generation.promoted.v1": GenerationPromoted(
        generation=1,
        embedder="offline-hashing-1-1024",
        thresholds=Thresholds(95_000, 70_000, 65_000, 55_000, 90_000),
    ),
    "pairs.judged.v1": PairsJudged(
        generation=1,
        pairs=(JudgedPair(Pointer(9, 0), Pointer(5, 1), PairVerdict.SUPERSEDES),),
        sources=(5, 9),
        model="small-2",
        request=C,
        usage=USAGE,
    ),
    # Since then answers say which wording of the question they are to.
    "facts.extracted.v5": FactsExtracted(
        generation=1,
        chunk=A,
        turns=(3, 4, 6),
        context=(2,),
        covers=(3, 4, 5),
        replaces=8,
        model="offline-1",
        facts=TWO_FACTS,
        request=C,
        usage=USAGE,
        missed=2,
        aliases=(Alias("Alice", "Ally", 1),),
        prompt=PROMPT,
    ),
    "interval.summarised.v3": IntervalSummarised(
        generation=2,
        digest=A,
        sources=(3, 9),
        model="offline-1",
        text="A move.",
        request=C,
        usage=USAGE,
        prompt=PROMPT,
    ),
    "nodes.merged.v4": NodesMerged(
        generation=1,
        unit=A,
        members=(A, B),
        sources=(9, 11),
        model="offline-1",
        text="One text.",
        request=C,
        usage=USAGE,
        loss=12345,
        extractive=True,
        prompt=PROMPT,
    ),
    "pairs.judged.v2": PairsJudged(
        generation=1,
        pairs=(JudgedPair(Pointer(9, 0), Pointer(5, 1), PairVerdict.SUPERSEDES),),
        sources=(5, 9),
        model="small-2",
        request=C,
        usage=USAGE,
        prompt=PROMPT,
    ),
    "work.resumed.v1": WorkResumed(parked=7, task=Task.EXTRACT, request=B, turns=(3, 4), covers=(3, 5)),
}


def read_golden(name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((GOLDEN / f"{name}.json").read_text("utf-8")))


def body_bytes(golden: dict[str, Any]) -> bytes:
    return json.dumps(golden["body"], separators=(",", ":"), ensure_ascii=False).encode()


def test_every_event_type_has_a_golden_file_of_its_present_version() -> None:
    wanted = {f"{kind.wire_name}.v{kind.version}" for kind in EVENT_TYPES.values()}

    assert wanted <= {file.stem for file in GOLDEN.glob("*.json")}
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_golden_file_decodes_to_the_event_written_by_hand(name: str) -> None:
    golden = read_golden(name)

    assert set(golden) == {"type", "version", "description", "body", "words"}
    assert f"{golden['type']}.v{golden['version']}" == name
    assert golden["description"]
    event = decode_event(golden["type"], golden["version"], body_bytes(golden), golden["words"])
    assert event == EXPECTED[name]
    assert type(event) is EVENT_TYPES[golden["type"]]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_event_of_today_is_written_byte_for_byte_as_its_golden_file_says(name: str) -> None:
    golden = read_golden(name)
    if golden["version"] != EVENT_TYPES[golden["type"]].version:
        pytest.skip("an older version is read, never written")

    assert encode_event(EXPECTED[name]) == (body_bytes(golden), tuple(golden["words"]))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_body_holds_no_string_but_enumerations_and_hex(name: str) -> None:
    allowed = {each.value for kind in StrEnum.__subclasses__() for each in kind}

    for text in _strings(read_golden(name)["body"]):
        assert text in allowed or bytes.fromhex(text)


def _strings(body: Any) -> list[str]:
    if isinstance(body, str):
        return [body]
    children = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return [text for child in children for text in _strings(child)]


def test_a_type_that_this_release_does_not_know_is_damage() -> None:
    with pytest.raises(LogDamaged, match=r"facts\.dreamt version 1"):
        decode_event("facts.dreamt", 1, b"{}", ())


def test_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(LogDamaged, match=r"session\.closed version 2"):
        decode_event("session.closed", 2, b"{}", ())


def test_a_version_without_an_upcaster_is_damage() -> None:
    with pytest.raises(LogDamaged):
        decode_event("session.closed", 0, b"{}", ())


def test_an_older_version_is_upcast_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UPCASTERS, ("chunk.closed", -1), lambda old: {"turn": old["t"]})
    monkeypatch.setitem(UPCASTERS, ("chunk.closed", 0), lambda old: {"last_turn": old["turn"]})

    assert decode_event("chunk.closed", -1, b'{"t":5}', ()) == ChunkClosed(5)


SECRET_WORDS = ("something private", "user")


@pytest.mark.parametrize(
    ("wire_name", "body", "words"),
    [
        ("turn.recorded", b"", SECRET_WORDS),
        ("turn.recorded", b"{", SECRET_WORDS),
        ("turn.recorded", b"\xff\xfe", SECRET_WORDS),
        ("turn.recorded", b"null", SECRET_WORDS),
        ("turn.recorded", b"[]", SECRET_WORDS),
        ("turn.recorded", b'"text"', SECRET_WORDS),
        ("turn.recorded", b'{"content":0,"role":1}', SECRET_WORDS),
        ("chunk.closed", b'{"last_turn":"text in place of a number"}', ()),
        ("chunk.closed", b'{"last_turn":null}', ()),
        ("turn.conflicted", b'{"stands":1,"content":0,"role":2,"name":null}', SECRET_WORDS),
        ("turn.conflicted", b'{"stands":1,"content":"0","role":1,"name":null}', SECRET_WORDS),
        ("work.parked", b'{"task":"dream","request":"","reason":"model_failed","turns":[]}', ()),
        ("work.parked", b'{"task":"extract","request":"xy","reason":"model_failed","turns":[]}', ()),
        ("work.parked", b'{"task":"extract","request":"","reason":"model_failed","turns":7}', ()),
        ("facts.admitted", b'{"generation":1,"admissions":[{"fact":"aa","occurrence":[1]}]}', ()),
        ("facts.admitted", b'{"generation":1,"admissions":[{"fact":7,"occurrence":[1,2]}]}', ()),
    ],
)
def test_a_malformed_body_is_damage_and_its_words_are_not_told(
    wire_name: str, body: bytes, words: tuple[str, ...]
) -> None:
    with pytest.raises(LogDamaged, match=wire_name.replace(".", r"\.")) as caught:
        decode_event(wire_name, 1, body, words)

    assert "private" not in f"{caught.value!r} {caught.value.__cause__!r}"


class Pair(NamedTuple):
    label: str
    n: int


class Odd(NamedTuple):
    label: Word
    n: int


def _event_with(hint: object) -> Event:
    """An event type with one field of this type, holding a text."""
    kind = dataclasses.make_dataclass(
        "Sneaky", [("field", hint)], frozen=True, namespace={"wire_name": "sneaky", "version": 1}
    )
    return cast("Event", kind("words of someone"))


@pytest.mark.parametrize(
    "hint",
    [
        str,
        str | None,
        tuple[str, ...],
        tuple[str, ...] | None,
        tuple[tuple[str, ...], ...],
        tuple[int, str],
        tuple[str],
        list[str],
        dict[str, int],
        int | str,
        Literal["words of someone"],
        Any,
        object,
        Pair,
        Odd,
        tuple[Pair, ...],
    ],
)
def test_no_text_but_a_word_can_be_a_field_of_an_event(hint: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_event(_event_with(hint))


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class Outer:
    wire_name: ClassVar = "outer"
    version: ClassVar = 1
    inner: tuple[Inner, ...]


def test_no_text_hides_in_a_record_inside_an_event() -> None:
    with pytest.raises(TypeError, match="bare str"):
        encode_event(cast("Event", Outer((Inner("words of someone"),))))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda text: ChunkClosed(text),
        lambda text: WorkParked(Task.EXTRACT, text, ParkReason.MODEL_FAILED),
        lambda text: WorkParked(text, A, ParkReason.MODEL_FAILED),
        lambda text: UnitsPartitioned(1, (UnitMembers(A, (text,)),)),
        lambda text: FactsExtracted(1, A, (text,), (), (), None, "m", ()),
    ],
)
def test_text_that_got_past_the_types_never_reaches_the_body(wrong: Callable[[Any], Event]) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_event(wrong("words of someone"))
