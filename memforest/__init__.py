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
from memforest.explained import AskedWord, Candidate, Explanation, FilterLeft, Parameters
from memforest.fact_types import Fact, FactConflict, FactPage, FactSettled
from memforest.origins import BusMessage, FactBehind, Reading, Spent, TurnBehind, Why, Writing
from memforest.parked import ParkedContent, ParkedPage, ParkedWork
from memforest.past import Difference, EventPage, SessionEvent
from memforest.socket_path import find_socket
from memforest.structures import Compaction, Group, Tree, TreeNode, TreeNodes, Unit, Units
from memforest.types import (
    Answer,
    Digest,
    Member,
    Memory,
    Part,
    Preview,
    Published,
    Receipt,
    ReplayState,
    Session,
    SessionClosed,
    Source,
    Status,
    Tombstone,
    User,
    Watermark,
)

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerOverdue",
    "AskedWord",
    "AsyncClient",
    "BusMessage",
    "Busy",
    "Candidate",
    "Client",
    "Compaction",
    "Conflict",
    "ConnectionLost",
    "DaemonError",
    "DaemonUnreachable",
    "Difference",
    "Digest",
    "EventPage",
    "Explanation",
    "Fact",
    "FactBehind",
    "FactConflict",
    "FactPage",
    "FactSettled",
    "FilterLeft",
    "Group",
    "InvalidInput",
    "MemForestError",
    "Member",
    "Memory",
    "NotFound",
    "Parameters",
    "ParkedContent",
    "ParkedPage",
    "ParkedWork",
    "Part",
    "Preview",
    "ProtocolError",
    "Published",
    "Reading",
    "Receipt",
    "ReplayState",
    "RequestInvalid",
    "Session",
    "SessionClosed",
    "SessionEvent",
    "Source",
    "Spent",
    "Status",
    "Tombstone",
    "Tree",
    "TreeNode",
    "TreeNodes",
    "TurnBehind",
    "Unavailable",
    "Unit",
    "Units",
    "User",
    "Watermark",
    "Why",
    "Writing",
    "__version__",
    "find_socket",
]
