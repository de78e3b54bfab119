"""The plan of admissions: which waiting occurrence founds or joins which fact, and which facts are one.

Occurrences are decided on in the order of the log, each as if the ones before it were admitted already, so that
it makes no difference how many wait at a time. What is near to several facts makes one of them (A15).
The earliest fact takes the others up, but a person's wording comes first: what somebody wrote or pinned takes up
what was read, and what is pinned is never taken up by another fact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from events.envelope import Reference
from events.memory import Admission, FactId, FactsAdmitted, Pointer
from projections.facts.canonical import Canon, Fact, Likeness, Occurrence, found_fact
from projections.facts.near import Links

# Admissions an event: folding one takes a few milliseconds of the loop, not more.
ADMISSIONS_MAX: Final = 16
# Where facts are taken up whole, each of which leaves its trees, its group and the search.
TAKEN_UP_MAX: Final = 4
_NOTHING: Final = Links()


def plan_admissions(
    canon: Canon, generation: int, links: Links | None = None, waiting: Collection[Pointer] | None = None
) -> list[tuple[FactsAdmitted, frozenset[Reference]]]:
    """Decide on what waits, and on facts that are one by these links: events with their lineage.

    Without `links` only what says exactly the same is joined; with them what is undecided goes on waiting, and so
    does what is not among `waiting`, where that is given: it came while the links were looked for. An admission of
    an occurrence that is admitted already joins the whole fact it stands in to another one.

    Decisions of other lineage go into other events, so that forgetting a session voids no more than it must: it
    undoes what it was the link of. An event comes after those of smaller lineage, for what joins a fact has the
    lineage of what founded it and more. Deterministic: the same fold, the same plan.
    """
    plan = _Plan(canon)
    links = links or _NOTHING
    near = _index(links.same)
    for pointer in sorted(near.keys() - canon.waiting.keys()):
        plan.join_facts(near, pointer)
    # What says the same as something that is undecided has to wait with it, or it would found its fact.
    undecided = {canon.waiting[each].likeness for each in links.undecided if each in canon.waiting}
    for pointer in sorted(canon.waiting):
        if canon.waiting[pointer].likeness not in undecided and (waiting is None or pointer in waiting):
            plan.admit(near, pointer)
    return [
        (FactsAdmitted(generation, some), lineage)
        for lineage, admissions in sorted(plan.by_lineage.items(), key=lambda each: len(each[0]))
        for some in _in_pieces(canon, admissions)
    ]


def _in_pieces(canon: Canon, admissions: Sequence[Admission]) -> Iterator[tuple[Admission, ...]]:
    takes_up = any(canon.holder(each.occurrence) is not None for each in admissions)
    size = TAKEN_UP_MAX if takes_up else ADMISSIONS_MAX
    return (tuple(admissions[at : at + size]) for at in range(0, len(admissions), size))


def _index(pairs: Iterable[tuple[Pointer, Pointer]]) -> dict[Pointer, set[Pointer]]:
    """What each is near to."""
    near: dict[Pointer, set[Pointer]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    return near


class _Plan:
    """A Canon as it will be, as far as it differs from what it is."""

    def __init__(self, canon: Canon) -> None:
        self.by_lineage: dict[frozenset[Reference], list[Admission]] = {}
        self._canon = canon
        self._founded: dict[Likeness, FactId] = {}
        self._placed: dict[Pointer, FactId] = {}
        # The first occurrence of facts that are to be founded, and where facts and their sessions went.
        self._first: dict[FactId, Occurrence] = {}
        self._host: dict[FactId, FactId] = {}
        self._sessions: dict[FactId, frozenset[Reference]] = {}

    def admit(self, near: dict[Pointer, set[Pointer]], pointer: Pointer) -> None:
        """Found a fact with what waits, or join it to the facts that it is like."""
        occurrence = self._canon.waiting[pointer]
        known = self._canon.find(occurrence.likeness)
        fact = self._founded.get(occurrence.likeness) if known is None else known.id
        if fact is None:
            hosts = self._facts_of(near.get(pointer, ()))
            fact = self._join(hosts, {occurrence.session}) if hosts else found_fact(occurrence)
            if not hosts:
                self._first[fact] = occurrence
            self._founded[occurrence.likeness] = fact
        fact = self._resolve(fact)
        lineage = self._sessions_of(fact) | {occurrence.session}
        self._sessions[fact] = lineage
        self._placed[pointer] = fact
        self.by_lineage.setdefault(lineage, []).append(Admission(fact, pointer))

    def join_facts(self, near: dict[Pointer, set[Pointer]], pointer: Pointer) -> None:
        """Make one of the fact of a standing occurrence and those that it is like."""
        self._join(self._facts_of((pointer, *near[pointer])), set())

    def _join(self, facts: list[FactId], bridge: set[Reference]) -> FactId:
        """Put facts together, the most telling first; `bridge`: the session of what links them, if it waits."""
        host, *others = facts
        guests = [each for each in others if not self._is_pinned(each)]
        if guests:
            lineage = frozenset().union(bridge, *map(self._sessions_of, (host, *guests)))
            for guest in guests:
                self.by_lineage.setdefault(lineage, []).append(Admission(host, self._first_of(guest).pointer))
                self._host[guest] = host
            self._sessions[host] = lineage
        return host

    def _facts_of(self, pointers: Iterable[Pointer]) -> list[FactId]:
        """The facts that hold these by now, a person's first, then the earlier ones."""
        facts = {self._resolve(fact) for each in pointers if (fact := self._fact_of(each)) is not None}
        return sorted(facts, key=lambda fact: (-self._rank(fact), self._first_of(fact).pointer))

    def _fact_of(self, pointer: Pointer) -> FactId | None:
        holder = self._canon.holder(pointer)
        return self._placed.get(pointer) if holder is None else holder.id

    def _resolve(self, fact: FactId) -> FactId:
        while fact in self._host:
            fact = self._host[fact]
        return fact

    def _known(self, fact: FactId) -> Fact | None:
        return self._canon.facts.get(fact)

    def _first_of(self, fact: FactId) -> Occurrence:
        known = self._known(fact)
        return self._first[fact] if known is None else known.first

    def _sessions_of(self, fact: FactId) -> frozenset[Reference]:
        known = self._known(fact)
        return self._sessions.get(fact) or (frozenset() if known is None else known.sessions)

    def _is_pinned(self, fact: FactId) -> bool:
        known = self._known(fact)
        return known is not None and known.pinned

    def _rank(self, fact: FactId) -> int:
        known = self._known(fact)
        return 0 if known is None else known.stated + known.pinned
