"""Judgements: what a model says of readings that the rules take for near duplicates, and of unclear states.

One batch a user is out at a time: what is found meanwhile is asked together, after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from daemon.building.work import Means, Origin, WordsGone, hash_prompt, hash_request, key_of_parking, name_ref
from daemon.texts import read_texts
from events.codec import Event
from events.decisions import JudgedPair, PairsJudged
from events.envelope import NewEvent, Reference, identify
from events.memory import ParkReason, Task, Usage, WorkParked
from projections.facts.canonical import Canon, Occurrence, Pair
from projections.facts.near import is_given_up
from projections.facts.states import StateKey
from projections.facts.unclear import find_unclear
from projections.memory import Memory
from projections.ports import AnswerUnusable, MemberText, PairText
from projections.texts import FactText

# Pairs of one question: with their instruction they fit into the context of a small model.
PAIRS_MAX: Final = 20
# States of a user that wait for a question; what is vague in more of them stays so until it is told again.
STATES_MAX: Final = 200
# Kinds of states of before the start that are looked at with each plan: a few milliseconds.
LOOKED_AT_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Judgement:
    """Tell whether the texts of pairs say the same; of each pair the later reading stands first."""

    origin: Origin
    pairs: tuple[tuple[Occurrence, Occurrence], ...]

    task = Task.JUDGE

    @property
    def request(self) -> bytes:
        """The same pairs, the same question."""
        return identify(b"mf.judge", *self.inputs())

    def inputs(self) -> Iterable[bytes]:
        """The texts that are compared, in order."""
        return (name_ref(FactText(each.pointer)) for pair in self.pairs for each in pair)

    async def ask(self, means: Means) -> NewEvent:
        """The verdicts as an event."""
        said = [each for pair in self.pairs for each in pair]
        texts: list[MemberText] = []
        read = await read_texts(means.log, [FactText(each.pointer) for each in said])
        for text, each in zip(read, said, strict=True):
            if text is None:
                raise WordsGone
            texts.append(MemberText(text, each.time_start, each.time_end))
        answer = await means.model.judge([PairText(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)])
        if len(answer.verdicts) != len(self.pairs):
            raise AnswerUnusable(ParkReason.ANSWER_INVALID, answer.usage)
        event = PairsJudged(
            generation=self.origin.generation,
            pairs=tuple(
                JudgedPair(later.pointer, earlier.pointer, verdict)
                for (later, earlier), verdict in zip(self.pairs, answer.verdicts, strict=True)
            ),
            sources=self._sources(),
            model=means.model.name,
            request=hash_request(self, means.model),
            prompt=hash_prompt(self, means.model),
            usage=answer.usage,
        )
        return self._answer(event)

    def reuse(self, answered: Event) -> NewEvent | None:
        """The same verdicts; nothing was spent on them now."""
        if not isinstance(answered, PairsJudged):
            return None
        return self._answer(replace(answered, generation=self.origin.generation, usage=Usage()))

    def park(self, reason: ParkReason, usage: Usage) -> NewEvent:
        """The rule has the last word of these pairs."""
        event = WorkParked(self.task, self.request, reason, self._sources(), usage=usage)
        return self._event(event, key_of_parking(self.origin, self.request))

    def _sources(self) -> tuple[int, ...]:
        return tuple(sorted({each.pointer.seq for pair in self.pairs for each in pair}))

    def _answer(self, event: PairsJudged) -> NewEvent:
        return self._event(event, f"judged/{self.origin.generation}/{self.request.hex()}")

    def _event(self, event: PairsJudged | WorkParked, key: str) -> NewEvent:
        return NewEvent(
            user_id=self.origin.user_id,
            session_id=None,
            event=event,
            key=key,
            happened_at=max(each.said_at for pair in self.pairs for each in pair),
            lineage=tuple(sorted({each.session for pair in self.pairs for each in pair})),
            basis=self.origin.basis,
        )


class Judging:
    """The pairs that only a model can tell apart: near duplicates, for which facts wait, and states."""

    def __init__(self) -> None:
        self._found: dict[Reference, tuple[Pair, ...]] = {}
        self._states: dict[Reference, dict[Pair, None]] = {}
        self._asked: dict[Reference, tuple[Pair, ...]] = {}
        # Kinds of states that were there when a user was planned first, and were not looked at since.
        self._unseen: dict[Reference, list[StateKey]] = {}

    def note(self, user: Reference, pairs: tuple[Pair, ...]) -> None:
        """Near duplicates that only a model can tell, as the last plan of a user's facts left them."""
        self._found[user] = pairs
        if not pairs:
            del self._found[user]

    def look_at_states(self, memory: Memory) -> bool:
        """Find what is unclear of the states that changed, and of some that were there at the start.

        It is asked once there is nothing else to ask. Whether there are more to be looked at by now.
        """
        left = self._unseen.setdefault(memory.user, list(memory.placement.validity.states))
        has_room = len(self._states.get(memory.user, ())) < STATES_MAX // 2
        some = [left.pop() for _ in range(min(len(left), LOOKED_AT_MAX if has_room else 0))]
        self._note_states(memory.user, find_unclear(memory, some))
        return bool(left) and has_room

    def has_unseen(self, user: Reference) -> bool:
        """Whether there are states of before the start that were not looked at."""
        return user not in self._unseen or bool(self._unseen[user])

    def forget(self, user: Reference) -> None:
        """Keep no words of a user: states are looked at anew. What is to be asked is known by its place."""
        self._unseen.pop(user, None)

    def _note_states(self, user: Reference, pairs: Iterable[Pair]) -> None:
        states = self._states.get(user, {}) | dict.fromkeys(pairs)
        if states:
            self._states[user] = dict(islice(states.items(), STATES_MAX))

    def found(self, user: Reference) -> tuple[Pair, ...]:
        """The pairs of a user that want a verdict, those that facts wait for first."""
        return tuple(dict.fromkeys((*self._found.get(user, ()), *self._states.get(user, ()))))

    def plan(self, memory: Memory, origin: Origin) -> Iterator[Judgement]:
        """The batch that is out, as long as all of it wants an answer; else the next one."""
        user, canon = origin.user, memory.canon
        states = {pair: None for pair in self._states.pop(user, {}) if _wants_verdict(canon, pair)}
        self._note_states(user, states)
        found = self.found(user)
        asked = self._asked.pop(user, ())
        if not asked or not set(asked) <= set(found):
            asked = found[:PAIRS_MAX]
        pairs = [tuple(map(canon.occurrence, pair)) for pair in asked]
        standing = [(later, earlier) for later, earlier in pairs if later is not None and earlier is not None]
        if standing:
            self._asked[user] = asked
            yield Judgement(origin, tuple(standing))


def _wants_verdict(canon: Canon, pair: Pair) -> bool:
    is_decided = pair in canon.verdicts or is_given_up(canon.given_up, pair)
    return not is_decided and all(canon.holder(each) is not None for each in pair)
