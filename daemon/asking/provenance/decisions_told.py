"""What was decided on facts, as the log tells it: which reading joined which fact, how, and which state ended.

The fold keeps what came of a decision and not the event, so those are looked for among the last decisions on the
sessions of the facts that are shown.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from events.decisions import FactsSuperseded, PairsJudged, PairVerdict
from events.envelope import RecordedEvent, Reference
from events.memory import FactId, FactsAdmitted, Pointer
from events.reading import read_events
from events.session import MemoryImported
from projections.facts.canonical import Fact, Occurrence, Pair, found_fact

# Of more decisions on the sessions in question the last ones are looked at: a tenth of a second.
DECISIONS_MAX = 1_000
# Sessions whose decisions are looked for; a statement takes so many variables easily.
SESSIONS_MAX = 500


@dataclass(slots=True)
class Decisions:
    """The decisions that stand, each with the event that says it, in the order of the log."""

    admitted: dict[Pointer, list[tuple[FactId, RecordedEvent]]] = field(
        default_factory=dict[Pointer, list[tuple[FactId, RecordedEvent]]]
    )
    ended: dict[FactId, RecordedEvent] = field(default_factory=dict[FactId, RecordedEvent])
    judged: dict[Pair, RecordedEvent] = field(default_factory=dict[Pair, RecordedEvent])


@dataclass(frozen=True, slots=True)
class Joining:
    """How a reading came to its fact: by which rule, which event says so, and which reading it is like.

    `took_up`: the fact that it was part of before. `judged`: the event in which a model said so.
    """

    rule: str
    event: RecordedEvent | None
    like: Pointer | None = None
    took_up: FactId | None = None
    judged: RecordedEvent | None = None


def find_decisions(
    connection: sqlite3.Connection, sessions: Collection[Reference], to_user_seq: int
) -> list[RecordedEvent]:
    """The last decisions on facts of these sessions, up to a user_seq, in the order of the log."""
    asked = sorted(sessions)[:SESSIONS_MAX]
    marks = ",".join("?" * len(asked))
    rows = connection.execute(
        f"""SELECT DISTINCT e.seq FROM lineage l JOIN events e ON e.seq = l.seq
            WHERE l.session IN ({marks}) AND e.user_seq <= ?
                AND e.type IN ('facts.admitted', 'facts.superseded', 'pairs.judged')
            ORDER BY e.seq DESC LIMIT ?""",
        (*asked, to_user_seq, DECISIONS_MAX),
    )
    found = read_events(connection, [seq for (seq,) in rows])
    return [found[seq] for seq in sorted(found)]


def find_policy(connection: sqlite3.Connection, user: Reference, before_user_seq: int) -> RecordedEvent | None:
    """The last change of a user's policy before an event; None where there was none."""
    row = connection.execute(
        """SELECT seq FROM events WHERE user = ? AND user_seq < ? AND type = 'policy.changed'
           ORDER BY user_seq DESC LIMIT 1""",
        (user, before_user_seq),
    ).fetchone()
    return None if row is None else read_events(connection, [row[0]])[row[0]]


def take_decisions(standing: Iterable[RecordedEvent]) -> Decisions:
    """Decisions by what they are about; `standing`: events that are in force, in the order of the log."""
    found = Decisions()
    for recorded in standing:
        match recorded.event:
            case FactsAdmitted(admissions=admissions):
                for each in admissions:
                    found.admitted.setdefault(each.occurrence, []).append((each.fact, recorded))
            case FactsSuperseded(supersessions=supersessions):
                found.ended.update((each.fact, recorded) for each in supersessions)
            case PairsJudged(pairs=pairs):
                found.judged.update(((each.one, each.other), recorded) for each in pairs)
            case _:
                pass
    return found


def explain_joining(
    fact: Fact,
    occurrence: Occurrence,
    reading: RecordedEvent,
    decisions: Decisions,
    verdicts: Mapping[Pair, PairVerdict],
) -> Joining | None:
    """How a reading of a fact came to it; None for what a person said and was nobody's before."""
    pointer = occurrence.pointer
    admitted = decisions.admitted.get(pointer, [])
    if found_fact(occurrence) == fact.id:
        if not admitted:
            return None if _is_told(occurrence, reading) else Joining("founded", None)
        return Joining("founded", admitted[0][1])
    before = [each for each, _ in admitted if each != fact.id]
    if _is_told(occurrence, reading):
        before = before or ([found_fact(occurrence)] if admitted else [])
        if not before:
            return None
    event = _last_into(fact.id, admitted)
    if event is None and before:
        firsts = (each for each in fact.occurrences if found_fact(each) == before[-1])
        event = _last_into(fact.id, [one for each in firsts for one in decisions.admitted.get(each.pointer, [])])
    same = [
        each.pointer
        for each in fact.occurrences
        if each.pointer != pointer and each.likeness == occurrence.likeness and each.pointer < pointer
    ]
    judged = [pair for pair, verdict in verdicts.items() if verdict is PairVerdict.SAME and pointer in pair]
    rule = "bridge" if before else "same" if same else "judged" if judged else "near"
    like = same[0] if same else next((each for pair in judged for each in pair if each != pointer), None)
    return Joining(
        rule=rule,
        event=event,
        like=like,
        took_up=before[-1] if before else None,
        judged=None if same or not judged else decisions.judged.get(judged[0]),
    )


def _last_into(fact: FactId, admitted: Iterable[tuple[FactId, RecordedEvent]]) -> RecordedEvent | None:
    into = [event for each, event in admitted if each == fact]
    return into[-1] if into else None


def _is_told(occurrence: Occurrence, reading: RecordedEvent) -> bool:
    """Whether a person said so, or another memory: what waits for no admission."""
    return occurrence.corrected or occurrence.pinned or isinstance(reading.event, MemoryImported)
