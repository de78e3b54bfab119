"""The client of the MemForest daemon: what chat services and agents import.

`Client` blocks, `AsyncClient` runs under anyio; both speak to the daemon's Unix socket and know
nothing of how memory is made.
"""

from __future__ import annotations

from memforest.client import AsyncClient, Client
from memforest.errors import (
    AnswerOverdue,
    Busy,
    Conflict,
    ConnectionLost,
    DaemonError,
    DaemonUnreachable,
    InvalidInput,
    MemForestError,
    NotFound,
    ProtocolError,
    RequestInvalid,
    Unavailable,
)
from memforest.past import Difference, EventPage, SessionEvent
from memforest.socket_path import find_socket
from memforest.types import (
    Answer,
    Compaction,
    Digest,
    Fact,
    FactPage,
    FactSettled,
    Group,
    Memory,
    Preview,
    Published,
    Receipt,
    ReplayState,
    Session,
    SessionClosed,
    Source,
    Status,
    Tombstone,
    Tree,
    Unit,
    Units,
    User,
    Watermark,
)

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerOverdue",
    "AsyncClient",
    "Busy",
    "Client",
    "Compaction",
    "Conflict",
    "ConnectionLost",
    "DaemonError",
    "DaemonUnreachable",
    "Difference",
    "Digest",
    "EventPage",
    "Fact",
    "FactPage",
    "FactSettled",
    "Group",
    "InvalidInput",
    "MemForestError",
    "Memory",
    "NotFound",
    "Preview",
    "ProtocolError",
    "Published",
    "Receipt",
    "ReplayState",
    "RequestInvalid",
    "Session",
    "SessionClosed",
    "SessionEvent",
    "Source",
    "Status",
    "Tombstone",
    "Tree",
    "Unavailable",
    "Unit",
    "Units",
    "User",
    "Watermark",
    "__version__",
    "find_socket",
]
