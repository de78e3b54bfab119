"""What a model is asked for, in as many parts as it takes: facts of a chunk, a summary, a merged text, verdicts.

A question that comes to nothing is asked in halves, one after the other: when one half comes to nothing, so does
the whole, and the other need not be paid for. But for merges, which a rule can do, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

import anyio
import anyio.to_thread

from daemon.chat.fact_answers import join_facts, read_facts
from daemon.chat.prompts import Prompt, extraction_prompt, judge_prompt, merge_prompt, summary_prompt
from daemon.chat.repairing import NotAnswered, ask_until_usable
from daemon.chat.splitting import (
    DEPTH_MAX,
    bytes_of,
    characters_of,
    halve,
    span_of,
    split_chunk,
    split_interval,
)
from daemon.chat.text_answers import SUMMARY_CHARS_MAX, read_merged, read_summary
from daemon.chat.verdict_answers import read_verdicts
from daemon.reading import coverage, kept, small_chunks, times
from daemon.reading.recalled import MACHINE_ROLES
from events.memory import Alias, ExtractedFact, Usage
from projections.ports import (
    AnswerUnusable,
    ChunkText,
    IntervalText,
    MemberText,
    ModelFailed,
    ModelUnavailable,
    PairText,
    TurnText,
)

if TYPE_CHECKING:
    from daemon.chat.answers import ChatAnswer
    from daemon.chat.asking.question import Question
    from daemon.chat.calls import Spending
    from events.decisions import PairVerdict

# Of a chunk this much is asked at once, in UTF-8: with instruction and answer it fits into 4,096 tokens, which
# some servers have for a context; and of longer texts models leave out more. What has more is halved unasked.
CHUNK_BYTES_MAX: Final = 8_000
# So much of the children of a node: ten of 200 words; and of pairs.
INTERVAL_BYTES_MAX: Final = 12_000
# Text that the rules read within 5 ms; more goes to a thread, off the loop.
INLINE_CHARS_MAX: Final = 2_000

P = ParamSpec("P")
T = TypeVar("T")


class Asking(Protocol):
    """One call. Raises `PromptTooLong` and the errors of the port."""

    async def __call__(self, prompt: Prompt, spending: Spending, room: int) -> ChatAnswer:
        """The answer, whatever it is."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a chunk, how many details of it none of them carries, and what is called what in it."""

    facts: tuple[ExtractedFact, ...]
    missed: int
    aliases: tuple[Alias, ...] = ()


class Questions:
    """Asks; all of them raise the errors of the port, with all that was spent in them."""

    def __init__(self, ask: Asking) -> None:
        self._ask_once = ask
        self._are_rules_loaded = False
        self._loading = anyio.Lock()

    async def says_nothing(self, chunk: ChunkText) -> bool:
        """Whether there is nothing to ask."""
        return await self._rule(characters_of(chunk.turns), small_chunks.says_nothing, chunk)

    async def extract(self, chunk: ChunkText, spending: Spending, depth: int = 0) -> Facts:
        """The facts of a chunk, or of its halves."""
        parts = split_chunk(chunk) if depth < DEPTH_MAX else None
        if parts is None or bytes_of(chunk.turns) <= CHUNK_BYTES_MAX:
            try:
                return await self._extract_whole(chunk, spending)
            except NotAnswered as failed:
                if parts is None:
                    raise AnswerUnusable(failed.reason, spending.usage) from None
        spending.add(Usage(splits=1))
        from daemon.chat.alias_answers import join_aliases  # see `_load_rules`

        facts: list[ExtractedFact] = []
        aliases: list[Alias] = []
        missed = 0
        for part in parts:
            read = await self.extract(part.chunk, spending, depth + 1)
            facts += [_moved(fact, part.position) for fact in read.facts]
            aliases += [replace(alias, turn=alias.turn + part.position) for alias in read.aliases]
            missed += read.missed
        return Facts(join_facts(facts), missed, join_aliases(aliases))

    async def summarise(self, interval: IntervalText, spending: Spending, depth: int = 0) -> str:
        """A summary; or those of the two halves, summarised once more where they are long together."""
        parts = split_interval(interval) if depth < DEPTH_MAX else None
        if parts is None or bytes_of(interval.children) <= INTERVAL_BYTES_MAX:
            try:
                read = partial(read_summary, interval=interval)
                return await self._ask(summary_prompt(interval), spending, read)
            except NotAnswered as failed:
                if parts is None:
                    raise AnswerUnusable(failed.reason, spending.usage) from None
        spending.add(Usage(splits=1))
        written = [span_of(part.children, await self.summarise(part, spending, depth + 1)) for part in parts]
        joined = "\n".join(each.text for each in written)
        if len(joined) <= SUMMARY_CHARS_MAX:
            return joined
        return await self.summarise(IntervalText(interval.scope, tuple(written)), spending, DEPTH_MAX)

    async def merge(self, members: tuple[MemberText, ...], spending: Spending) -> str:
        """One text for all; a single text stands for itself.

        Not in parts: the texts of a group are short, and when none of two answers is of use, there is a rule.
        """
        if len(members) == 1:
            return members[0].text
        try:
            return await self._ask(merge_prompt(members), spending, partial(read_merged, members=members))
        except NotAnswered as failed:
            raise AnswerUnusable(failed.reason, spending.usage) from None

    async def judge(self, pairs: tuple[PairText, ...], spending: Spending) -> tuple[PairVerdict, ...]:
        """A verdict on each pair, of all at once or half by half."""
        texts = [text for pair in pairs for text in (pair.earlier, pair.later)]
        if len(pairs) == 1 or bytes_of(texts) <= INTERVAL_BYTES_MAX:
            try:
                return await self._ask(judge_prompt(pairs), spending, partial(read_verdicts, count=len(pairs)))
            except NotAnswered as failed:
                if len(pairs) == 1:
                    raise AnswerUnusable(failed.reason, spending.usage) from None
        spending.add(Usage(splits=1))
        first, second = halve(pairs)
        return (*await self.judge(first, spending), *await self.judge(second, spending))

    async def ask(self, question: Question[T], spending: Spending) -> T:
        """What a query asks. Not in parts: whoever asks knows how to make it smaller."""

        async def read(text: str) -> T:
            if len(text) <= INLINE_CHARS_MAX:
                return question.read(text)
            return await anyio.to_thread.run_sync(question.read, text)

        try:
            return await ask_until_usable(question.prompt, partial(self._call, spending), read)
        except NotAnswered as failed:
            raise AnswerUnusable(failed.reason, spending.usage) from None

    async def _extract_whole(self, chunk: ChunkText, spending: Spending) -> Facts:
        """The facts of a chunk; and once more, of the details that none of them carries."""
        from daemon.chat.alias_answers import all_aliases, read_aliases  # see `_load_rules`

        read = partial(read_facts, chunk=chunk)

        def read_all(text: str) -> tuple[tuple[ExtractedFact, ...], tuple[Alias, ...]]:
            return read(text), read_aliases(text, chunk)

        facts, answered = await self._ask(extraction_prompt(chunk), spending, read_all)
        aliases = await self._rule(characters_of(chunk.turns), all_aliases, chunk, answered)
        missed = await self._find_missed(chunk, facts)
        if missed and spending.calls_left:
            try:
                more = await self._ask(extraction_prompt(chunk, missed), spending, read)
            except (NotAnswered, AnswerUnusable, ModelFailed, ModelUnavailable):
                # What was read is of use; what is missed stays counted.
                return Facts(facts, len(missed), aliases)
            # Asked for a few details, some models give all facts again in other words.
            asked_for = [each for each in more if await self._carries(each, missed, chunk, facts)]
            facts = join_facts(facts, asked_for)
            missed = await self._find_missed(chunk, facts)
        return Facts(facts, len(missed), aliases)

    async def _carries(
        self, fact: ExtractedFact, missed: Sequence[str], chunk: ChunkText, facts: Sequence[ExtractedFact]
    ) -> bool:
        """Whether a fact carries one of the details that these have missed."""
        return not set(missed) <= set(await self._find_missed(chunk, [*facts, fact]))

    async def _find_missed(self, chunk: ChunkText, facts: Sequence[ExtractedFact]) -> tuple[str, ...]:
        # A machine's answer has more details than anybody wants facts of: each would cost a second call.
        texts = [turn.text for turn in chunk.turns if turn.role not in MACHINE_ROLES]
        speakers = [turn.speaker for turn in chunk.turns if turn.speaker]
        read = [coverage.as_read(fact) for fact in facts]
        return await self._rule(sum(map(len, texts)), coverage.missed, texts, read, speakers)

    async def _ask(self, prompt: Prompt, spending: Spending, read: Callable[[str], T]) -> T:
        """One question with its repair. Raises `NotAnswered` and the errors of the port."""

        async def read_answer(text: str) -> T:
            return await self._rule(len(text), read, text)

        return await ask_until_usable(prompt, partial(self._call, spending), read_answer)

    async def _call(self, spending: Spending, prompt: Prompt, room: int, *, is_repair: bool) -> ChatAnswer:
        answer = await self._ask_once(prompt, spending, room)
        if is_repair:
            spending.add(Usage(repairs=1))
        return answer

    async def _rule(self, characters: int, rule: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a rule makes of so much text, off the loop when it is much."""
        if not self._are_rules_loaded:
            async with self._loading:
                if not self._are_rules_loaded:
                    await anyio.to_thread.run_sync(_load_rules)
                    self._are_rules_loaded = True
        if characters <= INLINE_CHARS_MAX:
            return rule(*args, **kwargs)
        return await anyio.to_thread.run_sync(partial(rule, *args, **kwargs))


def _moved(fact: ExtractedFact, position: int) -> ExtractedFact:
    """A fact of a part as one of the chunk, in which the part begins at this turn."""
    return replace(fact, turns=tuple(turn + position for turn in fact.turns))


def _load_rules() -> None:
    """Have the patterns of the rules compiled: some tenths of a second, which no start waits for."""
    from daemon.chat.alias_answers import all_aliases

    text = "Ann moved to Oslo with 2 cats on 8 May 2023, and not last Friday."
    chunk = ChunkText((TurnText("user", "Ann", 0, text),))
    small_chunks.says_nothing(chunk)
    all_aliases(chunk, ())
    times.resolve_in("2023-05-08", 0, text)
    coverage.missed([text], [""])
    kept.lost([text], "")
    kept.invented([""], text)
    kept.invented_names([""], text)
