"""What filters leave out is shown in no mode, though a group or a fact of which a part passes is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pytest

from daemon.asking.answer_types import Answer
from daemon.scene_names import look_at_scene
from events.decisions import FactsRouted, Route
from events.envelope import NewEvent
from events.log import EventLog
from events.memory import FactsExtracted, Pointer
from events.reading import read_user
from projections.eventtree.parameters import EventTreeParameters
from projections.facts.scenes import scene_scope
from projections.ports import MemberText, TextWritten
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, an_id
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.daemon.scripted_asking import ScriptedAsker
from tests.daemon.test_deep import filled
from tests.daemon.test_opened_groups import THINGS, Offline, say, tell_homes, tell_things
from tests.scripted_models import ScriptedModel

MODES: Final = ("agpr", "flat", "forest", "roots", "deep")
SECOND: Final = "2024-07-02"
# Words of the other two sessions, and their names.
LEFT_OUT: Final = ("sank", "Zanzibar", "2024-07-01", "2024-07-03")
# Not the day of the clock, which is one of theirs.
DAY: Final = {"reference_date": "2024-12-01"}
TREES: Final = EventTreeParameters(ratio=0.7, member_caps=((100, 3),))


class Fusing(Offline):
    """Writes a text of its own about the members of a group."""

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        await super().merge(members)
        return TextWritten(" Also: ".join(member.text for member in members), self.usage)


Build = Callable[[ScriptedModel], Parts]


@pytest.fixture
def asker() -> ScriptedAsker:
    return ScriptedAsker()


@pytest.fixture
def build(log: EventLog, clock: ManualClock, asker: ScriptedAsker) -> Build:
    return lambda model: build_parts(log, clock, model=model, eventtree=TREES, asks=asker)


def words_of(answer: Answer) -> str:
    """All of an answer that is words."""
    return json.dumps(msgspec.to_builtins(answer), ensure_ascii=False)


def prompts_of(asker: ScriptedAsker) -> list[str]:
    """All that a model was asked."""
    return [json.dumps(body, ensure_ascii=False) for _, body in asker.asked]


async def ask_all(parts: Parts, question: str, **more: Any) -> list[Answer]:
    """The answer in each mode, closed and opened, whole and within a budget."""
    return [
        await parts.ask(question, mode=mode, open_groups=opens, explain=True, max_tokens=tokens, **DAY, **more)
        for mode in MODES
        for opens in (False, True)
        for tokens in (None, 60)
    ]


@pytest.mark.parametrize("model", [Offline, Fusing])
@pytest.mark.parametrize(
    "filters",
    [
        {"sessions": SECOND},
        {"sessions": SECOND, "roles": "user"},
        {"sessions": SECOND, "kinds": ["fact", "group"]},
        {"entities": "Nate"},
    ],
)
async def test_of_a_group_the_members_alone_are_shown_that_pass(
    build: Build, asker: ScriptedAsker, model: type[Offline], filters: dict[str, Any]
) -> None:
    parts = build(model())
    await tell_things(parts)
    answers = await ask_all(parts, "What is it with the red boat of Kim?", filters=filters)
    shown = [memory for answer in answers for memory in answer.memories if memory.kind == "group"]

    assert (await parts.memory()).units.groups
    assert [memory.sessions for memory in shown] == [[SECOND]] * len(shown)
    assert [memory.text.endswith(THINGS[1]) for memory in shown] == [True] * len(shown)
    assert all(len(memory.members or ()) == 1 for memory in shown)
    assert all(answer.memories for answer in answers if answer.mode != "roots")
    assert shown or "kinds" not in filters
    for told in [*map(words_of, answers), *prompts_of(asker)]:
        assert not [word for word in LEFT_OUT if word in told]


@pytest.mark.parametrize(
    "narrow", [{"valid_at": "2022-06-01"}, {"filters": {"sessions": "2022-03-01", "kinds": ["fact", "group"]}}]
)
async def test_a_tree_of_one_leaf_is_shown_in_mode_roots_though_its_group_has_members_that_do_not_pass(
    build: Build, narrow: dict[str, Any]
) -> None:
    parts = build(Offline())
    await tell_homes(parts)
    answer = await parts.ask("Where did Bob live?", mode="roots", **narrow, **DAY)

    assert [memory.text for memory in answer.memories] == ["Bob lives in Boston."]


async def test_a_group_none_of_whose_members_passes_by_itself_is_left_out(build: Build) -> None:
    parts = build(Offline())
    await tell_things(parts)
    answers = await ask_all(parts, "the red boat", filters={"sessions": SECOND, "entities": "Davis"})
    counted = [answer.explanation.filters[-1].nodes for answer in answers if answer.explanation]

    assert [answer.memories for answer in answers] == [[]] * len(answers)
    assert counted == [0] * len(answers)


async def test_a_time_and_a_session_are_met_by_the_same_member(build: Build) -> None:
    parts = build(Offline())
    await tell_homes(parts)
    boston = {"filters": {"sessions": "2022-03-01"}, "between": ("2022-06-01", "2024-01-15")}
    davis = {"filters": {"sessions": "2023-05-20"}, "valid_at": "2022-06-01"}
    later = {"filters": {"said_after": "2023-01-01"}, "valid_at": "2024-01-15"}
    then = (await parts.memory()).user_seq
    for past in ({}, {"as_of": then}):
        of_boston = await ask_all(parts, "Where does Bob live?", **boston, **past)
        of_davis = await ask_all(parts, "Where does Bob live?", **davis, **past)
        of_later = await ask_all(parts, "Where did Bob live before Miami?", **later, **past)

        assert any(answer.memories for answer in of_boston)
        assert any(answer.memories for answer in of_later)
        assert not any("Davis" in words_of(answer) for answer in of_boston)
        assert not any(memory.kind == "group" for answer in of_davis for memory in answer.memories)
        assert not any("Boston" in words_of(answer) for answer in [*of_davis, *of_later])


async def test_what_was_said_too_early_is_no_member(build: Build) -> None:
    parts = build(Fusing())
    await tell_things(parts)
    answers = await ask_all(parts, "the red boat of Kim", filters={"said_after": "2024-07-03"})

    assert any(answer.memories for answer in answers)
    assert not any(word in words_of(answer) for answer in answers for word in ("sank", "fisherman"))


@pytest.mark.parametrize("model", [Offline, Fusing])
@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"said_before": SECOND}, [0]),
        ({"said_after": SECOND, "said_before": "2024-07-03"}, [1]),
        ({"not_sessions": SECOND}, [0, 2]),
        ({"not_sessions": SECOND, "said_before": SECOND}, [0]),
    ],
)
async def test_a_group_passes_by_a_member_though_another_was_said_too_late_or_in_a_session_that_must_not_be(
    build: Build, asker: ScriptedAsker, model: type[Offline], filters: dict[str, Any], kept: list[int]
) -> None:
    parts = build(model())
    await tell_things(parts)
    answers = await ask_all(parts, "the red boat of Kim", filters=filters)
    answer = await parts.ask("the red boat of Kim", filters={**filters, "kinds": "group"})
    (group,) = answer.memories
    members = sorted(group.members or (), key=lambda each: each.said_at)
    told = [*map(words_of, [*answers, answer]), *prompts_of(asker)]

    assert [each.text.removeprefix("Bob: ") for each in members] == [THINGS[n] for n in kept]
    assert group.sessions == [f"2024-07-0{n + 1}" for n in kept]
    assert prompts_of(asker)
    assert not [each for each in told for n, thing in enumerate(THINGS) if thing in each and n not in kept]


async def test_a_group_all_of_whose_members_pass_keeps_its_text(build: Build) -> None:
    parts = build(Fusing())
    await tell_things(parts)
    only_groups = {"kinds": "group"}
    (whole,) = (await parts.ask("red boat", filters=only_groups)).memories
    (same,) = (await parts.ask("red boat", filters={**only_groups, "roles": "user"})).memories

    assert same == whole
    assert same.members is None


async def test_a_member_passes_by_where_it_was_said_again_later(build: Build) -> None:
    parts = build(Offline())
    await tell_things(parts)
    async with running(parts):
        await say(parts, SECOND, THINGS[1], session="again")
    memory = await parts.memory()
    answer = await parts.ask("red boat", filters={"sessions": "again", "kinds": "group"})
    (group,) = answer.memories

    assert len(memory.units.groups) == 1
    assert [each.text.endswith(THINGS[1]) for each in group.members or ()] == [True]
    assert group.sessions == ["again"]


async def test_a_fact_is_shown_in_a_wording_that_passes(build: Build, asker: ScriptedAsker) -> None:
    parts = build(Offline())
    async with running(parts):
        await say(parts, "2024-07-01", "Zoe likes Rex.", session="first")
        await say(parts, "2024-07-01", "ZOE likes Rex.", session="second")
    facts = (await parts.memory()).canon.facts
    answers = await ask_all(parts, "Whom does Zoe like?", filters={"sessions": "second"})
    shown = [memory for answer in answers for memory in answer.memories]

    assert [len(fact.occurrences) for fact in facts.values()] == [2]
    assert {memory.kind for memory in shown} >= {"chunk", "fact"}
    assert [memory.sessions for memory in shown] == [["second"]] * len(shown)
    for told in [*map(words_of, answers), *prompts_of(asker)]:
        assert "Zoe likes Rex" not in told
        assert '"first"' not in told


async def test_a_scene_is_not_called_by_what_filters_leave_out_where_a_model_is_asked(
    log: EventLog, clock: ManualClock, asker: ScriptedAsker
) -> None:
    parts = await filled(log, clock, asker)
    texts = await parts.log.read(lambda db: read_user(db, ALICE, limit=10_000))
    memory = await parts.memory()
    told = {
        fact.text: holder.id
        for event in texts
        if isinstance(event.event, FactsExtracted)
        for n, fact in enumerate(event.event.facts)
        if (holder := memory.canon.holder(Pointer(event.seq, n))) is not None
    }
    named = ("harbour number 1", "lived in Kyoto", "markets of Kyoto")
    scene = [fact for text, fact in told.items() if any(each in text for each in named)]
    sessions = tuple(KEYS.session("alice", f"s{number}") for number in range(1, 5))
    routed = FactsRouted(1, tuple(Route(fact, (an_id("scene"),)) for fact in scene))
    new = NewEvent(
        user_id="alice",
        session_id=None,
        event=routed,
        key="routed",
        happened_at=MONDAY,
        lineage=sessions,
        basis=memory.user_seq,
    )
    await parts.log.append(a_batch(new))
    async with running(parts):
        await parts.until_done()
    name = look_at_scene(await parts.memory(), scene_scope(an_id("scene")))
    everything = await parts.ask("Where did Ann paint a harbour?", mode="deep", k=5)
    with_name = prompts_of(asker)
    asker.asked.clear()
    answer = await parts.ask("Where did Ann paint a harbour?", mode="deep", k=5, filters={"sessions": "s2"})

    assert "kyoto" in name.labels
    assert everything.memories
    assert any("kyoto" in prompt for prompt in with_name)
    assert answer.memories
    assert asker.asked
    assert not any("kyoto" in prompt.lower() for prompt in prompts_of(asker))
