"""Tables of figures that were measured: baselines first, dashes for the rest, and the papers' columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from memforest.bench.records import Asked, Built, Evidence, Marks, Run, SessionsFound, Spent, Worded
from memforest.bench.scoring import Figure
from memforest.bench.table import Table
from memforest.bench.table_text import as_json, as_markdown, as_text
from memforest.bench.tables import make_tables

LOCOMO = ("single-hop", "multi-hop", "temporal", "open-domain", "adversarial")


def evidence(recall_10: float) -> Evidence:
    return Evidence(0.1, recall_10, 0.9, 0.2, 0.4, 0.8, 0.5)


def said(*verdicts: bool | None, **marks: float) -> tuple[Worded, ...]:
    """An answer for each verdict: 2 s and 1,000 tokens to word, 300 to judge."""
    spent = Spent(answer_ms=2_000, calls=1, tokens=1_000)
    return tuple(
        Worded("x", False, marks=Marks(judged=verdict, judge_tokens=300, **marks), spent=spent)  # type: ignore[arg-type]
        for verdict in verdicts
    )


def question(row: str, number: int, category: str = "single-hop", **more: object) -> Asked:
    given = {"answerable": category != "adversarial", "spent": Spent(1.0, 4.0, 0.0, 6.0), **more}
    return Asked("", row, f"q{number}", category, **given)  # type: ignore[arg-type]


def a_run(asked: Sequence[Asked], **more: object) -> Run:
    rows = tuple(dict.fromkeys(each.row for each in asked))
    given = {"categories": LOCOMO, "daemons": ("",), "samples": 0, "judged": False, "built": (), **more}
    return Run("locomo", rows, k=10, asked=tuple(asked), **given)  # type: ignore[arg-type]


def table(run: Run, key: str) -> Table:
    return next(each for each in make_tables(run) if each.key == key)


def cells(run: Run, key: str, row: str, daemon: str = "") -> dict[str, float | None]:
    found = table(run, key)
    (line,) = [each for each in found.rows if (each.daemon, each.name) == (daemon, row)]
    return {
        column.name: None if cell is None else round(cell.mean, 4)
        for column, cell in zip(found.columns, line.cells, strict=True)
    }


def keys(run: Run) -> list[str]:
    return [each.key for each in make_tables(run)]


def test_accuracy_is_by_kind_over_all_without_adversarial_and_with_it() -> None:
    run = a_run(
        [
            question("agpr", 1, worded=said(True, True)),
            question("agpr", 2, worded=said(True, False)),
            question("agpr", 3, "multi-hop", worded=said(False, False)),
            question("agpr", 4, "adversarial", worded=said(True, True)),
        ],
        samples=2,
        judged=True,
    )

    assert cells(run, "accuracy", "agpr") == {
        "SH": 75.0,
        "MH": 0.0,
        "TR": None,
        "OD": None,
        "AD": 100.0,
        "All": 50.0,
        "All 5": 62.5,
    }


def test_pass_at_k_is_over_all_questions_that_have_as_many_answers() -> None:
    run = a_run(
        [
            question("agpr", 1, worded=said(True, False, False, False)),
            question("agpr", 2, worded=said(False, False, False, None)),
        ],
        samples=4,
        judged=True,
    )

    # By hand: of the first 1/4, 1/2, 3/4, 1; the second has three verdicts, all wrong.
    assert cells(run, "pass_at", "agpr") == {"pass@1": 12.5, "pass@2": 25.0, "pass@3": 37.5, "pass@4": 100.0}
    assert [cell.n for cell in table(run, "pass_at").rows[0].cells if cell] == [2, 2, 2, 1]


def test_baselines_stand_first_and_have_a_dash_where_they_were_not_asked_for_words() -> None:
    run = a_run(
        [
            question("forest", 1, worded=said(True)),
            question("hybrid", 1, evidence=evidence(0.5)),
            question("agpr", 1, worded=said(False)),
            question("BM25", 1, evidence=evidence(0.25)),
        ],
        samples=1,
        judged=True,
    )

    assert [row.name for row in table(run, "accuracy").rows] == ["BM25", "hybrid", "forest", "agpr"]
    assert set(cells(run, "accuracy", "BM25").values()) == {None}
    assert cells(run, "evidence", "BM25")["R@10"] == 25.0
    first = as_text([table(run, "accuracy")]).splitlines()[2].split()
    assert first == ["BM25", "-", "-", "-", "-", "-", "-"]


def test_what_was_not_measured_has_no_table_or_no_figure_and_never_a_zero() -> None:
    run = a_run([question("agpr", 1, evidence=evidence(0.5))])

    assert keys(run) == ["evidence_by_category", "evidence", "cost"]
    costs = cells(run, "cost", "agpr")
    assert costs["answer"] is costs["answer tokens"] is costs["judge tokens"] is None
    assert (costs["embed"], costs["retrieve"], costs["wall"], costs["rounds"]) == (1.0, 4.0, 6.0, 1.0)
    written = as_json(run, make_tables(run))["tables"]["cost"]["rows"][0]["figures"]
    assert written["answer"] is None
    assert written["retrieve"] == {"mean": 4.0, "n": 1, "low": 4.0, "high": 4.0}


def test_evidence_of_sessions_is_of_those_that_have_gold_sessions() -> None:
    asked = [question("agpr", 1, "multi-session", sessions=SessionsFound(0.5, 1.0, 1.0)), question("agpr", 2)]
    run = a_run(asked, categories=("multi-session", "single-session-user"))

    assert cells(run, "sessions", "agpr") == {"R@5": 50.0, "R@10": 100.0, "R@20": 100.0}


def test_words_in_common_are_bleu_and_f1_of_each_kind() -> None:
    run = a_run(
        [
            question("agpr", 1, worded=said(None, bleu_1=0.25, f1=0.5)),
            question("agpr", 2, "adversarial", worded=said(None, f1=1.0)),
        ],
        samples=1,
    )
    found = cells(run, "overlap", "agpr")

    assert (found["SH B1"], found["SH F1"], found["AD B1"], found["AD F1"]) == (25.0, 50.0, None, 100.0)
    assert (found["All B1"], found["All F1"], found["All 5 F1"]) == (25.0, 50.0, 75.0)
    assert "accuracy" not in keys(run)


def test_abstaining_is_measured_where_something_cannot_be_answered() -> None:
    abstained = (Worded(None, abstained=True),)
    run = a_run(
        [
            question("agpr", 1, confidence=0.9, worded=said(None)),
            question("agpr", 2, confidence=0.3, insufficient=True, worded=abstained),
            question("agpr", 3, "adversarial", confidence=0.2, insufficient=True, worded=abstained),
            question("agpr", 4, "adversarial", confidence=0.4, worded=said(None)),
            question("BM25", 4, "adversarial"),
        ],
        samples=1,
    )

    assert cells(run, "abstention", "agpr") == {
        "AUROC": 0.75,  # .9 above both, .3 above one of two
        "P found": 50.0,
        "R found": 50.0,
        "P answer": 50.0,
        "R answer": 50.0,
    }
    assert set(cells(run, "abstention", "BM25").values()) == {None}
    assert "abstention" not in keys(a_run([question("agpr", 1, confidence=0.9)]))


def test_time_and_tokens_are_means_over_questions_and_answers() -> None:
    run = a_run([question("agpr", 1, worded=said(True, False))], samples=2, judged=True)
    found = cells(run, "cost", "agpr")

    assert (found["answer"], found["answer calls"], found["answer tokens"]) == (2_000.0, 1.0, 1_000.0)
    assert found["judge tokens"] == 300.0


def test_a_building_that_was_broken_off_has_sizes_and_no_time() -> None:
    whole = Built("", "c1", sessions=19, turns=400, wall_s=10.0, calls=50, tokens=9_000, cost=0.5, facts=300)
    run = a_run(
        [question("agpr", 1)], built=(whole, replace(whole, conversation_id="c2", wall_s=1.0, resumed=True))
    )

    assert cells(run, "built", "memory")["build"] == 10.0
    assert [cell.n for cell in table(run, "built").rows[0].cells if cell] == [2, 2, 2, 1, 1, 1, 1]


def test_refused_questions_are_counted_and_in_no_other_figure() -> None:
    run = a_run(
        [question("agpr", 1, evidence=evidence(1.0)), question("agpr", 2, fault="busy", evidence=evidence(0.0))]
    )

    assert cells(run, "faults", "agpr") == {"busy": 1.0}
    assert cells(run, "evidence", "agpr")["R@10"] == 100.0


def test_answers_without_a_verdict_are_counted_where_there_should_be_one() -> None:
    asked = [question("agpr", 1, worded=said(True, None)), question("agpr", 2, worded=said(True, True))]

    assert cells(a_run(asked, samples=2, judged=True), "faults", "agpr") == {"not judged": 1.0}
    assert "faults" not in keys(a_run(asked, samples=2))


def test_several_daemons_have_rows_of_their_own_and_what_each_keeps_of_the_first() -> None:
    asked = [
        replace(question("agpr", number, worded=said(verdict)), daemon=daemon)
        for daemon, verdicts in (("large", (True, True, True, False)), ("small", (True, True, False, False)))
        for number, verdict in enumerate(verdicts)
    ]
    run = a_run(asked, daemons=("large", "small"), samples=1, judged=True)

    assert cells(run, "accuracy", "agpr", "large")["kept"] == 100.0
    assert cells(run, "accuracy", "agpr", "small")["kept"] == pytest.approx(100 * 50 / 75, abs=1e-4)
    assert "small agpr" in as_text([table(run, "accuracy")])


def test_personamem_counts_the_right_option_by_type() -> None:
    right = (Worded("(b)", False, marks=Marks(choice_right=True, chosen=1)),)
    wrong = (Worded("?", False, marks=Marks(choice_right=False)),)
    types = ("suggest_new_ideas", "some_new_type")
    asked = [question("agpr", 1, types[0], worded=right), question("agpr", 2, types[1], worded=wrong)]
    run = a_run(asked, categories=types, samples=1, judged=True)

    assert cells(run, "accuracy", "agpr") == {"ideas": 100.0, "some_new_type": 0.0, "All": 50.0}
    assert "option" in table(run, "accuracy").title
    assert "faults" not in keys(run)


def test_longmemeval_counts_abstention_into_all() -> None:
    types = ("multi-session", "abstention")
    asked = [
        question("agpr", 1, types[0], worded=said(False)),
        question("agpr", 2, types[1], answerable=False, worded=said(True)),
    ]

    assert cells(a_run(asked, categories=types, samples=1, judged=True), "accuracy", "agpr") == {
        "MS": 0.0,
        "AB": 100.0,
        "All": 50.0,
    }


def test_text_has_how_many_and_the_interval_of_what_is_over_all() -> None:
    asked = [question("agpr", n, worded=said(n % 2 == 0)) for n in range(40)]
    run = a_run(asked, samples=1, judged=True)
    figure = table(run, "accuracy").rows[0].cells[5]
    assert isinstance(figure, Figure)
    text = as_text([table(run, "accuracy")], ["One note."])
    _, head, row, count, *_ = text.splitlines()

    assert head.split() == ["SH", "MH", "TR", "OD", "AD", "All"]
    assert row.split()[:2] == ["agpr", "50.0"]
    assert f"50.0 ±{(figure.high - figure.low) / 2:.1f}" in row
    assert count.split() == ["n", "40", "-", "-", "-", "-", "40"]
    assert "SH: single-hop" in text
    assert text.endswith("One note.\n")


def test_rows_of_differently_many_questions_say_of_how_many_each_is() -> None:
    asked = [question("agpr", 1, evidence=evidence(1.0)), question("agpr", 2, evidence=evidence(0.0))]
    run = a_run([*asked, question("BM25", 1, evidence=evidence(1.0))])
    text = as_text([table(run, "evidence")])

    assert "100.0 (1)" in text
    assert "(2)" in text
    assert not any(line.startswith("n ") for line in text.splitlines())


def test_markdown_is_a_table_and_json_can_be_written() -> None:
    run = a_run([question("agpr", 1, evidence=evidence(1.0))], notes=("No embedder ranks.",))
    tables = make_tables(run)
    lines = as_markdown(tables, run.notes).splitlines()
    body = json.loads(json.dumps(as_json(run, tables)))

    assert lines[0].startswith("### ")
    assert lines[2].startswith("|  | SH |")
    assert set(lines[3].replace("|", "").split()) == {"---", "---:"}
    assert lines[-1] == "No embedder ranks."
    assert (body["questions"], body["k"], body["notes"]) == (1, 10, ["No embedder ranks."])
    assert body["tables"]["evidence"]["rows"][0]["figures"]["R@10"]["mean"] == 100.0


def test_a_run_in_which_nothing_was_asked_has_no_tables() -> None:
    assert make_tables(a_run([])) == ()
    assert as_text(()) == "\n"
