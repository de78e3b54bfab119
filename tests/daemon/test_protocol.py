"""The framing and the words of the socket, without a socket."""

from __future__ import annotations

import enum
import json
import random
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from daemon.serving.line_buffer import LineBuffer
from daemon.serving.protocol import (
    BATCH_REQUESTS_MAX,
    INTERNAL_SENTENCE,
    NESTING_MAX,
    BatchAnswer,
    LineTooLong,
    LineTooSlow,
    LineUnreadable,
    Method,
    MethodUnknown,
    ParamsRefused,
    Refused,
    Request,
    RequestMalformed,
    decode_line,
    encode_error,
    encode_result,
    read_params,
)
from daemon.untrusted import Params
from events.errors import InvalidInput, LogClosed, LogDamaged, MemForestError, StaleDecision


class Mood(enum.Enum):
    CALM = "calm"


class Place(Params, frozen=True):
    city: str = ""


class Asked(Params, frozen=True):
    user_id: str
    k: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    mood: Mood = Mood.CALM
    place: Place = Place()
    weights: dict[str, float] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)


class Loose(msgspec.Struct):
    user_id: str = ""


async def nothing(params: Any) -> object:
    return None


ASKED = Method(Asked, nothing, write=False, deadline_s=1.0)


def request(line: bytes) -> Request:
    found = decode_line(line)
    assert isinstance(found, Request)
    return found


def refusal(line: bytes) -> Refused:
    found = decode_line(line)
    assert isinstance(found, Refused)
    return found


def refusal_of(params: object) -> str:
    with pytest.raises(ParamsRefused) as raised:
        read_params("query", params, ASKED)
    return str(raised.value)


def nested(levels: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b'{"a":' * levels + b"1" + b"}" * (levels + 1)


def test_a_request_is_read() -> None:
    found = request(b' {"jsonrpc":"2.0","id":"a-1","method":"query","params":{"k":3}} \r')

    assert found == Request("a-1", "query", {"k": 3}, is_notification=False)


def test_a_request_without_id_is_a_notification_and_one_with_null_is_not() -> None:
    assert request(b'{"jsonrpc":"2.0","method":"m"}').is_notification
    assert not request(b'{"jsonrpc":"2.0","id":null,"method":"m"}').is_notification


def test_absent_params_are_no_params() -> None:
    assert request(b'{"jsonrpc":"2.0","id":1,"method":"m"}').params == {}


UNREADABLE = {
    "empty": b"",
    "a bare word": b"hello",
    "half a request": b'{"jsonrpc":"2.0","id":1',
    "two requests": b'{"jsonrpc":"2.0","id":1,"method":"m"} {}',
    "not a number": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"k":NaN}}',
    "infinity": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"k":-Infinity}}',
    "a number too large for a float": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"k":1e999}}',
    "a number of 5000 digits": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"k":' + b"9" * 5000 + b"}}",
    "lone high surrogate": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"\\ud800"}}',
    "lone low surrogate": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"\\udc00"}}',
    "surrogate in a key": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"\\ud800":1}}',
    "invalid utf-8": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"\xff"}}',
    "overlong utf-8": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"\xc0\xaf"}}',
    "cesu-8": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"\xed\xa0\x80"}}',
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
    "utf-16": '{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16"),
    "a zero byte before": b'\x00{"jsonrpc":"2.0","id":1,"method":"m"}',
    "a zero byte in a string": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"\x00"}}',
    "a thousand levels": nested(1_000),
    "a hundred thousand levels": b"[" * 100_000 + b"]" * 100_000,
    "a hundred thousand levels left open": b"[" * 100_000,
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_not_json_is_refused_as_a_parse_error(line: bytes) -> None:
    found = refusal(line)

    assert isinstance(found.error, LineUnreadable)
    assert found.id is None


MALFORMED: dict[str, tuple[bytes, Any]] = {
    "a number": (b"5", None),
    "no version": (b'{"id":1,"method":"m"}', 1),
    "another version": (b'{"jsonrpc":"1.0","id":2,"method":"m"}', 2),
    "no method": (b'{"jsonrpc":"2.0","id":"x"}', "x"),
    "a method that is no string": (b'{"jsonrpc":"2.0","id":3,"method":7}', 3),
    "params that are a number": (b'{"jsonrpc":"2.0","id":4,"method":"m","params":5}', 4),
    "an unknown member": (b'{"jsonrpc":"2.0","id":5,"method":"m","parameters":{}}', 5),
    "an id that is an object": (b'{"jsonrpc":"2.0","id":{},"method":"m"}', None),
    "an id that is a truth": (b'{"jsonrpc":"2.0","id":true,"method":"m"}', None),
    "an id beyond 64 bits": (b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}', None),
    "an id beyond 256 characters": (b'{"jsonrpc":"2.0","id":"' + b"x" * 257 + b'","method":"m"}', None),
    "an empty batch": (b"[]", None),
}


@pytest.mark.parametrize(("line", "request_id"), MALFORMED.values(), ids=MALFORMED.keys())
def test_json_that_is_no_request_is_refused_under_its_id(line: bytes, request_id: object) -> None:
    found = refusal(line)

    assert isinstance(found.error, RequestMalformed)
    assert found.id == request_id


def test_a_refusal_of_the_envelope_names_the_member_and_quotes_no_value() -> None:
    unknown = str(refusal(b'{"jsonrpc":"2.0","id":5,"method":"m","parameters":{}}').error)
    version = str(refusal(b'{"jsonrpc":"secret","id":5,"method":"m"}').error)

    assert "`parameters`" in unknown
    assert "`$.jsonrpc`" in version
    assert "secret" not in version


def test_the_deepest_nesting_allowed_is_read_and_one_more_is_not() -> None:
    # The request itself is one level; what `nested` adds are the others.
    assert isinstance(decode_line(nested(NESTING_MAX - 1)), Request)
    assert isinstance(refusal(nested(NESTING_MAX)).error, LineUnreadable)


def test_many_brackets_that_do_not_nest_are_read() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[' + b"[]," * 500 + b'"[[[["]}}'

    assert isinstance(decode_line(line), Request)


def test_of_two_equal_keys_the_last_counts() -> None:
    found = request(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m","params":{"k":1,"k":7}}')

    assert found.id == 2
    assert found.params == {"k": 7}


def test_an_escaped_zero_is_a_character_like_any_other() -> None:
    assert request(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"q":"a\\u0000"}}').params == {"q": "a\0"}


def test_a_batch_keeps_its_good_requests_beside_its_bad_ones() -> None:
    found = decode_line(b'[{"jsonrpc":"2.0","id":1,"method":"m"},7,{"jsonrpc":"2.0","id":2}]')

    assert isinstance(found, tuple)
    assert [type(member) for member in found] == [Request, Refused, Refused]
    assert [member.id for member in found] == [1, None, 2]


def test_a_batch_is_bounded() -> None:
    one = b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    largest = decode_line(b"[" + b",".join([one] * BATCH_REQUESTS_MAX) + b"]")
    larger = refusal(b"[" + b",".join([one] * (BATCH_REQUESTS_MAX + 1)) + b"]")

    assert isinstance(largest, tuple)
    assert isinstance(larger.error, RequestMalformed)
    assert str(BATCH_REQUESTS_MAX) in str(larger.error)


def test_decoding_never_raises_for_any_bytes() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    good = b'{"jsonrpc":"2.0","id":1,"method":"query","params":{"user_id":"\xc3\xa9","k":[1,{"a":null}]}}'

    for _ in range(3_000):
        line = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(len(line))
            line[place : place + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        found = decode_line(bytes(line))

        assert isinstance(found, Request | Refused | tuple)


def test_params_get_their_type() -> None:
    read = read_params("q", {"user_id": "u", "k": 3}, ASKED)

    assert read == Asked(user_id="u", k=3)


def test_an_unknown_parameter_is_named() -> None:
    assert "`usr_id`" in refusal_of({"user_id": "u", "usr_id": "secret"})
    assert "`$.place`" in refusal_of({"user_id": "u", "place": {"town": "secret"}})


def test_a_missing_parameter_is_named() -> None:
    assert "`user_id`" in refusal_of({})


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"user_id": "u", "k": "secret"}, "$.k"),
        ({"user_id": "u", "k": 4_711}, "$.k"),
        ({"user_id": "u", "k": True}, "$.k"),
        ({"user_id": "u", "mood": "secret"}, "$.mood"),
        ({"user_id": "u", "mood": "secret - at `$.secret`"}, "$.mood"),
        ({"user_id": "u", "weights": {"secret": "secret"}}, "$.weights[...]"),
        ({"user_id": "u", "weights": {"secret": 10**400}}, "$.weights[...]"),
        ({"user_id": "u", "tags": ["a", 4_711]}, "$.tags[1]"),
        ({"user_id": ["secret"]}, "$.user_id"),
    ],
)
def test_a_wrong_parameter_is_told_by_its_place_and_never_by_its_value(params: object, place: str) -> None:
    told = refusal_of(params)

    assert f"`{place}`" in told
    assert "`query`" in told
    assert "secret" not in told
    assert "4711" not in told
    assert "4_711" not in told


def test_positional_parameters_are_refused_with_advice() -> None:
    assert "object" in refusal_of(["u", 3])


def test_a_name_of_a_megabyte_does_not_come_back() -> None:
    assert len(refusal_of({"user_id": "u", "x" * 1_000_000: 1})) < 300


def test_parameters_that_ignore_unknown_names_are_not_taken_into_a_table() -> None:
    with pytest.raises(ValueError, match="Loose"):
        Method(Loose, nothing, write=False, deadline_s=1.0)


def test_a_method_without_time_is_not_taken_into_a_table() -> None:
    with pytest.raises(ValueError, match="deadline"):
        Method(Asked, nothing, write=False, deadline_s=0.0)


@dataclass(frozen=True, slots=True)
class Found:
    memories: tuple[str, ...]
    score: float


@pytest.mark.parametrize(
    ("result", "wire"),
    [
        ({"a": [1, 2.5, None]}, {"a": [1, 2.5, None]}),
        (Place(city="Miami"), {"city": "Miami"}),
        (Found(("m",), 0.5), {"memories": ["m"], "score": 0.5}),
        (Found((), float("nan")), {"memories": [], "score": None}),
        (None, None),
    ],
)
def test_structs_dataclasses_and_dicts_are_results(result: object, wire: object) -> None:
    answer = json.loads(encode_result("a", result))

    assert answer == {"jsonrpc": "2.0", "id": "a", "result": wire}


def test_an_answer_is_one_line() -> None:
    assert b"\n" not in encode_result(1, {"text": "one\ntwo\u2028three\r"})
    assert b"\n" not in encode_result(1, msgspec.Raw(b'{\n  "laid": "out"\n}'))
    assert b"\n" not in encode_error(1, InvalidInput("one\ntwo"))


class NotThere(MemForestError):
    """There is no such session."""

    code = "not_found"


class Crowded(MemForestError):
    """Ask again later."""

    code = "busy"


class Unheard(MemForestError):
    """secret"""

    code = "unheard-of"


@pytest.mark.parametrize(
    ("error", "number", "code"),
    [
        (LineUnreadable(), -32700, "invalid"),
        (RequestMalformed(), -32600, "invalid"),
        (LineTooLong(), -32600, "invalid"),
        (LineTooSlow(), -32600, "invalid"),
        (MethodUnknown(), -32601, "not_found"),
        (ParamsRefused(), -32602, "invalid"),
        (InvalidInput(), -32602, "invalid"),
        (LogDamaged(), -32603, "internal"),
        (Crowded(), -32000, "busy"),
        (NotThere(), -32001, "not_found"),
        (StaleDecision(), -32002, "conflict"),
        (LogClosed(), -32003, "unavailable"),
    ],
)
def test_every_code_has_its_number(error: MemForestError, number: int, code: str) -> None:
    answer = json.loads(encode_error(7, error))

    assert answer == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": number, "message": str(error), "data": {"code": code}},
    }
    assert str(error).endswith(".")


@pytest.mark.parametrize("error", [KeyError("secret"), RecursionError("secret"), Unheard()])
def test_an_error_that_is_not_ours_is_internal_and_says_nothing(error: Exception) -> None:
    answer = encode_error(1, error)

    assert json.loads(answer)["error"]["code"] == -32603
    assert json.loads(answer)["error"]["message"] == INTERNAL_SENTENCE
    assert b"secret" not in answer


def test_a_sentence_with_a_surrogate_is_still_an_answer() -> None:
    assert json.loads(encode_error(1, InvalidInput("/tmp/\udcff.")))["error"]["message"] == "/tmp/?."


def test_a_batch_is_answered_when_its_last_request_is() -> None:
    batch = BatchAnswer(3)

    assert batch.add(b"1") is None
    assert batch.add(None) is None
    assert batch.add(b"3") == b"[1,3]"


def test_a_batch_of_notifications_has_no_answer() -> None:
    batch = BatchAnswer(2)

    assert batch.add(None) is None
    assert batch.add(None) is None


def drain(buffer: LineBuffer, *, at_end: bool = False) -> list[bytes | None]:
    """Every line there is; None stands for one that was too long."""
    lines: list[bytes | None] = []
    while True:
        try:
            line = buffer.next_line(at_end=at_end)
        except LineTooLong:
            lines.append(None)
        else:
            if line is None:
                return lines
            lines.append(line)


def test_lines_are_put_together_however_they_are_cut() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        sent = b"".join(chance.choice([b"a", b"bb ", b"\n", b"\r\n", b" ", b"c" * 9]) for _ in range(60))
        buffer = LineBuffer(line_bytes_max=12)
        got: list[bytes | None] = []
        rest = sent
        while rest:
            cut = chance.randint(1, 8)
            buffer.feed(rest[:cut])
            rest = rest[cut:]
            got += drain(buffer)
        got += drain(buffer, at_end=True)

        stripped = [line.lstrip(b" \t\r") for line in sent.split(b"\n")]
        assert got == [line if len(line) <= 12 else None for line in stripped if line]


def test_a_line_that_is_too_long_does_not_stay_in_memory() -> None:
    buffer = LineBuffer(line_bytes_max=100)
    for _ in range(1_000):
        buffer.feed(b"x" * 1_000)

        assert buffer.next_line() is None
        assert len(buffer._bytes) == 0
    buffer.feed(b"x\nnext\n")

    assert drain(buffer) == [None, b"next"]


def test_a_line_of_the_largest_length_passes_and_one_byte_more_does_not() -> None:
    buffer = LineBuffer(line_bytes_max=4)
    buffer.feed(b"1234\n12345\n1\n")

    assert drain(buffer) == [b"1234", None, b"1"]


def test_white_space_does_not_start_a_line() -> None:
    buffer = LineBuffer(line_bytes_max=4)
    buffer.feed(b"  \r\n\t\n ")

    assert buffer.next_line() is None
    assert not buffer.started
