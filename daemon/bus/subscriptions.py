"""What the configuration says of further streams to read: `[[subscriptions]]`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast

from daemon.config_values import ConfigInvalid
from daemon.decoders.formats import FORMATS
from daemon.decoders.placing import parse_template
from events.errors import InvalidInput

# Each is a connection and a consumer of its own.
SUBSCRIPTIONS_MAX: Final = 32
# More filters on one consumer than anybody writes by hand.
SUBJECTS_MAX: Final = 64
STREAM_NAME: Final = re.compile(r"[^\s.*>/\\]{1,255}")
_SUBJECT: Final = re.compile(r"[^\s.]+(?:\.[^\s.]+)*")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A stream that is read besides our own, and how.

    `subjects` are filters (none: all of it), `user` and `session` templates for what a message does not say.
    """

    stream: str
    subjects: tuple[str, ...] = ()
    decoder: str = "native"
    user: str = ""
    session: str = ""


def read_subscriptions(raw: object, own_stream: str) -> tuple[Subscription, ...]:
    """The subscriptions of a file; `own_stream` is the one that is read anyway. Raises `ConfigInvalid`."""
    if not isinstance(raw, list):
        raise ConfigInvalid("subscriptions is a list: write [[subscriptions]] and its keys below, for each")
    listed = cast("list[object]", raw)
    if len(listed) > SUBSCRIPTIONS_MAX:
        raise ConfigInvalid(f"there are at most {SUBSCRIPTIONS_MAX} subscriptions")
    found = tuple(_read_one(each) for each in listed)
    seen = {own_stream}
    for each in found:
        if each.stream in seen:
            raise ConfigInvalid(
                f"the stream {each.stream} is read twice; one subscription may have several subjects"
            )
        seen.add(each.stream)
    return found


def check_decoder(name: str, key: str) -> None:
    """Raise `ConfigInvalid` unless there is a decoder of this name."""
    if name not in FORMATS:
        raise ConfigInvalid(f"{key} is one of {', '.join(FORMATS)}")


def _read_one(raw: object) -> Subscription:
    if not isinstance(raw, Mapping):
        raise ConfigInvalid("subscriptions is a list of tables: write [[subscriptions]] and its keys below")
    table = cast("Mapping[str, Any]", raw)
    known = [key.name for key in fields(Subscription)]
    for key, value in table.items():
        if key not in known:
            raise ConfigInvalid(f"unknown key subscriptions.{key}; it may have {', '.join(known)}")
        if key != "subjects" and not isinstance(value, str):
            raise ConfigInvalid(f"subscriptions.{key} must be a string")
    subjects: Any = table.get("subjects", [])
    _check_subjects(subjects)
    values: dict[str, Any] = {"stream": "", **table, "subjects": tuple(subjects)}
    one = Subscription(**values)
    if not STREAM_NAME.fullmatch(one.stream):
        raise ConfigInvalid("subscriptions.stream names the stream to read; it has no space and none of . * > /")
    check_decoder(one.decoder, "subscriptions.decoder")
    for key, text in (("user", one.user), ("session", one.session)):
        try:
            parse_template(text)
        except InvalidInput as error:
            raise ConfigInvalid(f"subscriptions.{key}: {error}") from None
    return one


def _check_subjects(subjects: object) -> None:
    listed = cast("list[object]", subjects) if isinstance(subjects, list) else None
    if listed is None or not all(isinstance(each, str) and _SUBJECT.fullmatch(each) for each in listed):
        raise ConfigInvalid('subscriptions.subjects is a list of subjects, such as ["openclaw.events.*.msg_in"]')
    if len(listed) > SUBJECTS_MAX:
        raise ConfigInvalid(f"subscriptions.subjects has at most {SUBJECTS_MAX} subjects")
