"""What people said of facts: which wordings must not come back, and which ones are theirs (algorithms.md 1).

A correction speaks of what was said in some turns, not of an id: extracted again, the same words are another
occurrence under another id, and a model may put them a little differently. The last word of a person counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from events.envelope import RecordedEvent
from events.memory import FactCorrected, FactRetracted, Pointer
from projections.facts.canonical import Likeness, Occurrence, make_leaf_key, read_likeness
from projections.facts.wording import Wording, likeness_of_words, read_wording

# Share of words that two readings of one turn have in common when they say the same.
SAME_WORDS_MIN = 0.6


@dataclass(frozen=True, slots=True)
class Disclaimer:
    """Something that is not so, as it was said in these turns; `key` is as unguessable as that of a leaf."""

    key: bytes
    likeness: Likeness
    turns: frozenset[int]
    wording: Wording


def read_disclaimer(recorded: RecordedEvent, event: FactRetracted | FactCorrected) -> Disclaimer:
    """What a retraction or a correction says is not so."""
    was = event.was
    return Disclaimer(
        # An event has one nonce; number 0 is what a correction says instead.
        key=make_leaf_key(recorded.nonce, 1, was.time_start, was.text),
        likeness=read_likeness(was, recorded.user),
        turns=frozenset(event.turns),
        wording=read_wording(was.text, (mention.label for mention in was.mentions), recorded.user),
    )


class Disclaimers:
    """The disclaimers of one user, and the likeness of what people wrote or keep."""

    def __init__(self, key: bytes = b"") -> None:
        """`key`: the user's reference, under which words are hashed."""
        self._key = key
        self._disclaimed: dict[Likeness, list[Disclaimer]] = {}
        self._by_turn: dict[int, list[Disclaimer]] = {}
        self._said: set[Likeness] = set()

    def disclaim(self, disclaimer: Disclaimer) -> None:
        """This is not so."""
        self._said.discard(disclaimer.likeness)
        self._disclaimed.setdefault(disclaimer.likeness, []).append(disclaimer)
        for turn in disclaimer.turns:
            self._by_turn.setdefault(turn, []).append(disclaimer)

    def say(self, likeness: Likeness) -> None:
        """This is so, whatever was said of it before."""
        self._said.add(likeness)
        for disclaimer in self._disclaimed.pop(likeness, ()):
            for turn in disclaimer.turns:
                self._by_turn[turn].remove(disclaimer)

    def standing(self) -> Iterator[Disclaimer]:
        """All that stand."""
        for disclaimers in self._disclaimed.values():
            yield from disclaimers

    def unwanted(self, extracted: Sequence[Occurrence], texts: Mapping[Pointer, str]) -> set[Pointer]:
        """Which occurrences of one new extraction were disclaimed before."""
        about = {
            disclaimer.key: disclaimer
            for occurrence in extracted
            for disclaimer in (
                *self._disclaimed.get(occurrence.likeness, ()),
                *(each for turn in occurrence.turns for each in self._by_turn.get(turn, ())),
            )
        }
        unwanted: set[Pointer] = set()
        for disclaimer in about.values():
            left = [occurrence for occurrence in extracted if occurrence.pointer not in unwanted]
            unwanted.update(self.named_by(disclaimer, left, texts))
        return unwanted

    def named_by(
        self, disclaimer: Disclaimer, extracted: Sequence[Occurrence], texts: Mapping[Pointer, str]
    ) -> list[Pointer]:
        """The occurrences of one extraction that say what is not so.

        Those that say exactly it; where none does, the one of the same turns that says it most nearly, so that
        its neighbours, which may speak of the same thing, stay.
        """
        exact = exactly(disclaimer, extracted)
        if exact:
            return exact
        best, found = SAME_WORDS_MIN, list[Pointer]()
        for occurrence in extracted:
            if occurrence.likeness in self._said or disclaimer.turns.isdisjoint(occurrence.turns):
                continue
            labels = (mention.label for mention in occurrence.mentions)
            wording = read_wording(texts[occurrence.pointer], labels, self._key)
            share = likeness_of_words(disclaimer.wording, wording)
            if share > best or (share == best and not found):
                best, found = share, [occurrence.pointer]
        return found


def exactly(disclaimer: Disclaimer, occurrences: Iterable[Occurrence]) -> list[Pointer]:
    """Those that say the same of the same days, wherever it was said."""
    return [each.pointer for each in occurrences if each.likeness == disclaimer.likeness]
