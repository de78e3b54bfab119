"""A snapshot of a Memory: the same Memory again, no word in it, and none of one that hides something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.envelope import NewEvent, RecordedEvent
from events.hindsight import Hindsight
from events.memory import ExtractedFact, FactsExtracted, Mention
from events.withdrawal import Void
from projections.digests import digest_memory
from projections.facts.admission import plan_admissions
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from projections.snapshot import Reader, SnapshotUnusable, Sources, can_freeze, freeze, made_by, thaw
from tests.builders import KEYS, MONDAY, a_closing, a_forgetting, a_turn, an_extraction, as_recorded, lineage_of
from tests.projections.thawing import drain, thawed

ALICE = KEYS.user("alice")
PARAMETERS = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=0)
SESSIONS = ("s1", "s2", "s3", "s9")
NAMES = {KEYS.session("alice", session): session for session in SESSIONS} | {ALICE: "alice"}


class Told:
    """A Memory with the log it was folded from."""

    def __init__(self) -> None:
        self.log: list[RecordedEvent] = []
        self.memory = Memory(ALICE, PARAMETERS)

    def tell(self, new: NewEvent) -> None:
        recorded = as_recorded(new, len(self.log) + 1)
        self.log.append(recorded)
        self.memory.apply(recorded)

    def extract(self, session: str, n: int, *, admit: bool = True) -> None:
        """Read two facts that name Zyxomark from the last two turns of a session."""
        turns = (self.memory.user_seq - 1, self.memory.user_seq)
        extraction = an_extraction(turns, session_id=session)
        assert isinstance(extraction.event, FactsExtracted)
        fact = ExtractedFact(f"Met Zyxomark {n}.", (0,), MONDAY, MONDAY, mentions=(Mention("Zyxomark"),))
        facts = (fact, replace(fact, text=f"Saw Zyxomark {n}.", turns=(1,)))
        self.tell(replace(extraction, event=replace(extraction.event, facts=facts)))
        for admitted, _ in plan_admissions(self.memory.canon, 1) if admit else ():
            lineage = lineage_of([session])
            key = f"admission/{len(self.log)}"
            self.tell(NewEvent("alice", None, admitted, key, MONDAY, lineage=lineage, basis=self.memory.user_seq))

    def events(self) -> dict[int, RecordedEvent]:
        return {each.seq: each for each in self.log}


@pytest.fixture
def told() -> Told:
    """Three closed sessions with facts about one entity, one of them not admitted, and a chunk that is open."""
    told = Told()
    for n, session in enumerate(SESSIONS[:3]):
        told.tell(a_turn(f"I met Zyxomark {n}.", session_id=session, turn_id="t1", name="Alicemark"))
        told.tell(a_turn(f"we saw Zyxomark {n}", session_id=session, turn_id="t2", name="Alicemark"))
        told.extract(session, n, admit=n < 2)
        told.tell(a_closing(session))
    told.tell(a_turn("Openmark is open", session_id="s9", turn_id="t1", name="Alicemark"))
    return told


def test_what_was_frozen_is_thawed(told: Told) -> None:
    memory = thawed(told.memory, told.log)

    assert digest_memory(memory) == digest_memory(told.memory)
    assert Scope(ScopeKind.ENTITY, "zyxomark") in memory.members
    assert (memory.user_id, memory.session_ids) == ("alice", told.memory.session_ids)
    assert memory.scopes.owner == "alicemark"
    assert memory.pending() == told.memory.pending() > 0
    assert memory.open_chunk(KEYS.session("alice", "s9")) == told.memory.open_chunk(KEYS.session("alice", "s9"))


def test_what_comes_afterwards_is_folded_as_if_nothing_had_been(told: Told) -> None:
    memory = thawed(told.memory, told.log)
    for n, recorded in enumerate(
        (
            a_turn("and on", session_id="s9", turn_id="t2", name="Alicemark"),
            a_turn("Zyxomark went", session_id="s1", turn_id="t3", name="Alicemark"),
            a_closing("s1", key="2"),
        ),
        start=memory.user_seq + 1,
    ):
        memory.apply(as_recorded(recorded, n))
        told.memory.apply(as_recorded(recorded, n))
    plans = [plan_admissions(each.canon, 1) for each in (memory, told.memory)]

    assert plans[0] == plans[1] != []
    assert digest_memory(memory) == digest_memory(told.memory)
    assert list(memory.forest.plan_summaries()) == list(told.memory.forest.plan_summaries())


def test_no_word_is_in_it(told: Told) -> None:
    content = drain(freeze(told.memory)).lower()

    assert [
        word for word in (b"zyxomark", b"alicemark", b"openmark", b"met", b"s9", b"alice") if word in content
    ] == []
    assert ALICE not in content


def test_a_snapshot_is_of_no_use_under_another_users_key(told: Told) -> None:
    reader = Reader(drain(freeze(told.memory)), b"another user")

    with pytest.raises(SnapshotUnusable):
        drain(thaw(reader, Sources(told.events(), NAMES), Memory(b"another user", PARAMETERS)))


def test_a_memory_that_hides_something_is_not_frozen(told: Told) -> None:
    fine = can_freeze(told.memory)
    told.tell(a_forgetting("s1"))

    assert fine
    assert not can_freeze(told.memory)
    with pytest.raises(SnapshotUnusable):
        drain(freeze(told.memory))


def test_one_that_hides_something_before_it_is_done_is_not_frozen_either(told: Told) -> None:
    steps = freeze(told.memory)
    next(steps)
    told.memory.forget_session(KEYS.session("alice", "s1"))

    with pytest.raises(SnapshotUnusable):
        drain(steps)


def test_a_label_whose_words_are_gone_makes_a_snapshot_unusable(told: Told) -> None:
    content = drain(freeze(told.memory))
    events = {
        seq: replace(each, event=None) if each.type == "facts.extracted" else each
        for seq, each in told.events().items()
    }

    with pytest.raises(SnapshotUnusable):
        thawed(told.memory, events.values(), content)


@pytest.mark.parametrize("content", [b"", b"\x90", b"no snapshot at all", b"\xc1"])
def test_what_is_no_snapshot_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(SnapshotUnusable):
        Reader(content, ALICE)


def test_other_parameters_or_another_release_make_other_snapshots() -> None:
    other = replace(PARAMETERS, chunk_turns=3)
    hashes = {made_by(PARAMETERS, "1"), made_by(other, "1"), made_by(PARAMETERS, "2")}

    assert len(hashes) == 3
    assert made_by(PARAMETERS, "1") in hashes


@pytest.mark.parametrize(
    ("hindsight", "undoes"),
    [
        (Hindsight(9), False),
        (Hindsight(9, voids={1: Void(5, erases=False)}, tombstones={b"s": 4}), False),
        (Hindsight(9, voids={1: Void(6, erases=False)}), True),
        (Hindsight(9, tombstones={b"s": 6}), True),
    ],
)
def test_what_was_undone_behind_a_user_seq_is_known(hindsight: Hindsight, undoes: bool) -> None:
    assert hindsight.undoes_after(5) is undoes
