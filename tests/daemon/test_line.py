"""The line of users: who is planned next, who has the better claim to room, and who waits for something else."""

from __future__ import annotations

from copy import deepcopy
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from daemon.building.line import Line, Turn
from daemon.models.limiter import FIRST_IN_A_ROW, PRIORITY
from events.envelope import Reference
from events.memory import Task
from tests.builders import KEYS

ALICE, BOB, CAROL = (KEYS.user(name) for name in ("alice", "bob", "carol"))
EXTRACT, SUMMARISE, MERGE = PRIORITY[Task.EXTRACT], PRIORITY[Task.SUMMARISE], PRIORITY[Task.MERGE]


def test_who_found_no_room_comes_before_what_is_new_and_fresh_turns_before_summaries() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), SUMMARISE)
    line.want(BOB)
    line.crowd_out(Turn(CAROL), EXTRACT)
    order: list[Turn] = []
    while (turn := line.take_next(has_room=True)) is not None:
        order.append(turn)
        line.leave(turn)

    assert order == [Turn(CAROL, EXTRACT), Turn(ALICE, SUMMARISE), Turn(BOB)]


def test_without_room_only_what_is_new_is_planned() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), EXTRACT)
    line.want(BOB)

    assert [line.take_next(has_room=False) for _ in range(2)] == [Turn(BOB), None]


def test_room_goes_to_the_better_claim_and_among_equals_to_whom_it_is_the_turn_of() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), SUMMARISE)
    line.crowd_out(Turn(BOB), SUMMARISE)

    assert line.take_room(Turn(CAROL), EXTRACT), "summaries of others are in nobody's way"
    assert not line.take_room(Turn(CAROL), SUMMARISE), "others wait for as much, and longer"
    turn = line.take_next(has_room=True)
    assert turn == Turn(ALICE, SUMMARISE)
    assert line.take_room(turn, SUMMARISE)
    line.crowd_out(Turn(CAROL), EXTRACT)
    assert not line.take_room(turn, SUMMARISE), "fresh turns came meanwhile"


def test_of_a_few_places_one_is_for_summaries_however_many_fresh_turns_of_others_wait() -> None:
    line, begun = Line(), list[int]()
    line.crowd_out(Turn(ALICE), EXTRACT)
    line.crowd_out(Turn(BOB), SUMMARISE)
    for _ in range(2 * (FIRST_IN_A_ROW + 1)):
        turn = line.take_next(has_room=True)
        assert turn is not None
        assert turn.priority is not None
        while line.take_room(turn, turn.priority):
            begun.append(turn.priority)
        line.crowd_out(turn, turn.priority)
        line.leave(turn)
        if begun.count(SUMMARISE) == 2:
            break

    assert begun == 2 * [*FIRST_IN_A_ROW * [EXTRACT], SUMMARISE]


def test_while_the_place_is_for_a_summary_of_one_who_is_being_planned_no_fresh_turn_is_planned() -> None:
    line = Line(fresh_in_a_row=FIRST_IN_A_ROW)
    line.crowd_out(Turn(ALICE), EXTRACT)
    line.crowd_out(Turn(BOB), SUMMARISE)
    turn = line.take_next(has_room=True)
    meanwhile = line.take_next(has_room=True)
    assert turn is not None
    assert turn == Turn(BOB, SUMMARISE)
    assert line.take_room(turn, SUMMARISE)
    line.leave(turn)

    assert meanwhile is None
    assert line.take_next(has_room=True) == Turn(ALICE, EXTRACT)


def test_who_waits_already_keeps_the_place_and_is_in_nobodys_way_but_others() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), EXTRACT)
    line.crowd_out(Turn(BOB), EXTRACT)
    line.crowd_out(Turn(ALICE), EXTRACT)
    first, second = line.take_next(has_room=True), line.take_next(has_room=True)

    assert (first, second) == (Turn(ALICE, EXTRACT), Turn(BOB, EXTRACT))


def test_who_had_a_turn_and_found_no_more_room_goes_to_the_end() -> None:
    line = Line()
    for user in (ALICE, BOB):
        line.crowd_out(Turn(user), EXTRACT)
    order: list[Reference] = []
    for _ in range(4):
        turn = line.take_next(has_room=True)
        assert turn is not None
        line.crowd_out(turn, EXTRACT)
        line.leave(turn)
        order.append(turn.user)

    assert order == [ALICE, BOB, ALICE, BOB]


def test_a_claim_holds_while_the_user_who_has_it_is_planned_and_ends_with_the_plan() -> None:
    line = Line()
    line.crowd_out(Turn(BOB), EXTRACT)
    turn = line.take_next(has_room=True)
    assert turn is not None
    during = line.take_room(Turn(ALICE), SUMMARISE), line.take_room(turn, EXTRACT)
    line.leave(turn)

    assert during == (False, True)
    assert line.take_room(Turn(ALICE), SUMMARISE)
    assert line.take_next(has_room=True) is None


def test_who_has_nothing_left_to_start_is_not_planned_for_it_again() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), EXTRACT)
    line.crowd_out(Turn(ALICE), SUMMARISE)
    line.want(ALICE)
    line.give_up_claims(ALICE)

    assert [line.take_next(has_room=True), line.take_next(has_room=True)] == [Turn(ALICE), None]


def test_who_waits_comes_up_without_being_wanted_again() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), SUMMARISE)
    line.hold_back(BOB)

    assert [line.waits(user) for user in (ALICE, BOB, CAROL)] == [True, True, False]


def test_nobody_is_planned_twice_at_once() -> None:
    line = Line()
    line.want(ALICE)
    turn = line.take_next(has_room=True)
    assert turn is not None
    line.want(ALICE)
    meanwhile = line.take_next(has_room=True)
    line.leave(turn)

    assert meanwhile is None
    assert line.take_next(has_room=True) == Turn(ALICE)


def test_who_is_held_back_is_wanted_again_once_nothing_blocks_them() -> None:
    line = Line()
    line.hold_back(ALICE)
    line.hold_back(BOB)
    line.release(lambda user: user == ALICE)
    released = [line.take_next(has_room=True) for _ in range(2)]
    line.release_all()

    assert released == [Turn(BOB), None]
    assert line.take_next(has_room=True) == Turn(ALICE)


def test_while_the_room_is_for_one_who_is_being_planned_nobody_is_planned_to_be_turned_away() -> None:
    line = Line()
    line.crowd_out(Turn(ALICE), EXTRACT)
    line.crowd_out(Turn(BOB), SUMMARISE)
    line.crowd_out(Turn(CAROL), MERGE)
    turn = line.take_next(has_room=True, may_merge=True)
    assert turn == Turn(ALICE, EXTRACT)
    meanwhile = line.take_next(has_room=True, may_merge=True)
    line.leave(turn)

    assert meanwhile is None, "bob would be turned away, and taken again at once, and so on until the plan is over"
    assert line.take_next(has_room=True, may_merge=True) == Turn(BOB, SUMMARISE)
    assert line.take_next(has_room=True, may_merge=True) is None, "carol would be turned away for bob"


@given(st.randoms(use_true_random=False))
def test_who_gets_a_turn_for_want_of_room_may_take_it_however_the_line_came_about(random: Random) -> None:
    line, turns = Line(), list[Turn]()
    for _ in range(60):
        match random.choice(("want", "take", "take", "crowd", "begin", "leave")):
            case "want":
                line.want(random.choice((ALICE, BOB, CAROL)))
            case "take":
                turn = line.take_next(random.random() < 0.8, may_merge=random.random() < 0.8)
                if turn is not None:
                    turns.append(turn)
                    assert turn.priority is None or deepcopy(line).take_room(turn, turn.priority)
            case "crowd" if turns:
                line.crowd_out(random.choice(turns), random.choice((EXTRACT, SUMMARISE, MERGE)))
            case "begin" if turns:
                line.take_room(random.choice(turns), random.choice((EXTRACT, SUMMARISE, MERGE)))
            case "leave" if turns:
                line.leave(turns.pop(random.randrange(len(turns))))
            case _:
                pass
