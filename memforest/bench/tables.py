"""The tables of a benchmark in the papers' form: a row for each way of asking, a column for each kind of question.

What was not measured is None, never 0. Pure; `table_text` writes the tables down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from memforest.bench.records import Asked, Evidence, Run, SessionsFound, Worded
from memforest.bench.scoring import LocomoKind, pass_at
from memforest.bench.side_tables import abstention_table, built_table, cost_table, faults_table
from memforest.bench.table import (
    Answers,
    Cell,
    Column,
    Measure,
    Measured,
    Row,
    Table,
    Unit,
    bare,
    figure_over,
    mean_of_answers,
    of_columns,
    rows_of,
)

ALL: Final = "All"
ALL_5: Final = "All 5"
# Short names of kinds of questions, as the papers' columns have them (paper A, tables 1 and 10).
SHORT: Final = {
    LocomoKind.SINGLE_HOP.value: "SH",
    LocomoKind.MULTI_HOP.value: "MH",
    LocomoKind.TEMPORAL.value: "TR",
    LocomoKind.OPEN_DOMAIN.value: "OD",
    LocomoKind.ADVERSARIAL.value: "AD",
    "single-session-user": "SU",
    "single-session-assistant": "SA",
    "single-session-preference": "SP",
    "multi-session": "MS",
    "knowledge-update": "KU",
    "temporal-reasoning": "TR",
    "abstention": "AB",
    "recall_user_shared_facts": "facts",
    "recalling_facts_mentioned_by_the_user": "mentioned",
    "suggest_new_ideas": "ideas",
    "track_full_preference_evolution": "evolution",
    "recalling_the_reasons_behind_previous_updates": "reasons",
    "provide_preference_aligned_recommendations": "aligned",
    "generalizing_to_new_scenarios": "scenarios",
}


def make_tables(run: Run) -> tuple[Table, ...]:
    """All tables in which something was measured, answers first."""
    rows = rows_of(run)
    tables = (
        _accuracy(run, rows),
        _pass_at(run, rows),
        _overlap(run, rows),
        _evidence_by_category(run, rows),
        _evidence(rows),
        _sessions(rows),
        abstention_table(rows),
        cost_table(rows),
        built_table(run),
        faults_table(run, rows),
    )
    return tuple(table for table in tables if table.is_measured)


def _by_category(
    run: Run, rows: Sequence[Answers], measures: Sequence[tuple[str, Measure]]
) -> tuple[tuple[Column, ...], tuple[Row, ...]]:
    """Columns for each category and over all.

    For LoCoMo over all without adversarial questions (as paper A), and with them (as paper B) where that differs.
    """
    adversarial = LocomoKind.ADVERSARIAL.value
    groups: list[tuple[str, str, frozenset[str]]] = [
        (SHORT.get(each, each), f"{SHORT[each]}: {each}" if each in SHORT else "", frozenset((each,)))
        for each in run.categories
    ]
    everything = frozenset(run.categories)
    groups.append((ALL, "", everything - {adversarial} or everything))
    filling = [(*group, *measure) for group in groups for measure in measures]
    if len(everything) > 1:
        only = frozenset((adversarial,))
        filling += [
            (ALL_5, f"{ALL_5}: with adversarial", everything, name, measure)
            for name, measure in measures
            if any(_of_group(row, only, measure) for row in rows)
        ]
    columns = tuple(
        Column(f"{short} {name}".strip(), Unit.PERCENT, explained, interval=short in (ALL, ALL_5))
        for short, explained, _, name, _ in filling
    )
    return columns, tuple(
        Row(row.daemon, row.name, tuple(_of_group(row, group, measure) for _, _, group, _, measure in filling))
        for row in rows
    )


def _of_group(row: Answers, group: frozenset[str], measure: Measure) -> Cell:
    return figure_over((each for each in row.whole if each.category in group), measure, 100)


def _accuracy(run: Run, rows: Sequence[Answers]) -> Table:
    columns, filled = _by_category(run, rows, [("", _share_right)])
    place = next(at for at, column in enumerate(columns) if column.name == ALL)
    if len(run.daemons) > 1:
        first = {row.name: row.cells[place] for row in reversed(filled)}
        columns = (*columns, Column("kept", Unit.PERCENT, f"kept: {ALL} as a share of what the first daemon has"))
        filled = tuple(
            Row(row.daemon, row.name, (*row.cells, _kept(row.cells[place], first[row.name]))) for row in filled
        )
    by = "the right option chosen" if _is_choice(run) else "answers that a model judged right"
    return Table("accuracy", f"Accuracy in %: {by} (pass@1)", columns, filled)


def _kept(now: Cell, first: Cell) -> Cell:
    if now is None or first is None or not first.mean:
        return None
    return bare(now.mean / first.mean, now.n, 100)


def _is_choice(run: Run) -> bool:
    return any(worded.marks.choice_right is not None for each in run.asked for worded in each.worded)


def _right(worded: Worded) -> bool | None:
    marks = worded.marks
    return marks.judged if marks.choice_right is None else marks.choice_right


def _verdicts(asked: Asked) -> list[bool]:
    return [right for worded in asked.worded if (right := _right(worded)) is not None]


def _share_right(asked: Asked) -> float | None:
    verdicts = _verdicts(asked)
    return sum(verdicts) / len(verdicts) if verdicts else None


def _pass_at(run: Run, rows: Sequence[Answers]) -> Table:
    ks = range(1, run.samples + 1) if run.samples > 1 else ()

    def measure(k: int) -> Measure:
        def of(asked: Asked) -> float | None:
            verdicts = _verdicts(asked)
            return pass_at(k, len(verdicts), sum(verdicts)) if len(verdicts) >= k else None

        return of

    filled = tuple(
        Row(row.daemon, row.name, tuple(figure_over(row.whole, measure(k), 100) for k in ks)) for row in rows
    )
    note = "Over all questions; the unbiased estimator of Chen et al. 2021."
    return Table("pass_at", "pass@k in %", tuple(Column(f"pass@{k}", interval=True) for k in ks), filled, note)


def _overlap(run: Run, rows: Sequence[Answers]) -> Table:
    measures = [
        ("B1", mean_of_answers(lambda each: each.marks.bleu_1)),
        ("F1", mean_of_answers(lambda each: each.marks.f1)),
    ]
    columns, filled = _by_category(run, rows, measures)
    note = "B1: BLEU-1 as Mem0's evaluation has it. F1: over words; LoCoMo's by its own rules for each kind."
    return Table("overlap", "Words in common with what is right, in %", columns, filled, note)


def _evidence_by_category(run: Run, rows: Sequence[Answers]) -> Table:
    def recall(asked: Asked) -> float | None:
        return None if asked.evidence is None else asked.evidence.recall_10

    columns, filled = _by_category(run, rows, [("", recall)])
    return Table("evidence_by_category", "R@10 in %: gold turns among the first ten memories", columns, filled)


def _evidence(rows: Sequence[Answers]) -> Table:
    def of(read: Callable[[Evidence], float]) -> Measure:
        return lambda asked: None if asked.evidence is None else read(asked.evidence)

    columns: list[Measured] = [
        (Column("R@5"), of(lambda each: each.recall_5), 100),
        (Column("R@10", interval=True), of(lambda each: each.recall_10), 100),
        (Column("R@20"), of(lambda each: each.recall_20), 100),
        (
            Column("2,000", explained="2,000, 4,000, 8,000: recall within so many characters"),
            of(lambda each: each.within_2000),
            100,
        ),
        (Column("4,000", interval=True), of(lambda each: each.within_4000), 100),
        (Column("8,000"), of(lambda each: each.within_8000), 100),
        (Column("MRR", Unit.SHARE), of(lambda each: each.mrr), 1),
    ]
    return of_columns("evidence", "Evidence: gold turns in what was found, in %; MRR from 0 to 1", rows, columns)


def _sessions(rows: Sequence[Answers]) -> Table:
    def of(read: Callable[[SessionsFound], float]) -> Measure:
        return lambda asked: None if asked.sessions is None else read(asked.sessions)

    columns: list[Measured] = [
        (Column("R@5"), of(lambda each: each.recall_5), 100),
        (Column("R@10", interval=True), of(lambda each: each.recall_10), 100),
        (Column("R@20"), of(lambda each: each.recall_20), 100),
    ]
    return of_columns("sessions", "Sessions: gold sessions that the first memories are from, in %", rows, columns)
