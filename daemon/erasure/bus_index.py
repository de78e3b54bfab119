"""Whether the embedded bus still names what was forgotten in the index that a nats-server keeps of each stream.

The index (`index.db`) names the subject of every message that was there when it was written, so those of deleted
messages, too, and a subject spells the ids of user and session. The server writes it anew within two and a half
minutes of a change, and when it is stopped; of a stream with more than a million subjects, or as many deleted
messages between others, only then (nats-server 2.15, server/filestore.go, flushStreamStateLoop). Nothing that a
client asks makes it do so earlier. A server elsewhere keeps its index where we cannot look.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from daemon.bus.embedded_bus import EMBEDDED_BUS_FOLDER
from daemon.bus.subjects import ROOT, control_subject, encode_token, turn_subject
from daemon.erasure.searching import BLOCK_BYTES

_INDEXES: Final = f"{EMBEDDED_BUS_FOLDER}/jetstream/*/streams/*/msgs/index.db"
# A byte of a length holds 7 bits of it, the lowest first, and one that says whether there are more.
_LENGTH_BITS: Final = 7


def is_bus_index(file: str) -> bool:
    """Whether a file, relative to the data directory, is such an index."""
    return fnmatchcase(file, _INDEXES)


def names_in_index(user_id: str, session_id: str | None) -> tuple[bytes, ...]:
    """How an index names a session, or (None) anything of a user; looked for byte by byte.

    Raises InvalidInput for ids that no subject can carry.
    """
    if session_id is None:
        token = encode_token(user_id)
        return tuple(f"{ROOT}.{kind}.{token}.".encode() for kind in ("turns", "control"))
    subjects = (turn_subject(user_id, session_id), control_subject(user_id, session_id))
    # With its length before it, or "s1" would be found in "s10".
    return tuple(_length(len(subject)) + subject.encode() for subject in subjects)


def stands_in_index(folder: Path, names: Sequence[bytes], block_bytes: int = BLOCK_BYTES) -> bool:
    """Whether an index below a data directory holds one of these names; one that cannot be read may."""
    return any(_holds(path, names, block_bytes) for path in folder.glob(_INDEXES))


def _holds(path: Path, names: Sequence[bytes], block_bytes: int) -> bool:
    reach = max(map(len, names)) - 1
    held = b""
    try:
        with path.open("rb") as file:
            while block := file.read(block_bytes):
                held = held[-reach:] + block
                if any(name in held for name in names):
                    return True
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return False


def _length(size: int) -> bytes:
    """A number as the index writes it (Go's binary.AppendUvarint)."""
    low, rest = size % (1 << _LENGTH_BITS), size >> _LENGTH_BITS
    return bytes([low]) if not rest else bytes([low | 1 << _LENGTH_BITS]) + _length(rest)
