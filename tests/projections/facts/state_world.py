"""A log in which people tell where they live, and a Memory that follows it and supersedes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from events.memory import Alias, ExtractedFact, FactId, FactRole, FactsExtracted, Mention, StateOf
from events.time import Instant
from projections.facts.canonical import Fact
from projections.facts.supersession import plan_supersessions
from tests.projections.facts.fact_world import FactWorld


def day(text: str) -> Instant:
    """The instant at which a day begins: "2024-01-02"."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def a_state(
    text: str,
    at: str,
    attribute: str = "home",
    entity: str = "Alice",
    *,
    names: Sequence[str] | None = None,
    until: str | None = None,
) -> ExtractedFact:
    """A state that names whatever is written with a capital, from the day `at` on."""
    if names is None:
        said = text.removeprefix(f"{entity}: ")
        names = [word.strip(".,") for word in said.split()[said != text :] if word[0].isupper()]
    mentions = tuple(map(Mention, dict.fromkeys(names)))
    start = day(at)
    state = StateOf(entity, attribute)
    return ExtractedFact(text, (0,), start, day(until or at), FactRole.STATE, mentions, state=state)


class StateWorld(FactWorld):
    """Tells states of any day; each in two turns of its own."""

    def live(
        self, text: str, at: str, session: str = "s1", attribute: str = "home", entity: str = "Alice"
    ) -> None:
        """Tell a state, admit it, and let what follows from it be recorded."""
        self.tell(a_state(text, at, attribute, entity), session=session)

    def tell(self, *states: ExtractedFact, session: str = "s1") -> None:
        self.say("Hello.", "Well.", session=session)
        self.extract(*states)
        self.admit()
        self.supersede()

    def name(self, label: str, alias: str, session: str = "s1") -> None:
        """Somebody says that these are two names of one."""
        self.say("Hello.", "Well.", session=session)
        chunk = next(iter(self.memory.waiting_chunks.values()))
        event = FactsExtracted(
            1, chunk.key, chunk.turns, (), chunk.places, None, "offline", (), aliases=(Alias(label, alias, 0),)
        )
        self.write(self._decided(event, (chunk.session,), chunk.session))

    def supersede(self) -> int:
        """Record what is planned, and how many events that were."""
        planned = plan_supersessions(self.memory, 1)
        self.write(*(self._decided(event, lineage, n=n) for n, (event, lineage) in enumerate(planned)))
        return len(planned)

    def id(self, text: str) -> FactId:
        return self.fact(text).id

    def spans(self) -> dict[str, tuple[str, str | None]]:
        """From when until when each fact holds, as days, by its text."""
        return {self.text_of(fact): self.span(fact) for fact in self.memory.canon.facts.values()}

    def span(self, fact: Fact) -> tuple[str, str | None]:
        interval = self.memory.placement.validity.interval(fact)
        return _day(interval.start), None if interval.until is None else _day(interval.until)

    def told_of(self, fact: FactId | None) -> str | None:
        return None if fact is None else self.text_of(self.memory.canon.facts[fact])


def _day(at: Instant) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()
