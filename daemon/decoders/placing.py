"""Whom a message is about: its subject, its body, or what the configuration says of its stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

from daemon.bus.subjects import ROOT, ParsedSubject, decode_token, encode_token, parse_subject
from daemon.decoders.native import Opened
from daemon.decoders.synonyms import find_ids
from events.errors import InvalidInput

# What a template is made of: text as it is, a token of the subject (from 1), a field by its path.
_Piece: TypeAlias = str | int | tuple[str, ...]
_OURS: Final = f"{ROOT}."
_HOLE: Final = re.compile(r"\{([^{}]*)\}")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*")

DISAGREEMENT: Final = "subject and body name different users or sessions"


@dataclass(frozen=True, slots=True)
class Template:
    """An id made of text, of tokens of the subject (`{2}`) and of fields of the body (`{data.room}`)."""

    pieces: tuple[_Piece, ...]

    @property
    def reads_subject(self) -> bool:
        """Whether the subject has a say, so that the body must not say otherwise."""
        return any(isinstance(piece, int) for piece in self.pieces)

    def fill(self, subject: str, fields: Mapping[str, Any]) -> str:
        """The id; raises `InvalidInput` when a token or field that it is made of is not there.

        Also when what fills a hole holds the text behind that hole: `{2}:{room}` of `a` and `b:c` would be that of
        `a:b` and `c`, and whoever may write to the one subject could write into the memory of the other.
        """
        filled = [_fill_piece(piece, subject, fields) for piece in self.pieces]
        for at, (piece, value) in enumerate(zip(self.pieces, filled, strict=True)):
            behind = filled[at + 1] if at + 2 < len(filled) else ""
            if not isinstance(piece, str) and behind and (value + behind).find(behind) < len(value):
                raise InvalidInput("a part of the user's or session's id holds what separates the parts")
        return "".join(filled)


def parse_template(text: str) -> Template | None:
    """The template of a configured text, None for an empty one; raises `InvalidInput` with what is wrong."""
    pieces: list[_Piece] = []
    at = 0
    for hole in _HOLE.finditer(text):
        if hole.start() > at:
            pieces.append(text[at : hole.start()])
        at = hole.end()
        name = hole[1]
        if name.isascii() and name.isdecimal() and int(name) > 0:
            pieces.append(int(name))
        elif _FIELD.fullmatch(name):
            pieces.append(tuple(name.split(".")))
        else:
            raise InvalidInput("between braces stands the number of a subject token, from 1, or a field's name")
    pieces += [text[at:]] if at < len(text) else []
    if any(isinstance(piece, str) and ("{" in piece or "}" in piece) for piece in pieces):
        raise InvalidInput("a brace is not closed, or not opened")
    if any(not isinstance(one, str) and not isinstance(other, str) for one, other in pairwise(pieces)):
        raise InvalidInput("between two pairs of braces stands a text that keeps them apart, such as {2}/{3}")
    return Template(tuple(pieces)) if pieces else None


@dataclass(frozen=True, slots=True)
class Placing:
    """How the messages of one stream are placed. `ours`: nothing but our own subjects is taken."""

    user: Template | None = None
    session: Template | None = None
    ours: bool = True

    def read_subject(self, subject: str) -> ParsedSubject | None:
        """What a subject of ours says, None for another; raises `InvalidInput` if it must be ours and is not."""
        return parse_subject(subject) if self.ours or subject.startswith(_OURS) else None

    def settle(self, subject: str, placed: ParsedSubject | None, opened: Opened) -> tuple[str, str]:
        """User and session of a message; raises `InvalidInput` when they disagree, or nobody says."""
        if placed is not None:
            if opened.user_id not in (None, placed.user_id) or opened.session_id not in (None, placed.session_id):
                raise InvalidInput(DISAGREEMENT)
            return placed.user_id, placed.session_id
        user_id = _settle(opened.user_id, self.user, subject, opened)
        user_id = opened.assumed_user_id if user_id is None else user_id
        session_id = _settle(opened.session_id, self.session, subject, opened)
        if user_id is None:
            raise InvalidInput("the message does not say whose it is; let `user` of its subscription say it")
        if session_id is None:
            raise InvalidInput("the message does not name its session; let `session` of its subscription name it")
        for each in (user_id, session_id):
            encode_token(each)  # it raises for what no id can be
        return user_id, session_id

    def guess(
        self, subject: str, fields: Mapping[str, Any], assume: Callable[[str], str | None]
    ) -> tuple[str | None, str | None]:
        """What can be told of a message that cannot be read and has these fields; `assume`: a session's user."""
        guessed: list[str | None] = []
        for said, template in zip(find_ids(fields), (self.user, self.session), strict=True):
            try:
                guessed.append(template.fill(subject, fields) if said is None and template is not None else said)
            except InvalidInput:
                guessed.append(None)
        user_id, session_id = guessed
        if user_id is None and session_id is not None and self.user is None:
            user_id = assume(session_id)
        return user_id, session_id


def _settle(said: str | None, template: Template | None, subject: str, opened: Opened) -> str | None:
    if template is None or (said is not None and not template.reads_subject):
        return said
    told = template.fill(subject, opened.fields)
    if said not in (None, told):
        raise InvalidInput(DISAGREEMENT)
    return told


def _fill_piece(piece: _Piece, subject: str, fields: Mapping[str, Any]) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, int):
        tokens = subject.split(".")
        if piece > len(tokens):
            raise InvalidInput(f"the subject has no token {piece}")
        token = tokens[piece - 1]
        return decode_token(token) if token.startswith("b32-") else token
    value: Any = fields
    for name in piece:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidInput(f"the field {'.'.join(piece)} that names user or session is missing, or no text")
    return str(value)
