"""`facts.list` with `conflicts`: the contradictions among a user's facts, looked for when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from anyio import to_thread

from daemon.folding import read_in_slices
from daemon.texts import read_texts
from events.log import EventLog
from events.memory import FactId
from projections.facts.canonical import Fact
from projections.facts.conflicts import Conflict, find_conflicts, find_wording_conflicts, suspects
from projections.memory import Memory
from projections.steps import Steps
from projections.texts import FactText

# Texts that are read and compared at once: a block goes in one piece, and most have a few facts.
FACTS_AT_ONCE = 500


async def search_conflicts(log: EventLog, memory: Memory) -> list[Conflict]:
    """All contradictions among the facts that a Memory shows, in the order of the times they are about.

    It is done in a thread, on facts as they stand now.
    """
    facts = await read_in_slices(memory, partial(_shown, memory))
    validity, verdicts = memory.placement.validity, dict(memory.canon.verdicts)
    chains = [(key, tuple(chain)) for key, chain in validity.chains() if len(chain) > 1]
    found = await to_thread.run_sync(find_conflicts, facts, chains, validity, verdicts)
    blocks = await to_thread.run_sync(suspects, facts)
    batch: list[list[Fact]] = []
    for n, block in enumerate(blocks):
        batch.append(block)
        if sum(map(len, batch)) >= FACTS_AT_ONCE or n == len(blocks) - 1:
            texts = await _read_texts(log, [fact for each in batch for fact in each])
            found += await to_thread.run_sync(find_wording_conflicts, batch, texts, verdicts)
            batch = []
    return await to_thread.run_sync(_in_order, facts, found)


def _shown(memory: Memory) -> Steps[list[Fact]]:
    shown: list[Fact] = []
    for fact in memory.canon.facts.values():
        if memory.shows(fact):
            shown.append(fact)
        yield
    return shown


def _in_order(facts: Sequence[Fact], found: Sequence[Conflict]) -> list[Conflict]:
    """In the order of the times they are about; of two reasons for one contradiction the first counts."""
    place = {fact.id: (fact.first.time_start, fact.id) for fact in facts}
    pairs = {(each.one, each.other): each for each in reversed(found)}
    return sorted(pairs.values(), key=lambda each: (place[each.one], place[each.other]))


def find_conflicts_among(memory: Memory, texts: Mapping[FactId, str]) -> list[Conflict]:
    """The contradictions among the few facts that an answer shows, with their texts, as they stand in a Memory."""
    facts = [fact for fact in map(memory.canon.facts.get, texts) if fact is not None]
    validity, verdicts = memory.placement.validity, memory.canon.verdicts
    chains = [
        (key, tuple(chain)) for key, chain in validity.chains() if sum(told.fact in texts for told in chain) > 1
    ]
    found = find_conflicts(facts, chains, validity, verdicts)
    found += find_wording_conflicts(suspects(facts), texts, verdicts)
    return list({(each.one, each.other): each for each in found}.values())


async def _read_texts(log: EventLog, facts: Sequence[Fact]) -> dict[FactId, str]:
    texts = await read_texts(log, [FactText(fact.first.pointer) for fact in facts])
    return {fact.id: text for fact, text in zip(facts, texts, strict=True) if text is not None}
