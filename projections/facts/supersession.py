"""Which state ends which: the rule, and the plan of what is to be recorded of it (algorithms.md 1).

A state ends at the first later day on which another one of its kind began that cannot hold beside it. What is
recorded is the difference between that and what is recorded already, so a state that is told late, or known no
more, mends its neighbours.

Whether two values are one is decided on words (`compare`), with three answers; "unclear" changes nothing. Names
decide first: of "lives in Cambridge, Massachusetts" and "moved to Boston, Massachusetts" the leading ones differ,
and neither text has the other's; but a town may be in a country. Else numbers, if both have some. Else words: all
of one among those of the other is the same value, none in common another one, some in common is unclear, as are
long texts under a name that only a model has for them. Homes and employers are told apart by names alone, since
"with her parents" may well be in Boston.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from events.decisions import FactsSuperseded, PairVerdict, Supersession
from events.envelope import Reference
from events.memory import FactId, Pointer
from events.time import Instant
from projections.facts.attributes import NAMED, holds_several, is_known, known_values
from projections.facts.canonical import Fact
from projections.facts.stances import Stance
from projections.facts.states import State, StateKey
from projections.facts.validity import Told

if TYPE_CHECKING:
    from projections.memory import Memory

# As many an event as admissions: folding one takes a few milliseconds of the loop, not more.
SUPERSESSIONS_MAX: Final = 16
# So many states behind one are asked whether they end it; where that many in a row are unclear, nobody knows.
NEIGHBOURS_MAX: Final = 16

# Content words of a value: "drives an old red Honda", but not all that one does of a day.
VALUE_WORDS_MAX: Final = 3

Verdicts: TypeAlias = Mapping[tuple[Pointer, Pointer], PairVerdict]


class Sameness(Enum):
    """What two values have to do with each other."""

    SAME = "same"
    DIFFERENT = "different"
    UNCLEAR = "unclear"


def compare(one: State, other: State, attribute: str) -> Sameness:
    """Whether two states of one kind have the same value, by their words."""
    if not is_known(attribute) and max(len(one.words), len(other.words)) > VALUE_WORDS_MAX:
        return _compare_words(one, other, Sameness.UNCLEAR)
    if one.names and other.names:
        first, second = one.names[0], other.names[0]
        shared = _is_among(first, other.names) or _is_among(second, one.names)
        apart = Sameness.DIFFERENT if one.width == other.width else Sameness.UNCLEAR
        return Sameness.SAME if shared else apart
    if attribute in NAMED or known_values(attribute):
        return Sameness.UNCLEAR
    if one.numbers and other.numbers and one.numbers.isdisjoint(other.numbers):
        return Sameness.DIFFERENT
    return _compare_words(one, other, Sameness.DIFFERENT)


def _compare_words(one: State, other: State, apart: Sameness) -> Sameness:
    """By their words alone; `apart` if they have none in common."""
    words, others = one.words | one.numbers, other.words | other.numbers
    if not words or not others:
        return Sameness.UNCLEAR
    if words <= others or others <= words:
        return Sameness.SAME
    return apart if words.isdisjoint(others) else Sameness.UNCLEAR


def ends(later: State, earlier: State, key: StateKey) -> bool:
    """Whether a state that was told of a later day ends an earlier one of the same kind, by rule.

    Another value does, unless several may hold at once; "no longer" ends the value that it names, whatever kind it
    is of, and is ended by that value.
    """
    if Stance.ENDED in (later.stance, earlier.stance):
        if later.stance is earlier.stance or compare(later, earlier, key.attribute) is not Sameness.SAME:
            return False
        # Who is no vegan any more may eat no meat still.
        over, holds = (later, earlier) if later.stance is Stance.ENDED else (earlier, later)
        return not known_values(key.attribute) or over.names[0] <= holds.names[0]
    return not holds_several(key.attribute) and compare(later, earlier, key.attribute) is Sameness.DIFFERENT


@dataclass(frozen=True, slots=True)
class Judgements:
    """What a model said of facts. `judged`: the readings that it compared with any other."""

    facts: Mapping[FactId, Fact]
    verdicts: Verdicts
    judged: Collection[Pointer]

    def know(self, fact: FactId) -> bool:
        """Whether a fact was compared with another one."""
        return bool(self.judged) and any(each.pointer in self.judged for each in self.facts[fact].occurrences)

    def is_change(self, told: Told) -> bool:
        """Whether a state tells more than what was so for a time; somebody who gives it an end knows of both."""
        past = told.state.stance is Stance.PAST
        return not past or self.know(told.fact) or self.facts[told.fact].first.corrected

    def do_end(self, key: StateKey, later: Told, earlier: Told) -> bool:
        """Whether a state ends an earlier one: by a model's judgement where there is one, else by rule."""
        verdict = verdict_of(self.facts[later.fact], self.facts[earlier.fact], self.verdicts)
        if verdict is not None:
            return verdict is PairVerdict.SUPERSEDES
        return ends(later.state, earlier.state, key)


def plan_chain(key: StateKey, chain: Sequence[Told], judgements: Judgements) -> dict[FactId, Told]:
    """What ends each state of a chain; those that hold are left out.

    What was so for a time ends nothing by itself, since one may have come back; but who moved on later had left by
    then.
    Costs as much as the chain is long, however often one thing is said: of a run of states that say the same one
    is asked for all, and no two are compared twice.
    """
    ended: dict[FactId, Told] = {}
    alone = {at for at, told in enumerate(chain) if judgements.know(told.fact)}
    numbers, behind_run = _number_states(chain, alone)
    known: dict[tuple[int, int], bool] = {}
    later_days = len(chain)
    for at in reversed(range(len(chain))):
        told = chain[at]
        if at + 1 < len(chain) and chain[at + 1].day > told.day:
            later_days = at + 1
        behind, first = later_days, None
        for _ in range(NEIGHBOURS_MAX):
            if behind == len(chain):
                break
            pair = numbers[behind], numbers[at]
            if pair not in known:
                known[pair] = judgements.do_end(key, chain[behind], told)
            if known[pair]:
                first = first or chain[behind]
                if judgements.is_change(chain[behind]):
                    ended[told.fact] = first
                    break
            behind = behind_run[behind]
    return ended


def _number_states(chain: Sequence[Told], alone: Collection[int]) -> tuple[list[int], list[int]]:
    """Numbers that are equal for states that say the same, and where the next other one stands behind each.

    Those at the places `alone` have numbers of their own.
    """
    seen: dict[State, int] = {}
    numbers = [-1 - at if at in alone else seen.setdefault(told.state, at) for at, told in enumerate(chain)]
    behind_run = list(range(1, len(chain) + 1))
    for at in reversed(range(len(chain) - 1)):
        if numbers[at] == numbers[at + 1]:
            behind_run[at] = behind_run[at + 1]
    return numbers, behind_run


@dataclass(frozen=True, slots=True)
class ChangedChains:
    """The chains of a Memory that are to be planned, none of which can change any more."""

    chains: Mapping[StateKey, Sequence[Told]]
    judgements: Judgements
    recorded: Mapping[FactId, Supersession]

    @property
    def states(self) -> int:
        """How many states are in them."""
        return sum(map(len, self.chains.values()))


def copy_chains(memory: Memory) -> ChangedChains:
    """What the plan of a Memory is made of; a few milliseconds for ten thousand states."""
    validity, canon = memory.placement.validity, memory.canon
    chains = {key: tuple(validity.states.get(key, ())) for key in validity.touched}
    every = [told.fact for chain in chains.values() for told in chain]
    facts = {fact: canon.facts[fact] for fact in every}
    judged = frozenset(validity.judged) if validity.judged else frozenset[Pointer]()
    verdicts = dict(canon.verdicts) if judged else {}
    recorded = {fact: validity.superseded[fact] for fact in every if fact in validity.superseded}
    return ChangedChains(chains, Judgements(facts, verdicts, judged), recorded)


def plan_differences(changed: ChangedChains) -> dict[StateKey, list[Supersession]]:
    """What is to be recorded of each chain; empty where nothing is to do. For long chains on a thread."""
    return {
        key: list(_differences(key, chain, changed.judgements, changed.recorded))
        for key, chain in changed.chains.items()
    }


def plan_supersessions(
    memory: Memory, generation: int, differences: Mapping[StateKey, Sequence[Supersession]] | None = None
) -> list[tuple[FactsSuperseded, frozenset[Reference]]]:
    """What is to be recorded so that states hold as long as they should: events with their lineage.

    Of other lineage, other events, so that forgetting a session voids no more than it must. Costs as much as the
    chains that changed, unless their `differences` are found already, and nothing changed since. Deterministic,
    and empty when nothing is to do.
    """
    validity, facts = memory.placement.validity, memory.canon.facts
    if differences is None:
        differences = plan_differences(copy_chains(memory))
    by_lineage: dict[frozenset[Reference], list[Supersession]] = {}
    for key, supersessions in differences.items():
        for supersession in supersessions:
            by_lineage.setdefault(_lineage_of(supersession, facts, validity.superseded), []).append(supersession)
        if not supersessions:
            del validity.touched[key]
    return [
        (FactsSuperseded(generation, tuple(together[at : at + SUPERSESSIONS_MAX])), lineage)
        for lineage, together in sorted(by_lineage.items(), key=lambda each: len(each[0]))
        for at in range(0, len(together), SUPERSESSIONS_MAX)
    ]


def _differences(
    key: StateKey, chain: Sequence[Told], judgements: Judgements, recorded: Mapping[FactId, Supersession]
) -> Iterator[Supersession]:
    wanted = plan_chain(key, chain, judgements)
    for told in chain:
        by, stands = wanted.get(told.fact), recorded.get(told.fact)
        if by is None and stands is None:
            continue
        should = Supersession(told.fact, None if by is None else by.fact, None if by is None else _end(told, by))
        if stands != should:
            yield should


def _end(told: Told, by: Told) -> Instant:
    """When a state ended: as the other one began, or by when it had, if this one held in between."""
    return by.at if by.at > told.begun else by.begun


def _lineage_of(
    supersession: Supersession, facts: Mapping[FactId, Fact], recorded: Mapping[FactId, Supersession]
) -> frozenset[Reference]:
    """The sessions of the state and of what ended it, or ends it no more."""
    by = supersession.by
    if by is None and (stands := recorded.get(supersession.fact)) is not None:
        by = stands.by
    lineage = facts[supersession.fact].sessions
    return lineage if by is None or by not in facts else lineage | facts[by].sessions


def verdict_of(later: Fact, earlier: Fact, verdicts: Verdicts) -> PairVerdict | None:
    """What a model said of two facts, by any of their readings; that one supersedes the other only of `later`."""
    for one in later.occurrences:
        for other in earlier.occurrences:
            verdict = verdicts.get((one.pointer, other.pointer))
            if verdict is not None:
                return verdict
            turned = verdicts.get((other.pointer, one.pointer))
            if turned is not None and turned is not PairVerdict.SUPERSEDES:
                return turned
    return None


def _is_among(name: frozenset[int], names: Sequence[frozenset[int]]) -> bool:
    """Whether a name, or more or less of it (New York, New York City), is one of these."""
    return any(name <= other or other <= name for other in names)
