"""Marks by rule and by a judge: bounded, resumable, each text judged once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import anyio
import pytest

from memforest.bench.judging import NEVER_SAID, judge_all, judge_one, mark, rubric_of
from memforest.bench.records import Asked, Case, Marks, Worded
from memforest.errors import DaemonError, DaemonUnreachable, RequestInvalid, Unavailable
from memforest.judged import Judgement, Rubric
from memforest.origins import Spent

CASE = Case("c1", "conv", "single-hop", "Where did Ann move?", answers=("Oslo", "to Oslo"))
NEVER = Case("c2", "conv", "adversarial", "Where did Bob move?", answerable=False)
CHOICE = Case("c3", "conv", "suggest_new_ideas", "What?", options=("A walk", "A book"), right_option=1)


def asked(case: Case, *texts: str | Worded) -> Asked:
    worded = tuple(each if isinstance(each, Worded) else Worded(each, abstained=False) for each in texts)
    return Asked("", "agpr", case.case_id, case.category, case.answerable, worded=worded)


@dataclass
class Judge:
    """Right is what holds a gold; it notes what it was asked, and how much at once."""

    errors: dict[str, Exception] = field(default_factory=dict[str, Exception])
    asked: list[tuple[tuple[str, ...], str, Rubric]] = field(
        default_factory=list[tuple[tuple[str, ...], str, Rubric]]
    )
    at_once: int = 0
    most: int = 0

    async def __call__(self, case: Case, gold: tuple[str, ...], answer: str, rubric: Rubric) -> Judgement:
        self.asked.append((gold, answer, rubric))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        if answer in self.errors:
            raise self.errors[answer]
        right = any(each in answer for each in gold)
        return Judgement(right, "same" if right else "different", "m", "p", Spent(1, 100, 0, 20))


def verdicts(each: Asked) -> list[bool | None]:
    return [worded.marks.judged for worded in each.worded]


async def keep_in(kept: list[Asked], each: Asked) -> None:
    kept.append(each)


def test_an_answer_is_marked_by_its_best_gold() -> None:
    marks = mark(CASE, Worded("to Oslo", abstained=False)).marks

    assert marks == Marks(bleu_1=1.0, f1=1.0)


def test_who_abstains_has_none_of_the_words_and_no_verdict_before_it_is_asked_for() -> None:
    assert mark(CASE, Worded("I do not know Oslo", abstained=True)).marks == Marks(bleu_1=0.0, f1=0.0)
    assert mark(CASE, Worded(None, abstained=True)).marks == Marks(bleu_1=0.0, f1=0.0)
    assert mark(CHOICE, Worded(None, abstained=True)).marks == Marks(choice_right=False)
    assert mark(NEVER, Worded(None, abstained=True)).marks == Marks(f1=1.0)
    assert mark(NEVER, Worded("To Oslo.", abstained=False)).marks == Marks(f1=0.0)


def test_locomo_is_scored_by_the_rule_of_its_kind() -> None:
    case = replace(CASE, category="multi-hop", answers=("pottery, running",))

    assert mark(case, Worded("running", abstained=False)).marks.f1 == 0.5
    assert mark(replace(case, category="multi-session"), Worded("running", False)).marks.f1 == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("text", "chosen", "right"), [("(b)", 1, True), ("(a)", 0, False), ("both", None, False), ("", None, False)]
)
def test_a_choice_is_right_or_wrong_and_needs_no_judge(text: str, chosen: int | None, right: bool) -> None:
    assert mark(CHOICE, Worded(text, abstained=False)).marks == Marks(choice_right=right, chosen=chosen)


def test_an_answer_that_is_kept_without_its_words_keeps_its_marks() -> None:
    worded = Worded(None, abstained=False, marks=Marks(judged=True, f1=0.5))

    assert mark(CASE, worded) == worded


async def test_each_text_is_judged_once_and_counted_once() -> None:
    judge = Judge()
    judged = await judge_one(asked(CASE, "In Oslo.", "Bergen", "In Oslo."), CASE, judge)

    assert verdicts(judged) == [True, False, True]
    assert [answer for _, answer, _ in judge.asked] == ["In Oslo.", "Bergen"]
    assert [each.marks.judge_tokens for each in judged.worded] == [120, 120, 0]


async def test_abstaining_is_judged_without_a_model() -> None:
    judge = Judge()
    right = await judge_one(asked(NEVER, Worded(None, abstained=True)), NEVER, judge)
    wrong = await judge_one(asked(CASE, Worded("", abstained=True)), CASE, judge)

    assert (verdicts(right), verdicts(wrong), judge.asked) == ([True], [False], [])


async def test_no_answer_at_all_is_wrong_without_a_model_and_one_without_its_words_waits() -> None:
    judge = Judge()
    judged = await judge_one(asked(CASE, "", " ", Worded(None, abstained=False)), CASE, judge)

    assert (verdicts(judged), judge.asked) == ([False, False, None], [])


async def test_an_answer_to_what_was_never_said_is_judged_for_abstaining() -> None:
    judge = Judge()
    await judge_one(asked(NEVER, "To Oslo."), NEVER, judge)

    assert judge.asked == [((NEVER_SAID,), "To Oslo.", Rubric.ABSTENTION)]


@pytest.mark.parametrize(
    ("category", "rubric"),
    [
        ("temporal-reasoning", Rubric.TEMPORAL),
        ("knowledge-update", Rubric.KNOWLEDGE_UPDATE),
        ("single-session-preference", Rubric.PREFERENCE),
        ("multi-session", Rubric.GENERAL),
        ("temporal", Rubric.GENERAL),
    ],
)
def test_longmemeval_has_a_rubric_for_each_kind(category: str, rubric: Rubric) -> None:
    assert rubric_of(replace(CASE, category=category)) is rubric
    assert rubric_of(replace(CASE, category=category, answerable=False)) is Rubric.ABSTENTION


def many(count: int) -> tuple[dict[str, Case], Sequence[Asked]]:
    cases = {f"c{n}": replace(CASE, case_id=f"c{n}") for n in range(count)}
    return cases, [asked(case, f"Oslo {name}") for name, case in cases.items()]


async def test_so_many_questions_are_under_way_and_each_is_kept_when_it_is_judged() -> None:
    cases, questions = many(20)
    judge, kept = Judge(), list[Asked]()
    count = await judge_all(questions, cases, judge, lambda each: keep_in(kept, each), concurrency=4)

    assert (count, judge.most) == (20, 4)
    assert sorted(each.case_id for each in kept) == sorted(cases)
    assert all(verdicts(each) == [True] for each in kept)


async def test_what_was_broken_off_goes_on_where_it_ended() -> None:
    cases, questions = many(6)
    kept: list[Asked] = []
    broken = Judge(errors={"Oslo c3": DaemonUnreachable()})
    with pytest.raises(DaemonUnreachable):
        await judge_all(questions, cases, broken, lambda each: keep_in(kept, each), concurrency=1)
    done = {each.case_id: each for each in kept}
    again = Judge()
    rest = await judge_all(
        [done.get(each.case_id, each) for each in questions], cases, again, lambda each: keep_in(kept, each)
    )

    assert sorted(done) == ["c0", "c1", "c2"]
    assert rest == 3
    assert sorted(answer for _, answer, _ in again.asked) == ["Oslo c3", "Oslo c4", "Oslo c5"]
    assert sorted(each.case_id for each in kept) == sorted(cases)


async def test_what_the_daemon_will_not_have_judged_is_wrong_and_holds_nothing_up() -> None:
    judge = Judge(errors={"endless": RequestInvalid()})
    judged = await judge_one(asked(CASE, "endless", "Oslo"), CASE, judge)

    assert verdicts(judged) == [False, True]


async def test_what_the_model_makes_no_verdict_of_has_none_and_holds_nothing_up() -> None:
    judge = Judge(errors={"strange": DaemonError("no verdict")})
    judged = await judge_one(asked(CASE, "strange", "Oslo", "strange"), CASE, judge)

    assert verdicts(judged) == [None, True, None]
    assert len(judge.asked) == 2


async def test_without_a_model_the_first_question_says_so() -> None:
    cases, questions = many(20)
    judge = Judge(errors={f"Oslo c{n}": Unavailable("set models.chat_url") for n in range(20)})
    with pytest.raises(Unavailable, match=r"models\.chat_url"):
        await judge_all(questions, cases, judge, lambda each: keep_in([], each), concurrency=2)

    assert len(judge.asked) == 2
