"""What the daemon says of forgetting: what it would take, what it erased, and what keeps it from coming back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Keeps what was forgotten from coming back with a backup: keyed hashes, in hexadecimal, and no name.

    `session` is None when the user as a whole was forgotten.
    """

    session: str | None
    user: str
    forgotten_at: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What forgetting erased, store by store.

    `complete`: all of it; until then `waiting_for` says what for (`bus`, `bus_index`, `erasing` or `operator`).
    `proven`: and a search of every file for samples of all its words found nothing. `voided` counts events by
    type. `bus_left_until`: when the messages that the bus keeps expire.
    """

    forgotten_user_seq: int
    events_voided: int
    words_erased: int
    names_erased: int
    complete: bool
    proven: bool = False
    waiting_for: str | None = None
    erased_user_seq: int | None = None
    dead_letters_erased: int = 0
    bus_messages_erased: int = 0
    bus_messages_left: int = 0
    bus_left_until: datetime | None = None
    voided: dict[str, int] = field(default_factory=dict[str, int])
    first_user_seq: int = 0
    last_user_seq: int = 0
    facts_admitted_again: int = 0
    scanned_files: int = 0
    scanned_bytes: int = 0
    scan_windows: int = 0
    residues: int = 0
    tombstoned: bool = False
    tombstone: Tombstone | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What forgetting would take; nothing was changed. `summaries_again`, `groups_again`: model calls it costs.

    With `forgotten_user_seq` it is forgotten already.
    """

    events: int
    voided: dict[str, int]
    dead_letters: int = 0
    bus_messages: int = 0
    summaries_again: int = 0
    groups_again: int = 0
    forgotten_user_seq: int | None = None
