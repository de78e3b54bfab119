"""One question until it has an answer of use, within three calls: as it is, with more room, mended once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from daemon.chat.answers import ChatAnswer, Ending
from daemon.chat.calls import PromptTooLong
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.json_text import JsonCut, JsonUnusable
from daemon.chat.prompts import Prompt, mending_prompt
from events.memory import ParkReason

T = TypeVar("T")
# What an answer that was cut gets in place of its room: thoughts may be long.
ROOM_FACTOR: Final = 4


class NotAnswered(Exception):
    """There is no answer of use to this question; to a smaller one there may be."""

    def __init__(self, reason: ParkReason) -> None:
        super().__init__(reason)
        self.reason = reason


class AskPrompt(Protocol):
    """Asks a prompt with so much room. Raises `PromptTooLong` and the errors of the port."""

    def __call__(self, prompt: Prompt, room: int, *, is_repair: bool) -> Awaitable[ChatAnswer]:
        """The answer, whatever it is."""
        ...


async def ask_until_usable(prompt: Prompt, ask: AskPrompt, read: Callable[[str], Awaitable[T]]) -> T:
    """What `read` makes of the answer. Raises `NotAnswered` and the errors of the port.

    An answer that is cut gets more room, once; one that `read` refuses goes back with what is wrong with it, once.
    """
    reason = ParkReason.TOO_LONG
    room, is_repair = prompt.room, False
    while True:
        try:
            answer = await ask(prompt, room, is_repair=is_repair)
        except PromptTooLong:
            # Also when the prompt is too long only with what it was lengthened by.
            raise NotAnswered(reason) from None
        try:
            if answer.ending is Ending.CUT:
                raise JsonCut("it is cut off")
            return await read(answer.text)
        except JsonCut:
            reason = ParkReason.ANSWER_CUT
            if room > prompt.room:
                raise NotAnswered(reason) from None
            room *= ROOM_FACTOR
        except (AnswerInvalid, JsonUnusable) as invalid:
            reason = ParkReason.ANSWER_INVALID
            if is_repair:
                raise NotAnswered(reason) from None
            prompt, is_repair = mending_prompt(prompt, answer.text, str(invalid)), True
