"""What a benchmark asks (`Case`), what came of it (`Asked`) and of the building before (`Built`): the seam of
its rooms.

`datasets` make cases, `flow` asks them and writes `Asked` into the log, `scoring` and `judging` turn one answer
into `Marks`, `tables` reads a whole `Run`. Ids, counts and times alone, but for the words of a case and of an
answer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One question of a data set. `case_id` is unique in it, `category` is the data set's own word for its kind.

    `gold`: the turns that answer it, by their ids, which are unique in a conversation; empty where the data set
    names none, and for what is not answerable. `gold_sessions`: the sessions that they are from, by their ids.
    `answers`: what is right, in the data set's words, any of them; of what is not answerable at most an
    explanation. `options` is there when the answer is one of several, and `right_option` counts in it from 0.
    `answerable` is False for a question that the conversation does not answer: then abstaining is right.
    `asked_at`: when it is asked, in ISO 8601.
    """

    case_id: str
    conversation_id: str
    category: str
    question: str
    gold: frozenset[str] = frozenset()
    gold_sessions: frozenset[str] = frozenset()
    answers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    right_option: int | None = None
    answerable: bool = True
    asked_at: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """How much of a case's gold turns the answer carries: shares of 0 to 1, and of MRR 1 / rank of the first.

    `recall_N`: the first N memories; `within_N`: the longest prefix of at most N characters.
    """

    recall_5: float
    recall_10: float
    recall_20: float
    within_2000: float
    within_4000: float
    within_8000: float
    mrr: float


@dataclass(frozen=True, slots=True)
class SessionsFound:
    """The share of a case's gold sessions that the first 5, 10 and 20 memories are from (LongMemEval's own
    measure).
    """

    recall_5: float
    recall_10: float
    recall_20: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What one request cost. Times in ms: of the question's embedding, of recall, of the answer's wording, and of
    the whole as the client sees it; `rounds` of retrieval; model calls and tokens."""

    embedding_ms: float = 0.0
    retrieval_ms: float = 0.0
    answer_ms: float = 0.0
    wall_ms: float = 0.0
    rounds: int = 1
    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Marks:
    """How good one worded answer is. None: not measured, or not of this kind of question.

    `judged`: a model found it right; `chosen`: the option that it names (from 0), `choice_right` whether that is
    the right one; `bleu_1` and `f1` are from 0 to 1, the best over the case's answers.
    """

    judged: bool | None = None
    choice_right: bool | None = None
    chosen: int | None = None
    bleu_1: float | None = None
    f1: float | None = None
    judge_calls: int = 0
    judge_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Worded:
    """One answer in words; `text` is None once it is read from a log that keeps none. `cited`: ids of memories."""

    text: str | None
    abstained: bool
    cited: tuple[str, ...] = ()
    marks: Marks = Marks()
    spent: Spent = Spent()


@dataclass(frozen=True, slots=True)
class Asked:
    """One case asked in one row of the table: a line of the log.

    `daemon` is the name of the daemon (of its merge model) where there are several, else empty; `row` names the
    way of asking (`BM25`, `hybrid`, `agpr`, ...). `evidence` is None for a case without gold turns, `sessions`
    without gold sessions. `confidence` and `insufficient` are the daemon's word on the memories. `worded` has an
    answer for each sample, so that pass@n is whether any of the first n is right. `fault`: a code and no word,
    when the daemon refused this question.
    """

    daemon: str
    row: str
    case_id: str
    category: str
    answerable: bool = True
    evidence: Evidence | None = None
    sessions: SessionsFound | None = None
    spent: Spent = Spent()
    mode: str = ""
    confidence: float | None = None
    insufficient: bool = False
    memories: tuple[str, ...] = ()
    worded: tuple[Worded, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """One conversation that was published to one daemon and built; `wall_s` from the first turn to nothing
    pending.

    `calls` and `tokens` are what models were asked meanwhile, `cost` in the currency of the configured prices.
    They are those of the whole daemon meanwhile. `resumed`: built in more than one run, of which `wall_s` is the
    last.
    """

    daemon: str
    conversation_id: str
    sessions: int
    turns: int
    wall_s: float
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    facts: int = 0
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A whole benchmark, for the tables: its data set, the rows and daemons in their order, and all that came of
    it.

    `samples` is how many answers a question were asked for (0: none). `notes` are sentences that belong under
    the tables, such as that no embedder ranks, so that hybrid is BM25.
    """

    data_set: str
    rows: tuple[str, ...]
    daemons: tuple[str, ...]
    categories: tuple[str, ...]
    k: int
    samples: int
    judged: bool
    built: tuple[Built, ...]
    asked: tuple[Asked, ...]
    notes: tuple[str, ...] = ()
