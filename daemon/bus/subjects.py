"""The bus subjects of turns and control messages, and how an id becomes one token of a subject (design 4.1).

Two services must never disagree about where a session's messages go, so every id has exactly one token
and every token at most one id.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from events.errors import InvalidInput

SubjectKind: TypeAlias = Literal["turns", "control"]

ROOT: Final = "memforest"
TURN_SUBJECTS: Final = f"{ROOT}.turns.>"
CONTROL_SUBJECTS: Final = f"{ROOT}.control.>"
# UTF-8 bytes. A protocol line of NATS holds 4096 bytes and the server hangs up on a longer one; two
# ids of this size, both encoded, and a reply inbox fit into it.
ID_BYTES_MAX: Final = 1000

_ENCODED = "b32-"
_PLAIN_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


class ParsedSubject(NamedTuple):
    """Whom a message is about, and whether it adds to a memory or acts on it."""

    kind: SubjectKind
    user_id: str
    session_id: str


def encode_token(id_: str) -> str:
    """The subject token of an id: the id itself where NATS allows it, else `b32-` and lower-case base32.

    Raises InvalidInput for an empty id, one above ID_BYTES_MAX and one that is not valid Unicode.
    """
    try:
        encoded = id_.encode()
    except UnicodeEncodeError:
        raise InvalidInput("an id is not valid Unicode") from None
    if not 1 <= len(encoded) <= ID_BYTES_MAX:
        raise InvalidInput(f"an id has 1 to {ID_BYTES_MAX} bytes of UTF-8")
    # An id that looks encoded is encoded as well, or two ids would share a token.
    if _PLAIN_TOKEN.fullmatch(id_) and not id_.startswith(_ENCODED):
        return id_
    return _ENCODED + base64.b32encode(encoded).decode("ascii").rstrip("=").lower()


def decode_token(token: str) -> str:
    """The id of a subject token. Raises InvalidInput for every token that `encode_token` does not make."""
    if not _PLAIN_TOKEN.fullmatch(token):
        raise InvalidInput("a subject token has characters other than A-Z a-z 0-9 _ -")
    id_ = _decode_base32(token.removeprefix(_ENCODED)) if token.startswith(_ENCODED) else token
    # Base32 has spare bits and accepts needless encodings; only the one canonical token is taken.
    if encode_token(id_) != token:
        raise InvalidInput("a subject token is not the canonical encoding of its id")
    return id_


def turn_subject(user_id: str, session_id: str) -> str:
    """Where turns of a session are published. Raises InvalidInput for an id that no token can carry."""
    return f"{ROOT}.turns.{encode_token(user_id)}.{encode_token(session_id)}"


def control_subject(user_id: str, session_id: str) -> str:
    """Where closing, forgetting and retracting are published. Raises InvalidInput as `turn_subject` does."""
    return f"{ROOT}.control.{encode_token(user_id)}.{encode_token(session_id)}"


def parse_subject(subject: str) -> ParsedSubject:
    """What a subject says. Raises InvalidInput for any that the two functions above do not make."""
    tokens = subject.split(".")
    if len(tokens) != 4 or tokens[0] != ROOT:
        raise InvalidInput(f"a subject has the form {ROOT}.<turns or control>.<user>.<session>")
    for kind in get_args(SubjectKind):
        if tokens[1] == kind:
            return ParsedSubject(kind, decode_token(tokens[2]), decode_token(tokens[3]))
    raise InvalidInput("a subject is neither of turns nor of control")


def _decode_base32(digits: str) -> str:
    padding = "=" * (-len(digits) % 8)
    try:
        # Upper-case digits pass here and are caught by the comparison with the canonical token.
        return base64.b32decode(digits.upper() + padding).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidInput("a subject token is not base32 of UTF-8") from None
