"""Where facts stand: as rows of the search, members of scopes, leaves of trees, and in groups.

Each change of a fact brings all of these along, and what people say of facts is carried out here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from events.decisions import FactsRouted, FactsSuperseded, PairsJudged, ScenesMerged
from events.envelope import RecordedEvent, Reference
from events.memory import FactCorrected, FactId, FactPinned, FactRetracted, FactsAdmitted, Pointer
from events.session import MemoryImported
from events.time import Instant
from projections.eventtree.units import Units
from projections.facts.aliases import Link
from projections.facts.canonical import (
    Canon,
    Fact,
    Likeness,
    Occurrence,
    keep_end,
    read_likeness,
    read_statement,
    share_sessions,
)
from projections.facts.corrections import Disclaimer, Disclaimers, exactly, read_disclaimer
from projections.facts.imported import read_memory
from projections.facts.scenes import Scenes
from projections.facts.scopes import EntityScopes, Scope, ScopeChange, ScopeKind
from projections.facts.validity import Validity
from projections.grouping import Grouping
from projections.memtree.forest import Forest, LeafText
from projections.memtree.items import Leaf
from projections.recall.filters import label_marks
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.spaces import OURS, Spaces
from projections.texts import FactText
from projections.transcript import Transcript


class Placement:
    """The facts of one user with everything that is made of them in the fold."""

    def __init__(self, user: Reference, forest: Forest, nodes: NodeSet, transcript: Transcript) -> None:
        """`forest` and `nodes` hold chunks, too; `transcript` knows the turns that facts rest on."""
        self.canon = Canon()
        self.disclaimers = Disclaimers(user)
        self.scopes = EntityScopes(user)
        self.scenes = Scenes()
        self.validity = Validity(self.scopes.aliases.canonical)
        self.units = Units()
        self.spaces = Spaces(user)
        # Which facts stand in the tree of each entity, scene and of `user` now.
        self.members: dict[Scope, set[FactId]] = {}
        self._forest = forest
        self._nodes = nodes
        self._transcript = transcript
        # Texts of facts between extraction and admission, when they are indexed.
        self._waiting_texts: dict[Pointer, str] = {}
        self.groups = Grouping(self.canon.facts, self.units, nodes, self._fact_node, self._marks_of)

    def expect(self, occurrences: Sequence[Occurrence], texts: Sequence[str]) -> None:
        """The facts of one extraction wait for their admission, but for what was disclaimed before."""
        by_pointer = {each.pointer: text for each, text in zip(occurrences, texts, strict=True)}
        unwanted = self.disclaimers.unwanted(occurrences, by_pointer)
        kept = [each for each in occurrences if each.pointer not in unwanted]
        self.canon.add_occurrences(kept)
        self._waiting_texts.update((each.pointer, by_pointer[each.pointer]) for each in kept)

    def admit(self, event: FactsAdmitted) -> None:
        """Occurrences found or join facts; one that is taken up by another goes from wherever it stands."""
        labels: set[str] = set()
        for fact, occurrence in self.canon.apply(event, self._take_out):
            labels |= self._place(fact, occurrence, self._waiting_texts.pop(occurrence.pointer, ""))
        self.set_scopes(labels)

    def retract(self, recorded: RecordedEvent, event: FactRetracted) -> None:
        """What a fact says is not so: it goes, and so does what waits and says the same."""
        self._disclaim(read_disclaimer(recorded, event), event.fact)

    def correct(self, recorded: RecordedEvent, event: FactCorrected, said_at: Mapping[int, Instant]) -> None:
        """Something else is so: a fact of its own, or the one that says this already."""
        statement = read_statement(recorded, event, said_at)
        before = self.canon.facts.get(event.fact)
        if before is not None:
            statement = keep_end(statement, before.first)
        says = read_likeness(event.says, recorded.user)
        if says != read_likeness(event.was, recorded.user):
            self._disclaim(read_disclaimer(recorded, event), event.fact)
        else:
            self._withdraw(event.fact, says, spare_corrected=True)  # only how it is written was corrected
        self._state(statement, event.says.text)

    def pin(self, recorded: RecordedEvent, event: FactPinned, said_at: Mapping[int, Instant]) -> None:
        """A fact stays as it is: it rests on the pin, too, and leaves its group."""
        fact = self._state(read_statement(recorded, event, said_at), event.says.text, event.fact)
        self.groups.leave(fact.id)

    def take_over(self, recorded: RecordedEvent, event: MemoryImported) -> None:
        """An imported memory is a fact at once, unless a person said before that it is not so."""
        occurrence = read_memory(recorded, event, self.scopes.named_in(event.content))
        if not self.disclaimers.unwanted((occurrence,), {occurrence.pointer: event.content}):
            self.spaces.take(recorded.seq, event)
            fact = self.canon.admit(occurrence)
            self.set_scopes(self._place(fact, occurrence, event.content))

    def space_of(self, fact: FactId) -> int:
        """The number of the space that a fact's vector is in: that of the memory whose text stands for it."""
        return self.spaces.number_of.get(self.canon.facts[fact].first.pointer.seq, OURS)

    def route(self, event: FactsRouted) -> None:
        """Facts are in these scenes from now on."""
        self._change(self.scenes.route(event, self.canon.facts))

    def merge_scenes(self, event: ScenesMerged) -> None:
        """Scenes are one from now on."""
        self._change(self.scenes.merge(event))

    def judge(self, event: PairsJudged) -> None:
        """A model compared readings: they may be one, or one may end the other."""
        self.canon.note_judged(event)
        self.validity.judge(pointer for pair in event.pairs for pointer in (pair.one, pair.other))

    def supersede(self, event: FactsSuperseded) -> None:
        """States ended, or hold again. A group that tells of another end than this one falls."""
        ends = {each.fact: self.validity.superseded.get(each.fact) for each in event.supersessions}
        changed = self.validity.apply(event, self.canon.facts.keys())
        for fact in changed:
            before = ends[fact]
            if (None if before is None else before.until) != self.validity.until(fact):
                self.groups.leave(fact)
        self._show_validity(changed)

    def reopen(self, is_hidden: Callable[[Fact], bool]) -> None:
        """What hidden facts ended holds: nobody is to see from it that there was something."""
        hidden = (fact for fact in self.validity.ending() if is_hidden(self.canon.facts[fact]))
        self._show_again(self.validity.reopen(tuple(hidden)))

    def join_names(self, links: Sequence[Link]) -> None:
        """Names are of one entity: its tree and what is asked of it are by all of them."""
        labels = self.scopes.link(links)
        if labels:
            self.set_scopes(labels)
            self.mark_names(labels)
            self.validity.rename(labels)

    def mark_names(self, labels: Collection[str]) -> None:
        """Let the marks of these names stand for those of all names of their entities."""
        groups = {names for label in labels if len(names := self.scopes.aliases.names_of(label)) > 1}
        mark = self._nodes.mark
        self._nodes.marks.set_alike(label_marks(labels, mark), [label_marks(names, mark) for names in groups])

    def set_scopes(self, labels: set[str]) -> None:
        """Bring the trees of these labels' scopes to what they should hold."""
        changes = [change for label in sorted(labels) for change in self.scopes.changes(label)]
        # The user's tree may pass from one entity to another, and a fact that names both leaves before it joins.
        self._change(sorted(changes, key=lambda change: bool(change.joining)))

    def _change(self, changes: Iterable[ScopeChange]) -> None:
        """Facts join and leave the trees of scopes."""
        for change in changes:
            leaves = [(self._leaf(fact), self._leaf_text(fact)) for fact in sorted(change.joining)]
            self._forest.change(change.scope, leaves, [self._leaf(fact) for fact in sorted(change.leaving)])
            if change.scope.kind is ScopeKind.SCENE:
                self._share_members(change.scope)
                continue
            held = self.members.setdefault(change.scope, set())
            held |= change.joining
            held -= change.leaving
            if not held:
                del self.members[change.scope]

    def _share_members(self, scope: Scope) -> None:
        """The same set, once: there are about half as many scenes as facts."""
        held = self.scenes.members.get(bytes.fromhex(scope.name))
        if held is None:
            self.members.pop(scope, None)
        else:
            self.members[scope] = held

    def _place(self, fact: Fact, occurrence: Occurrence, text: str) -> set[str]:
        """Show a fact that was founded or joined by an occurrence; the labels it names."""
        self.validity.add_fact(fact)
        node = self._fact_node(fact)
        marks = self._marks_of(node, fact.labels)
        if fact.first is occurrence:
            self.scenes.add_fact(fact.id)
            self.units.add_fact(fact.id)
            self._nodes.add(node, text, marks)
        elif fact.id in self.units.group_of:
            self._nodes.replace_aside(node, marks)
            group = self.groups.shown_for(fact)
            self._nodes.replace(group)
            self._nodes.add_marks(group.id, marks)
        else:
            self._nodes.replace(node, marks)
        named = label_marks(fact.labels, self._nodes.mark)
        for chunk in self._transcript.chunks_of(occurrence.turns):
            self._nodes.add_marks(chunk, named)
        return self.scopes.add_fact(fact.id, occurrence.mentions, fact.sessions)

    def _state(self, occurrence: Occurrence, text: str, fact_id: FactId | None = None) -> Fact:
        """A person says so: known at once."""
        self.disclaimers.say(occurrence.likeness)
        fact = self.canon.admit(occurrence, fact_id)
        self.set_scopes(self._place(fact, occurrence, text))
        return fact

    def _disclaim(self, disclaimer: Disclaimer, fact_id: FactId) -> None:
        self.disclaimers.disclaim(disclaimer)
        # What was read together with the fact was left standing when the fact was retracted.
        together = {each.pointer.seq for each in self._occurrences(fact_id)}
        by_extraction: dict[int, list[Occurrence]] = {}
        for pointer in sorted(self.canon.waiting):
            by_extraction.setdefault(pointer.seq, []).append(self.canon.waiting[pointer])
        for seq, waiting in by_extraction.items():
            if seq in together:
                unwanted = exactly(disclaimer, waiting)
            else:
                unwanted = self.disclaimers.named_by(disclaimer, waiting, self._waiting_texts)
            for pointer in unwanted:
                del self.canon.waiting[pointer], self._waiting_texts[pointer]
        self._withdraw(fact_id, disclaimer.likeness)

    def _occurrences(self, fact_id: FactId) -> Sequence[Occurrence]:
        return self.canon.facts[fact_id].occurrences if fact_id in self.canon.facts else ()

    def _withdraw(self, fact_id: FactId, likeness: Likeness, *, spare_corrected: bool = False) -> None:
        """Know a fact no more, by its id or, when it was founded anew since, by what it says."""
        for fact in (self.canon.facts.get(fact_id), self.canon.find(likeness)):
            if fact is not None and fact.id in self.canon.facts and not (spare_corrected and fact.first.corrected):
                self._take_out(fact)

    def _take_out(self, fact: Fact) -> None:
        self.groups.leave(fact.id)
        if fact.id in self._nodes.row_of:
            self._nodes.remove(fact.id)
        self.units.remove_fact(fact.id)
        self.set_scopes(self.scopes.remove_fact(fact.id, fact.labels))
        self._change(self.scenes.remove_fact(fact.id))
        again = self.validity.remove_fact(fact.id)
        self.canon.remove(fact.id)
        self._show_again(again)

    def _show_validity(self, facts: Iterable[FactId]) -> None:
        """These hold until another time than before; so do the groups that replaced them."""
        for fact in facts:
            node = self.groups.shown_for(self.canon.facts[fact])
            if node.id in self._nodes.row_of:
                self._nodes.replace(node)

    def _show_again(self, facts: Iterable[FactId]) -> None:
        """These hold again. A group that tells when they ended says what is not so."""
        again = tuple(facts)
        for fact in again:
            self.groups.leave(fact)
        self._show_validity(again)

    def _marks_of(self, node: SearchNode, labels: Iterable[str]) -> set[int]:
        """What filters may ask of a node that names these entities."""
        return self._transcript.marks_of(node.turns) | label_marks(labels, self._nodes.mark)

    def _leaf_text(self, fact: FactId) -> LeafText:
        """Its words were said where it was first read; the summary's lineage is that session alone."""
        first = self.canon.facts[fact].first
        return LeafText(FactText(first.pointer), first.length, share_sessions(frozenset((first.session,))))

    def _leaf(self, fact: FactId) -> Leaf:
        first = self.canon.facts[fact].first
        return Leaf(first.time_start, first.leaf_key, first.time_end)

    def _fact_node(self, fact: Fact) -> SearchNode:
        first = fact.first
        return SearchNode(
            id=fact.id,
            kind=NodeKind.FACT,
            ref=FactText(first.pointer),
            turns=fact.turns,
            sessions=fact.sessions,
            said_at=first.said_at,
            time_start=first.time_start,
            time_end=first.time_end,
            length=first.length,
            stated=fact.stated,
            holds_until=self.validity.holds_until(fact.id),
            space=self.space_of(fact.id),
        )
