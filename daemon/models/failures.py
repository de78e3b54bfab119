"""Why a request to a model's endpoint came to nothing, in a sentence with its mend; never what the server said,
which may quote what it was sent."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from daemon.models.refusals import Refusal, read_error_status, read_refusal
from daemon.models.retrying import ATTEMPTS_MAX, read_retry_after

# An answer that is wrong twice will be wrong again, and costs as much as a right one.
REFUSED_ANSWERS_MAX = 2
# An error under the status of a success is no longer than this.
ERRORS_BYTES_MAX = 4 << 10
# How servers say that nothing is paid for: it will not pass within any call's patience.
_QUOTA = ("insufficient_quota", "exceeded your current quota", "billing", "insufficient balance")

# How Gemini says 401.
_NO_KEY = ("api key not valid", "api_key_invalid")
# How OpenRouter says 403 of a text.
_FLAGGED = ("flagged", "moderation")


class AnswerRefused(Exception):
    """The endpoint's answer is not what was asked for. The text says why, and nothing of what was answered.

    `tokens`: what it says that it took all the same, of the prompt, of these from a cache, and of the answer.
    """

    tokens: tuple[int, int, int] = (0, 0, 0)


class StatusRefused(Exception):
    """The endpoint answered with another status than success; `says` is the beginning of what it said, to read
    and not to show."""

    def __init__(self, status: int, says: str, retry_after: str | None) -> None:
        super().__init__(f"status {status}")
        self.status, self.says, self.retry_after = status, says, retry_after


class EndpointUnavailable(Exception):
    """The endpoint answers nobody for now: its fault or the configuration's, never the request's."""

    def __init__(self, reason: str, retry_in_s: float, *, is_slow: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.retry_in_s, self.is_slow = reason, retry_in_s, is_slow


class CallFailed(Exception):
    """This call came to nothing after all its attempts; others may be answered. `is_slow`: it was for time."""

    def __init__(self, reason: str, *, is_slow: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.is_slow = reason, is_slow


class RequestRefused(Exception):
    """The endpoint will not have this very request; `parameter` is which one it minds, when it is one we know."""

    def __init__(self, refusal: Refusal, reason: str, parameter: str | None = None) -> None:
        super().__init__(reason)
        self.refusal, self.reason, self.parameter = refusal, reason, parameter


@dataclass(frozen=True, slots=True)
class EndpointKeys:
    """The keys of the configuration that sentences name, such as "models.chat_url" and "models.chat_model"."""

    url: str
    model: str
    api_key: str = "models.api_key"


class Fault(Enum):
    """Whose fault a failure is."""

    ENDPOINT = "endpoint"  # nobody is answered: the work waits
    CALL = "call"  # others may be answered
    REQUEST = "request"  # it is refused for what it is


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with one attempt.

    `attempts_max`: how often it is worth asking, this time included; `wait_s`: the server said when to ask again.
    `is_overload`: fewer at once may be answered. `is_slow`: less may be answered in time.
    """

    reason: str
    fault: Fault
    attempts_max: int = 1
    wait_s: float | None = None
    is_overload: bool = False
    is_slow: bool = False
    refusal: Refusal = Refusal.OTHER
    parameter: str | None = None


TOO_SLOW = Failure("the endpoint did not answer in time", Fault.CALL, ATTEMPTS_MAX, is_overload=True, is_slow=True)


def classify(
    error: Exception, keys: EndpointKeys, now_epoch_s: float, answer: bytes = b"", sent: Collection[str] = ()
) -> Failure:
    """What to say of an error and what to do about it; by what it holds, for a dozen libraries raise it.

    `answer` is its body, when one came: LM Studio says with status 200 that a prompt is too long, OpenRouter all
    that goes wrong behind it. `sent`: the names of the request's parameters.
    """
    if isinstance(error, AnswerRefused):
        is_error = len(answer) < ERRORS_BYTES_MAX and b'"error"' in answer
        says = answer.decode("utf-8", "replace") if is_error else ""
        status = read_error_status(says)
        if status is not None:
            return _classify_status(StatusRefused(status, says, None), keys, now_epoch_s, sent)
        return _classify_answer(error, says, keys)
    if answer and not isinstance(error, TimeoutError):
        reason = f"the endpoint's answer could not be read ({type(error).__name__})"
        return Failure(reason, Fault.CALL, REFUSED_ANSWERS_MAX)
    chain = list(walk_causes(error))
    names = {type(each).__name__ for each in chain}
    for each in chain:
        if isinstance(each, StatusRefused):
            return _classify_status(each, keys, now_epoch_s, sent)
    if any(isinstance(each, ssl.SSLError) for each in chain):
        return _away(f"the endpoint's TLS certificate is not trusted, or it speaks no TLS: see {keys.url}", 1)
    if any(isinstance(each, socket.gaierror) or "DNS" in type(each).__name__ for each in chain):
        return _away(f"the host of {keys.url} is not found")
    if any(isinstance(each, ConnectionRefusedError) for each in chain):
        return _away(f"nothing listens at {keys.url}")
    if any(isinstance(each, TimeoutError) for each in chain):
        connecting = names & {"ConnectTimeout", "ConnectionTimeoutError"}
        return _away(f"the host of {keys.url} does not answer") if connecting else TOO_SLOW
    if names & {"InvalidURL", "InvalidUrlClientError", "UnsupportedProtocol", "LocalProtocolError"}:
        return _away(f"{keys.url} is no address that can be called", 1)
    return Failure(f"the connection to the endpoint broke ({type(chain[-1]).__name__})", Fault.CALL, ATTEMPTS_MAX)


def _away(reason: str, attempts_max: int = ATTEMPTS_MAX) -> Failure:
    return Failure(reason, Fault.ENDPOINT, attempts_max)


def _classify_answer(error: AnswerRefused, says: str, keys: EndpointKeys) -> Failure:
    refusal, parameter = read_refusal(says, is_surely_refused=False)
    if refusal is Refusal.MODEL:
        return _miss_model(200, keys)
    if refusal is not Refusal.OTHER:
        return Failure(_SENTENCES[refusal], Fault.REQUEST, refusal=refusal, parameter=parameter)
    return Failure(f"the endpoint's answer was refused: {error}", Fault.CALL, REFUSED_ANSWERS_MAX)


_SENTENCES = {
    Refusal.TOO_LONG: "the request is longer than the model's context",
    Refusal.PARAMETER: "the endpoint does not know a parameter",
    Refusal.CONTENT: "the endpoint's filter refuses the text",
    Refusal.ROOM: "the endpoint gives no answer so much room",
    Refusal.FORM: "the endpoint refuses the JSON that its model wrote",
    Refusal.MODEL: "the endpoint has not this model",
    Refusal.OTHER: "the endpoint refuses the request",
}


def _classify_status(
    refused: StatusRefused, keys: EndpointKeys, now_epoch_s: float, sent: Collection[str]
) -> Failure:
    status, says = refused.status, refused.says.lower()
    match status:
        case _ if status == 401 or (status == 400 and any(word in says for word in _NO_KEY)):
            return _away(
                f"the endpoint refuses the key ({status}): set {keys.api_key} or OPENAI_API_KEY", attempts_max=1
            )
        case _ if 300 <= status < 400:
            return _away(
                f"the endpoint redirects to another address ({status}), which is not followed: see {keys.url}", 1
            )
        case 402:
            return _away("the quota of this key is used up (402)", 1)
        case 403 if any(word in says for word in _FLAGGED):
            return _refuse(status, Refusal.CONTENT)
        case 403:
            return _away(f"the key has no right to this model (403): see {keys.model}", 1)
        case 404:
            mend = f"see {keys.model}, and {keys.url}, which mostly ends in /v1"
            return _away(f"the endpoint has no such model or address (404): {mend}", 1)
        case 429 if any(word in says for word in _QUOTA):
            return _away("the quota of this key is used up (429)", 1)
        case 413:
            return _refuse(status, Refusal.TOO_LONG)
        case 400 | 422:
            refusal, parameter = read_refusal(refused.says, sent)
            if refusal is Refusal.MODEL:  # LM Studio, when it has unloaded it
                return _miss_model(status, keys)
            return _refuse(status, refusal, parameter)
        # llama.cpp says 500 when the context overflows while it writes, and where its template fails; OpenAI 429
        # when one request is longer than what it takes in a minute.
        case _ if status >= 500 or "request too large" in says:
            refusal, parameter = read_refusal(refused.says, is_surely_refused=False)
            if refusal is Refusal.TOO_LONG or parameter == "system":
                return _refuse(status, refusal, parameter)
            return _classify_passing(refused, now_epoch_s)
        case _:
            return _classify_passing(refused, now_epoch_s)


def _miss_model(status: int, keys: EndpointKeys) -> Failure:
    return _away(f"the endpoint has no such model, or has not loaded it ({status}): see {keys.model}", 1)


def _refuse(status: int, refusal: Refusal, parameter: str | None = None) -> Failure:
    about = f": {parameter}" if parameter else ""
    return Failure(f"{_SENTENCES[refusal]} ({status}){about}", Fault.REQUEST, refusal=refusal, parameter=parameter)


def _classify_passing(refused: StatusRefused, now_epoch_s: float) -> Failure:
    """What may pass by itself, and what no request could mend."""
    status = refused.status
    reason = f"the endpoint answers with status {status}"
    if status == 429:
        reason = "the endpoint wants fewer calls for now (429)"
    if status == 503 and "loading model" in refused.says.lower():  # llama.cpp
        reason = "the endpoint is loading its model (503)"
    if status not in (408, 409, 425, 429) and status < 500:
        return _away(reason, 1)
    is_slow = status in (408, 504, 524)  # a proxy lost its patience
    is_overload = is_slow or status in (429, 502, 503, 529)
    fault = Fault.ENDPOINT if is_overload and not is_slow else Fault.CALL
    wait_s = read_retry_after(refused.retry_after, now_epoch_s)
    return Failure(reason, fault, ATTEMPTS_MAX, wait_s, is_overload, is_slow)


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it came from, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__
