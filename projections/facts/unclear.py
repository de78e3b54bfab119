"""States that the rules cannot tell apart, for a model to tell whether the later one ends the earlier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final

from projections.facts.attributes import holds_several
from projections.facts.canonical import Pair
from projections.facts.near import is_given_up
from projections.facts.stances import Stance
from projections.facts.states import StateKey
from projections.facts.supersession import NEIGHBOURS_MAX, Sameness, compare, verdict_of
from projections.memory import Memory

# Questions about one kind of state at a time, the latest ones: who says a hundred vague things of it is not asked
# about all.
PAIRS_MAX: Final = 8


def find_unclear(memory: Memory, more: Iterable[StateKey] = ()) -> tuple[Pair, ...]:
    """Neighbours among the states of the kinds that changed of which nobody knows whether one ends the other.

    The state of the later day stands first. Ask before `plan_supersessions`, which takes note of what changed; of
    what was asked and not answered before the last start, nothing changes: look at those kinds, too.
    """
    keys = dict.fromkeys((*memory.placement.validity.touched, *more))
    return tuple(pair for key in keys for pair in islice(_unclear_of(memory, key), PAIRS_MAX))


def _unclear_of(memory: Memory, key: StateKey) -> Iterator[Pair]:
    canon = memory.canon
    if holds_several(key.attribute):
        return
    chain = [
        told
        for told in memory.placement.validity.states.get(key, ())[-NEIGHBOURS_MAX:]
        if told.fact in canon.facts and told.state.stance is Stance.HOLDS
    ]
    for later, earlier in pairwise(reversed(chain)):
        if later.day > earlier.day and compare(later.state, earlier.state, key.attribute) is Sameness.UNCLEAR:
            one, other = canon.facts[later.fact], canon.facts[earlier.fact]
            pair = one.first.pointer, other.first.pointer
            if verdict_of(one, other, canon.verdicts) is None and not is_given_up(canon.given_up, pair):
                yield pair
