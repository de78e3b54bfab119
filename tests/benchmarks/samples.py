"""What benchmarks run on: made-up talk with the statistics of real talk, and logs that are full of it.

Words follow Zipf's law, half the sentences are about their speaker and some name others, so that postings, scopes
and trees grow as they do in use. The same seed gives the same talk.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

from daemon.building.extractions import plan_extractions
from daemon.building.summaries import plan_summaries
from daemon.building.work import Means, Origin
from daemon.folding import fold
from daemon.offline.language_model import OfflineLanguageModel
from daemon.reading.recalled import GivenOut
from events.appending import Batch
from events.envelope import NewEvent
from events.log import GROUP_EVENTS_MAX, EventLog
from events.time import Instant
from projections.facts.admission import plan_admissions
from projections.memory import Memory, MemoryParameters
from tests.builders import MONDAY, SECRET, ManualClock, a_closing, a_turn, seeded_nonces

VOCABULARY = 20_000
# Whom people talk about: some often, most once or twice.
PEOPLE = 200
VERBS = ("bought", "visited", "painted", "found", "repaired", "lost", "borrowed", "planned", "sold", "cooked")
SESSION_GAP_MS = 26 * 3_600_000
TURN_MS = 30_000


class Speech:
    """Talk from a seed. `zipf` is the exponent of its word frequencies."""

    def __init__(self, seed: int, zipf: float = 1.05) -> None:
        self._random = random.Random(seed)
        # The words do not come from the seed: two speakers share a language.
        syllables = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
        language = random.Random(0)
        self._words = ["".join(language.choices(syllables, k=language.randint(2, 4))) for _ in range(VOCABULARY)]
        self._people = ["".join(language.choices(syllables, k=3)).capitalize() for _ in range(PEOPLE)]
        self._weights = list(accumulate((rank + 1) ** -zipf for rank in range(VOCABULARY)))

    def words(self, count: int) -> list[str]:
        """So many words, frequent ones more often."""
        return self._random.choices(self._words, cum_weights=self._weights, k=count)

    def person(self) -> str:
        """Someone's name."""
        return self._random.choices(self._people, cum_weights=self._weights[:PEOPLE])[0]

    def sentence(self) -> str:
        """Someone did something; half of the time the speaker."""
        subject = "I" if self._random.random() < 0.5 else self.person()
        companion = f" with {self.person()}" if self._random.random() < 0.3 else ""
        rest = " ".join(self.words(self._random.randint(4, 9)))
        return f"{subject} {self._random.choice(VERBS)} the {rest}{companion}."

    def turn(self) -> str:
        """One to three sentences."""
        return " ".join(self.sentence() for _ in range(self._random.randint(1, 3)))

    def question(self, text: str, words: int = 6) -> str:
        """A question that shares words with a text."""
        return " ".join(self._random.sample(text.split(), k=min(words, len(text.split()))))


def turns_of(
    speech: Speech, session_id: str, count: int, *, user_id: str = "alice", started_at: Instant = MONDAY
) -> list[NewEvent]:
    """The turns of one session, half a minute apart: Alice and the assistant in turn."""
    return [
        a_turn(
            speech.turn(),
            user_id=user_id,
            session_id=session_id,
            turn_id=f"t{n}",
            role="assistant" if n % 2 else "user",
            name="Wren" if n % 2 else "Alice",
            happened_at=started_at + n * TURN_MS,
        )
        for n in range(count)
    ]


async def append_all(log: EventLog, events: Sequence[NewEvent]) -> None:
    """Write events in as few transactions as the log would."""
    for at in range(0, len(events), GROUP_EVENTS_MAX):
        await log.append(Batch(events=tuple(events[at : at + GROUP_EVENTS_MAX])))


@asynccontextmanager
async def fresh_log() -> AsyncGenerator[tuple[EventLog, Path]]:
    """A new log in a folder that goes with it, on the disk where temporary files are."""
    with tempfile.TemporaryDirectory(prefix="mf-bench-") as folder:
        path = Path(folder) / "events.db"
        log = await EventLog.open(path, ManualClock(), seeded_nonces(1), SECRET)
        try:
            yield log, path
        finally:
            await log.close()


class History:
    """Grows the log of one user step by step, as the daemon does with its tasks, and follows it with a Memory."""

    def __init__(self, log: EventLog, user_id: str, seed: int) -> None:
        self.memory = Memory(log.keys.user(user_id), MemoryParameters())
        self._log = log
        self._user_id = user_id
        self._speech = Speech(seed)
        self._means = Means(log, OfflineLanguageModel(), GivenOut(log.keys.secret, lambda: 0))
        self._sessions = 0

    async def speak(self, turns: int) -> None:
        """One session, closed."""
        session_id = f"s{self._sessions}"
        started_at = MONDAY + self._sessions * SESSION_GAP_MS
        self._sessions += 1
        said = turns_of(self._speech, session_id, turns, user_id=self._user_id, started_at=started_at)
        await append_all(self._log, [*said, a_closing(session_id, user_id=self._user_id)])
        await fold(self._log, self.memory)

    async def extract(self) -> None:
        """The facts of every chunk that waits, and their admission."""
        origin = self._origin()
        answers = [await work.ask(self._means) for work in plan_extractions(self.memory, origin)]
        await append_all(self._log, answers)
        await fold(self._log, self.memory)
        await append_all(self._log, self._plan_admissions())
        await fold(self._log, self.memory)

    async def summarise(self) -> int:
        """Every summary that is wanted; how many calls that took."""
        calls = 0
        while planned := list(plan_summaries(self.memory, self._origin(), lambda _: True)):
            await append_all(self._log, [await work.ask(self._means) for work in planned])
            await fold(self._log, self.memory)
            calls += len(planned)
        return calls

    def _origin(self) -> Origin:
        return Origin(self.memory.user, self._user_id, self.memory.user_seq, self.memory.parameters.generation)

    def _plan_admissions(self) -> list[NewEvent]:
        basis = self.memory.user_seq
        return [
            NewEvent(
                user_id=self._user_id,
                session_id=None,
                event=decision,
                key=f"admission/{basis}/{decision.admissions[0].occurrence}",
                happened_at=MONDAY,
                lineage=tuple(sorted(lineage)),
                basis=basis,
            )
            for decision, lineage in plan_admissions(self.memory.canon, self.memory.parameters.generation)
        ]
