"""What an answer gave out and a chat service publishes again does not reach the model a second time."""

from __future__ import annotations

from projections.ports import ChunkText
from tests.daemon.parts_in_use import Parts, running

SAID = ("I am allergic to peanuts.", "I live in Oslo with two cats.")


def texts_read(parts: Parts) -> list[list[str]]:
    """The turns of the chunks that the model was asked about, in order."""
    questions = [call.question for call in parts.model.calls]
    return [[turn.text for turn in one.turns] for one in questions if isinstance(one, ChunkText)]


async def give_out(parts: Parts) -> str:
    """The context of an answer about what was said first."""
    await parts.say(*SAID)
    await parts.close()
    await parts.until_done()
    return (await parts.ask("peanuts")).context


async def test_a_context_in_turns_of_machines_is_not_read_and_one_that_a_person_repeats_is(parts: Parts) -> None:
    async with running(parts):
        context = await give_out(parts)
        await parts.say(f"Answer by this:\n{context}", session_id="s2", role="system")
        await parts.say("Do not eat the cake of the canteen.", session_id="s2", role="assistant")
        await parts.say(f"<memories>{context}</memories> What may I eat?", context, session_id="s2")
        await parts.close("s2")
        await parts.until_done()

    assert "I am allergic to peanuts." in context
    assert sorted(texts_read(parts)) == sorted(
        [
            [*SAID],
            ["Answer by this:", "Do not eat the cake of the canteen."],
            ["What may I eat?", context],
        ]
    )


async def test_a_chunk_of_nothing_but_a_context_costs_no_call(parts: Parts) -> None:
    async with running(parts):
        context = await give_out(parts)
        await parts.say(context, context, session_id="s2", role="tool")
        await parts.close("s2")
        await parts.until_done()

    assert texts_read(parts) == [[*SAID]]


async def test_another_user_was_given_nothing(parts: Parts) -> None:
    async with running(parts):
        context = await give_out(parts)
        await parts.say(context, "I like tea a lot.", session_id="s2", user_id="bob", role="tool")
        await parts.close("s2", "bob")
        await parts.memory("bob")
        await parts.until_done()

    assert texts_read(parts)[-1] == [context, "I like tea a lot."]
