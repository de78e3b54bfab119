"""Why a request for embeddings came to nothing, in a sentence with its mend; never what the server said, which may
quote what it was sent."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from daemon.models.circuit import ATTEMPTS_MAX, read_retry_after
from daemon.models.embedding_answers import AnswerRefused

# An answer that is wrong twice will be wrong again, and costs as much as a right one.
REFUSED_ANSWERS_MAX = 2
# How servers say that a text is longer than what they take (engineering.md, row 29).
_TOO_LONG = ("context", "token", "too long", "too large", "length", "maximum", "exceed")


# Of an answer that is an error so much is read: a server's reason is a sentence or two.
ERROR_BYTES_MAX = 64 << 10


class StatusRefused(Exception):
    """The endpoint answered with another status than success; `says` is the beginning of what it said, to read
    and not to show."""

    def __init__(self, status: int, says: str, retry_after: str | None) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.says = says
        self.retry_after = retry_after


async def refuse_status(response: Any) -> None:
    """A hook for responses of httpx, before their body is read. Raises `StatusRefused` for all but successes.

    The SDK reads an error to its end, however long it is and however well it was compressed.
    """
    if not response.is_success:
        says = bytearray()
        async for piece in response.aiter_bytes():
            says += piece
            if len(says) >= ERROR_BYTES_MAX:
                break
        text = says[:ERROR_BYTES_MAX].decode("utf-8", "replace")
        raise StatusRefused(response.status_code, text, response.headers.get("retry-after"))


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with one attempt.

    `attempts_max`: how often it is worth asking, this time included; `wait_s`: the server said when to ask again.
    `is_about_texts`: other texts may be taken. `is_slow`: fewer texts may be answered in time.
    """

    reason: str
    attempts_max: int = 1
    wait_s: float | None = None
    is_about_texts: bool = False
    is_slow: bool = False


TOO_SLOW = Failure("the endpoint did not answer in time", ATTEMPTS_MAX, is_slow=True)


def classify(error: Exception, now_epoch_s: float) -> Failure:
    """What to say of an error and what to do about it; by what it holds, for a dozen libraries raise it."""
    if isinstance(error, AnswerRefused):
        return Failure(f"the endpoint's answer was refused: {error}", REFUSED_ANSWERS_MAX)
    chain = list(_causes(error))
    for each in chain:
        if isinstance(each, StatusRefused):
            return _classify_status(each, now_epoch_s)
    if any(isinstance(each, ssl.SSLError) for each in chain):
        return Failure("the endpoint's TLS certificate is not trusted, or it speaks no TLS: see models.embed_url")
    if any(isinstance(each, socket.gaierror) or "DNS" in type(each).__name__ for each in chain):
        return Failure("the host of models.embed_url is not found", ATTEMPTS_MAX)
    if any(isinstance(each, ConnectionRefusedError) for each in chain):
        return Failure("nothing listens at models.embed_url", ATTEMPTS_MAX)
    if any(isinstance(each, TimeoutError) for each in chain):
        return TOO_SLOW
    return Failure(f"the connection to the endpoint broke ({type(chain[-1]).__name__})", ATTEMPTS_MAX)


def _classify_status(refused: StatusRefused, now_epoch_s: float) -> Failure:
    status, says = refused.status, refused.says.lower()
    match status:
        case 401:
            return Failure("the endpoint refuses the key (401): set models.api_key or OPENAI_API_KEY")
        case 403:
            return Failure("the key has no right to this model (403): see models.embed_model")
        case 404:
            return Failure(
                "the endpoint has no such model or address (404): see models.embed_model, models.embed_url"
            )
        case 429 if "insufficient_quota" in says:
            return Failure("the quota of this key is used up (429)")
        case 400 | 413 | 422:
            hint = ", perhaps of models.embed_dimensions" if "dimension" in says else ""
            about_texts = status == 413 or (not hint and any(word in says for word in _TOO_LONG))
            return Failure(f"the endpoint refuses the request ({status}){hint}", is_about_texts=about_texts)
        case _:
            may_pass = status in (408, 409, 425, 429) or status >= 500
            wait_s = read_retry_after(refused.retry_after, now_epoch_s) if may_pass else None
            return Failure(f"the endpoint answers with status {status}", ATTEMPTS_MAX if may_pass else 1, wait_s)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it came from, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__
