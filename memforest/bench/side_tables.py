"""The tables of a benchmark beside those of its answers: abstaining, time and tokens, building, refusals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memforest.bench.records import Asked, Built, Run, Worded
from memforest.bench.scoring import abstention_of, auroc, figure_of
from memforest.bench.table import (
    Answers,
    Cell,
    Column,
    Measured,
    Row,
    Table,
    Unit,
    bare,
    mean_of_answers,
    of_columns,
)


def abstention_table(rows: Sequence[Answers]) -> Table:
    """How well each row knows what was never said: by its confidence, by `insufficient`, and by its answers."""
    columns = (
        Column("AUROC", Unit.SHARE, "AUROC: of the confidence, answerable against unanswerable"),
        Column("P found", Unit.PERCENT, "P found: precision of `insufficient`"),
        Column("R found", Unit.PERCENT, "R found: recall of `insufficient`"),
        Column("P answer", Unit.PERCENT, "P answer: precision of abstaining in words"),
        Column("R answer", Unit.PERCENT, "R answer: recall of abstaining in words"),
    )
    return Table(
        "abstention",
        "Abstaining on what was never said: precision and recall in %, AUROC from 0 to 1",
        columns,
        tuple(Row(row.daemon, row.name, _abstention_cells(row.whole)) for row in rows),
    )


def _abstention_cells(asked: Sequence[Asked]) -> tuple[Cell, ...]:
    if all(each.answerable for each in asked):
        return (None,) * 5
    sure = [(each.confidence, each.answerable) for each in asked if each.confidence is not None]
    area = auroc([value for value, has in sure if has], [value for value, has in sure if not has])
    # A row without a word on its memories, such as a baseline, has no confidence either.
    found = [(each.insufficient, each.answerable) for each in asked if each.confidence is not None]
    worded = [(each.abstained, question.answerable) for question in asked for each in question.worded]
    cells: list[Cell] = [bare(area, len(sure))]
    for pairs in (found, worded):
        both = abstention_of(pairs)
        cells += [
            bare(both.precision, sum(abstained for abstained, _ in pairs), 100),
            bare(both.recall, sum(not answerable for _, answerable in pairs), 100),
        ]
    return tuple(cells)


def cost_table(rows: Sequence[Answers]) -> Table:
    """What a question takes, on average: finding, wording one answer, judging it."""
    columns: list[Measured] = [
        (Column("embed", Unit.MS), lambda each: each.spent.embedding_ms, 1),
        (Column("retrieve", Unit.MS), lambda each: each.spent.retrieval_ms, 1),
        (Column("wall", Unit.MS, "wall: a query as its client sees it"), lambda each: each.spent.wall_ms, 1),
        (
            Column("rounds", Unit.COUNT, "rounds: of retrieval; a second one where the evidence was not enough"),
            lambda each: each.spent.rounds,
            1,
        ),
        (Column("calls", Unit.COUNT, "calls: of a model, for finding"), lambda each: each.spent.calls, 1),
        (Column("tokens", Unit.COUNT), lambda each: each.spent.tokens, 1),
        (
            Column("answer", Unit.MS, "answer: wording an answer"),
            mean_of_answers(lambda each: each.spent.answer_ms),
            1,
        ),
        (Column("answer calls", Unit.COUNT), mean_of_answers(lambda each: each.spent.calls), 1),
        (Column("answer tokens", Unit.COUNT), mean_of_answers(lambda each: each.spent.tokens), 1),
        (Column("judge tokens", Unit.COUNT), mean_of_answers(_judge_tokens), 1),
    ]
    return of_columns("cost", "Time and tokens of a question", rows, columns)


def _judge_tokens(worded: Worded) -> float | None:
    return None if worded.marks.judged is None else worded.marks.judge_tokens


def built_table(run: Run) -> Table:
    """What building the memory of a conversation takes, on average."""

    def of(read: Callable[[Built], float], built: Sequence[Built]) -> Cell:
        return figure_of([read(each) for each in built])

    columns = (
        Column("sessions", Unit.COUNT),
        Column("turns", Unit.COUNT),
        Column("facts", Unit.COUNT),
        Column("build", Unit.SECONDS, "build: from the first turn to nothing pending"),
        Column("calls", Unit.COUNT),
        Column("tokens", Unit.COUNT),
        Column("cost", Unit.SHARE, "cost: in the currency of the configured prices"),
    )
    filled: list[Row] = []
    for daemon in run.daemons or ("",):
        built = [each for each in run.built if each.daemon == daemon]
        # The clock of what was broken off tells of its end alone.
        whole = [each for each in built if not each.resumed]
        cells = (
            of(lambda each: each.sessions, built),
            of(lambda each: each.turns, built),
            of(lambda each: each.facts, built),
            of(lambda each: each.wall_s, whole),
            of(lambda each: each.calls, whole),
            of(lambda each: each.tokens, whole),
            of(lambda each: each.cost, whole),
        )
        filled.append(Row(daemon, "memory", cells))
    return Table("built", "Building the memory of a conversation", columns, tuple(filled))


def faults_table(run: Run, rows: Sequence[Answers]) -> Table:
    """How many questions of each row were refused, by code; and how many answers have no verdict for all that."""
    codes = sorted({each.fault for row in rows for each in row.asked if each.fault is not None})
    columns = [Column(code, Unit.COUNT) for code in codes]
    counts = [[sum(each.fault == code for each in row.asked) for code in codes] for row in rows]
    unjudged = [sum(map(_count_unjudged, row.whole)) for row in rows] if run.judged else []
    if any(unjudged):
        columns.append(Column("not judged", Unit.COUNT, "not judged: answers of which the model made no verdict"))
        counts = [[*count, without] for count, without in zip(counts, unjudged, strict=True)]
    filled = tuple(
        Row(row.daemon, row.name, tuple(bare(each, len(row.asked)) for each in count))
        for row, count in zip(rows, counts, strict=True)
    )
    return Table("faults", "Questions that were refused, and are in no other table", tuple(columns), filled)


def _count_unjudged(asked: Asked) -> int:
    marks = [worded.marks for worded in asked.worded]
    return sum(each.judged is None and each.choice_right is None for each in marks)
