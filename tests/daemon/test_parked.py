"""`parked.*`: what was given up is listed with what it was about, and is done once it is tried again."""

from __future__ import annotations

import pytest

from daemon.asking.answer_types import Source
from daemon.asking.spent import SpentShown
from daemon.erasure.receipts import UserUnknown
from daemon.parked import (
    NAMED_MAX,
    Parked,
    ParkedListParams,
    ParkedNoMore,
    ParkedParams,
    ParkedShown,
    ParkedUnknown,
    ResumeParams,
)
from daemon.untrusted import LIMIT_MAX
from events.envelope import NewEvent
from events.errors import InvalidInput, MemForestError
from events.gate import Verdict
from events.log import EventLog
from events.memory import ParkReason, Task, Usage, WorkParked
from events.session import ReplayStarted
from projections.ports import AnswerUnusable
from tests.builders import (
    MONDAY,
    ManualClock,
    a_batch,
    a_forgetting,
    a_parking,
    a_retraction,
    a_revision,
    a_turn,
    an_extraction,
    an_id,
    lineage_of,
)
from tests.daemon.parts_in_use import ALICE, Parts, event_types, running
from tests.waiting import wait_until

AT = "2024-07-01T09:00:00Z"
NOTHING = SpentShown(0, 0, 0, 0, 0.0)
USAGE = Usage(calls=2, prompt_tokens=300, cached_tokens=100, completion_tokens=40, cost_nano=1_500_000_000)


@pytest.fixture
def parked(log: EventLog, clock: ManualClock) -> Parked:
    return Parked(log, clock)


async def ids(parked: Parked, user_id: str | None = None) -> list[tuple[str | None, int]]:
    page = await parked.list(ParkedListParams(user_id=user_id))
    return [(each.user_id, each.id) for each in page.parked]


def lost(task: Task, turns: tuple[int, ...], sessions: tuple[str, ...] = ("s1",)) -> NewEvent:
    """A summary or a merge that was given up."""
    event = WorkParked(task, an_id(f"{task}"), ParkReason.TOO_LONG, turns, usage=USAGE)
    session_id = None
    return NewEvent("alice", session_id, event, f"lost/{task}", MONDAY, lineage_of(sessions), basis=0)


async def fill(log: EventLog) -> None:
    """Alice has work parked about two chunks (user_seq 5 and 6), Bob about one (3)."""
    turns = [a_turn(f"Turn {n}.", turn_id=f"t{n}") for n in range(1, 5)]
    await log.append(a_batch(*turns, a_parking((1, 2)), a_parking((3, 4))))
    await log.append(a_batch(*(a_turn(user_id="bob", turn_id=f"b{n}") for n in (1, 2))))
    await log.append(a_batch(a_parking((7, 8), user_id="bob")))


async def test_parked_work_is_listed_newest_first_with_reason_and_turns(parked: Parked, log: EventLog) -> None:
    await fill(log)
    page = await parked.list(ParkedListParams())

    assert page.next is None
    assert page.parked == [
        ParkedShown(
            "bob", 3, "extract", "model_failed", AT, "s1", [Source("s1", "b1"), Source("s1", "b2")], NOTHING
        ),
        ParkedShown(
            "alice", 6, "extract", "model_failed", AT, "s1", [Source("s1", "t3"), Source("s1", "t4")], NOTHING
        ),
        ParkedShown(
            "alice", 5, "extract", "model_failed", AT, "s1", [Source("s1", "t1"), Source("s1", "t2")], NOTHING
        ),
    ]
    assert await ids(parked, "alice") == [("alice", 6), ("alice", 5)]


async def test_pages_go_on_where_the_last_one_ended(parked: Parked, log: EventLog) -> None:
    await fill(log)
    first = await parked.list(ParkedListParams(limit=2))
    assert first.next is not None
    rest = await parked.list(ParkedListParams(limit=2, after=first.next))

    assert [each.id for each in first.parked] == [3, 6]
    assert ([each.id for each in rest.parked], rest.next) == ([5], None)


@pytest.mark.parametrize("limit", [-1, 0, LIMIT_MAX + 1])
async def test_a_page_of_none_or_too_much_is_refused(parked: Parked, limit: int) -> None:
    with pytest.raises(InvalidInput):
        await parked.list(ParkedListParams(limit=limit))


@pytest.mark.parametrize("after", [-1, 0, 2**63 - 1, 2**63])
async def test_a_place_that_nothing_stands_behind_begins_with_the_newest(
    parked: Parked, log: EventLog, after: int
) -> None:
    await fill(log)

    assert len((await parked.list(ParkedListParams(after=after))).parked) == 3


async def test_a_summary_says_what_it_took_and_of_which_session_it_is_when_that_is_one(
    parked: Parked, log: EventLog
) -> None:
    await log.append(a_batch(*(a_turn(turn_id=f"t{n}") for n in (1, 2)), a_turn(session_id="s2", turn_id="t3")))
    await log.append(a_batch(lost(Task.SUMMARISE, (1, 2)), lost(Task.MERGE, (1, 3), ("s1", "s2"))))
    merge, summary = (await parked.list(ParkedListParams())).parked

    assert summary.spent == merge.spent == SpentShown(2, 300, 100, 40, 1.5)
    assert (summary.task, summary.session_id, summary.reason) == ("summarise", "s1", "too_long")
    assert (merge.task, merge.session_id) == ("merge", None)
    assert merge.turns == [Source("s1", "t1"), Source("s2", "t3")]


async def test_what_an_older_release_parked_names_its_session_and_no_turns(parked: Parked, log: EventLog) -> None:
    await log.append(a_batch(a_turn(), lost(Task.SUMMARISE, ())))
    content = await parked.get(ParkedParams(user_id="alice", id=2))

    assert (content.parked.session_id, content.parked.turns) == ("s1", [])
    assert (content.asked, content.left_off) == ([], 0)


async def test_a_piece_is_shown_with_what_the_model_would_be_asked_about(parked: Parked, log: EventLog) -> None:
    await fill(log)
    await log.append(a_batch(an_extraction((3, 4), ("Of two turns.", "Another.")), lost(Task.SUMMARISE, (1, 10))))
    chunk = await parked.get(ParkedParams(user_id="alice", id=5))
    summary = await parked.get(ParkedParams(user_id="alice", id=8))

    assert [(each.user_seq, each.source.turn_id, each.text) for each in chunk.asked] == [
        (1, "t1", "Alice: Turn 1."),
        (2, "t2", "Alice: Turn 2."),
    ]
    assert chunk.parked == (await parked.list(ParkedListParams(user_id="alice"))).parked[1]
    assert [(each.type, each.text) for each in summary.asked] == [
        ("turn.recorded", "Alice: Turn 1."),
        ("facts.extracted", "Of two turns.\nAnother."),
    ]
    assert summary.parked.turns == [Source("s1", "t1")], "a turn, and not what was made of turns"
    assert summary.left_off == 0


async def test_a_list_names_some_of_very_many_turns(parked: Parked, log: EventLog) -> None:
    count = NAMED_MAX + 3
    await log.append(
        a_batch(*(a_turn(turn_id=f"t{n}") for n in range(count)), a_parking(tuple(range(1, count + 1))))
    )
    (shown,) = (await parked.list(ParkedListParams())).parked
    whole = await parked.get(ParkedParams(user_id="alice", id=count + 1))

    assert len(shown.turns) == NAMED_MAX
    assert len(whole.asked) == count


@pytest.mark.parametrize("undoing", [a_revision("I stayed."), a_retraction(), a_forgetting()])
async def test_what_was_about_turns_that_are_gone_is_not_listed(
    parked: Parked, log: EventLog, undoing: NewEvent
) -> None:
    await fill(log)
    await log.append_event(undoing)
    left = [("bob", 3)] if undoing == a_forgetting() else [("bob", 3), ("alice", 6)]

    assert await ids(parked) == left
    for method in (
        parked.get(ParkedParams(user_id="alice", id=5)),
        parked.retry(ResumeParams(user_id="alice", id=5)),
    ):
        with pytest.raises(ParkedNoMore) as raised:
            await method
        assert raised.value.code == "conflict"


async def test_one_piece_all_of_a_user_or_all_there_is_are_resumed(parked: Parked, log: EventLog) -> None:
    await fill(log)
    assert (await parked.retry(ResumeParams(user_id="alice", id=5))).resumed == 1
    assert await ids(parked) == [("bob", 3), ("alice", 6)]
    assert (await parked.retry(ResumeParams(user_id="alice"))).resumed == 1
    assert await ids(parked) == [("bob", 3)]
    assert (await parked.retry(ResumeParams())).resumed == 1

    assert await ids(parked) == []
    assert (await parked.retry(ResumeParams())).resumed == 0
    assert (await event_types(log)).count("work.resumed") == 3


async def test_hundreds_of_pieces_are_resumed(parked: Parked, log: EventLog) -> None:
    turns = [a_turn(turn_id=f"t{n}") for n in range(250)]
    await log.append(a_batch(*turns))
    await log.append(a_batch(*(a_parking((n,)) for n in range(1, 251))))

    assert (await parked.retry(ResumeParams())).resumed == 250
    assert await ids(parked) == []


async def test_what_is_resumed_twice_is_in_conflict(parked: Parked, log: EventLog) -> None:
    await fill(log)
    await parked.retry(ResumeParams(user_id="alice", id=5))

    with pytest.raises(ParkedNoMore):
        await parked.retry(ResumeParams(user_id="alice", id=5))


@pytest.mark.parametrize("work", [-1, 0, 1, 4, 99, 2**63, 2**70])
async def test_what_was_never_parked_is_unknown(parked: Parked, log: EventLog, work: int) -> None:
    await fill(log)
    head = log.head
    for method in (
        parked.get(ParkedParams(user_id="alice", id=work)),
        parked.retry(ResumeParams(user_id="alice", id=work)),
    ):
        with pytest.raises(ParkedUnknown) as raised:
            await method
        assert raised.value.code == "not_found"

    assert log.head == head


async def test_an_id_is_one_of_a_user(parked: Parked, log: EventLog) -> None:
    await fill(log)
    with pytest.raises(InvalidInput, match="user_id"):
        await parked.retry(ResumeParams(id=5))

    assert len(await ids(parked)) == 3


async def test_a_user_that_nobody_knows_is_told_apart_from_one_without_parked_work(
    parked: Parked, log: EventLog
) -> None:
    await log.append(a_batch(a_turn(user_id="carol")))
    assert await ids(parked, "carol") == []
    assert (await parked.retry(ResumeParams(user_id="carol"))).resumed == 0
    for call in (
        parked.list(ParkedListParams(user_id="dave")),
        parked.get(ParkedParams(user_id="dave", id=1)),
        parked.retry(ResumeParams(user_id="dave")),
        parked.retry(ResumeParams(user_id="dave", id=1)),
    ):
        with pytest.raises(UserUnknown):
            await call


async def test_no_word_stands_in_an_error(parked: Parked, log: EventLog) -> None:
    await log.append(a_batch(a_turn("Xylophon.", user_id="Xylophon")))
    with pytest.raises(MemForestError) as raised:
        await parked.get(ParkedParams(user_id="Xylophon", id=7))

    assert "Xylophon" not in str(raised.value)


async def test_an_extraction_that_was_given_up_is_made_once_it_is_resumed(parts: Parts, parked: Parked) -> None:
    parts.model.queue.append(AnswerUnusable(ParkReason.ANSWER_CUT, USAGE))
    async with running(parts):
        await parts.say("Rex runs.", "Nate swims.")
        await parts.memory()
        await parts.until_done()
        (shown,) = (await parked.list(ParkedListParams())).parked
        before = len((await parts.memory()).canon.facts)
        await parked.retry(ResumeParams(user_id="alice", id=shown.id))
        await parts.until_done()
        memory = await parts.memory()

    assert (shown.reason, shown.spent.calls, before) == ("answer_cut", 2, 0)
    assert len(memory.canon.facts) == 2
    assert await ids(parked) == []


async def test_what_is_given_up_again_is_parked_again(parts: Parts, parked: Parked) -> None:
    parts.model.queue.extend([AnswerUnusable(ParkReason.REFUSED), AnswerUnusable(ParkReason.TOO_LONG)])
    async with running(parts):
        await parts.say("Rex runs.", "Nate swims.")
        await parts.memory()
        await parts.until_done()
        first = (await parked.list(ParkedListParams())).parked
        await parked.retry(ResumeParams())
        await parts.until_done()
        second = (await parked.list(ParkedListParams())).parked

    assert [each.reason for each in first] == ["refused"]
    assert [each.reason for each in second] == ["too_long"]
    assert second[0].id > first[0].id


async def test_a_summary_that_was_given_up_is_written_once_it_is_resumed(parts: Parts, parked: Parked) -> None:
    async with running(parts):
        await parts.say("Rex runs.", "Nate swims.", "Zoe reads.", "Zoe sings.")
        memory = await parts.memory()
        await wait_until(lambda: len(memory.canon.facts) == 4 and not parts.worker.in_flight)
        parts.model.queue.append(AnswerUnusable(ParkReason.REFUSED))
        await parts.close()
        await parts.until_done()
        (shown,) = (await parked.list(ParkedListParams())).parked
        content = await parked.get(ParkedParams(user_id="alice", id=shown.id))
        await parked.retry(ResumeParams())
        await parts.until_done()
        memory = await parts.memory()
        left = [node for tree in memory.forest.trees.values() for node in tree.nodes()]

    assert (shown.task, shown.session_id) == ("summarise", "s1")
    assert content.asked
    assert {memory.forest.state_of(node) for node in left} == {"summarised"}
    assert await ids(parked) == []


async def test_a_resumption_is_recorded_under_the_sessions_of_what_was_parked(
    parked: Parked, log: EventLog
) -> None:
    await fill(log)
    await parked.retry(ResumeParams())
    late = (await log.append_event(a_forgetting())).verdict

    assert late is Verdict.RECORDED
    assert (await event_types(log)).count("work.resumed") == 3


async def replay_one_of_two_in_vain(parts: Parts) -> None:
    """Two chunks are read; then they are read again, one of them in vain and the other one not yet."""
    await parts.say("Rex runs.", "Nate swims.", "Zoe reads.", "Zoe sings.")
    memory = await parts.memory()
    await wait_until(lambda: len(memory.canon.facts) == 4 and not parts.worker.in_flight)
    parts.model.held, parts.model.prompts = True, 2
    event = ReplayStarted()
    await parts.log.append_event(NewEvent("alice", "s1", event, "replay", MONDAY, lineage_of(["s1"])))
    await parts.until_asked(2)
    parts.model.waiting()[0].fail(AnswerUnusable(ParkReason.REFUSED))
    await wait_until(lambda: bool(parts.reported.fields("worker.work_parked")))


async def test_what_a_replay_could_not_read_is_read_once_it_is_resumed(parts: Parts, parked: Parked) -> None:
    async with running(parts):
        await replay_one_of_two_in_vain(parts)
        (shown,) = (await parked.list(ParkedListParams())).parked
        await parked.retry(ResumeParams())
        await parts.until_asked(2)
        parts.model.release()
        await wait_until(lambda: not parts.memories.loaded()[ALICE].replays.running)
        types = await event_types(parts.log)

    assert (shown.task, len(shown.turns)) == ("extract", 2)
    assert types.count("facts.extracted") == 4
    assert types.count("session.replayed") == 1


async def test_what_a_replay_could_not_read_is_over_with_the_replay(parts: Parts, parked: Parked) -> None:
    async with running(parts):
        await replay_one_of_two_in_vain(parts)
        (shown,) = (await parked.list(ParkedListParams())).parked
        parts.model.release()
        await wait_until(lambda: not parts.memories.loaded()[ALICE].replays.running)
        with pytest.raises(ParkedNoMore):
            await parked.retry(ResumeParams(user_id="alice", id=shown.id))
        memory = await parts.memory()

    assert await ids(parked) == []
    assert memory.waiting_chunks == {}, "its old facts stand"
