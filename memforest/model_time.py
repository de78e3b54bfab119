"""How much longer than any other answer one may take that language models have a part in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from memforest.wire import JsonObject

# The most that a question may let a model take, by default (`query.timeout_limit_s`):
# how much it lets it take that does not say so itself is not known here.
QUESTION_S: Final = 120.0
# In which the daemon judges an answer, or says that it cannot.
JUDGING_S: Final = 300.0
_MAY_ASK: Final = ("deep", "auto")


def model_time_s(method: str, params: JsonObject) -> float:
    """Seconds for which the daemon may wait for models.

    Of a query its `timeout_s`, to find memories (modes "deep" and "auto"), and once more to answer in words.
    """
    if method == "answers.judge":
        return JUDGING_S
    if method != "query":
        return 0.0
    waits = (params.get("mode") in _MAY_ASK) + bool(params.get("answer"))
    given = params.get("timeout_s")
    if isinstance(given, int | float) and 0 < given < float("inf"):
        return waits * float(given)
    return waits * QUESTION_S  # what is no such number is refused at once
