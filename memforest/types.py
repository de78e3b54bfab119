"""What the daemon answers, as frozen records. The fields are those of the socket (design 4.2).

Fields a newer daemon adds are ignored; a field with a default may be missing. Times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from memforest.explained import AnsweredBy, Explanation, TokensTaken


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far this user's memory is built: what is recorded, what is projected, what still waits."""

    user_seq: int
    projected_user_seq: int
    pending: int
    lag_s: float

    @property
    def is_current(self) -> bool:
        """Everything recorded is projected and no work waits."""
        return self.pending == 0 and self.projected_user_seq >= self.user_seq


@dataclass(frozen=True, slots=True)
class Source:
    """One turn that a memory comes from."""

    session_id: str
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a turn that is no text: an image, a file, by reference."""

    kind: str
    reference: str
    caption: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A fact inside a group; `valid_until`: when a state ended."""

    id: str
    text: str
    said_at: datetime | None = None
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One item of an answer: a chunk, a fact, a group or a summary, with where it comes from.

    `members` are the facts of a group that is opened, nearest first; `valid_until`: when a state ended.
    """

    id: str
    kind: str
    text: str
    score: float
    said_at: datetime | None = None
    time_start: datetime | None = None
    time_end: datetime | None = None
    similarity: float | None = None
    propagation: float | None = None
    sessions: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    parts: tuple[Part, ...] = ()
    members: tuple[Member, ...] | None = None
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """Memories with vectors of one model, and whether the question had one of it; else words alone found them.

    `ours`: the daemon's own embedder's. `model` is None where memories came without its name.
    """

    model: str | None
    dimensions: int
    memories: int
    reached: bool
    ours: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Memories by rank, the same as prompt-ready text in time order, and the watermark.

    `confidence` is from 0 to 1; `insufficient` says that it is too low to answer from. `redacted`, of an answer as
    of then: events of before whose words are gone. `spaces` is there when memories came with vectors of their own.
    `mode` is the one that was used, and `why_mode` says why, when the daemon chose it.

    Asked for in words: the `answer`, and the ids of the memories it rests on; None when it `abstained`, since they
    do not say it, or when no model answered (`unanswered` says why).

    Of mode "deep": the `calls` of the model, how many `rounds` of them waited for one another, and their `tokens`;
    `capped` is the cap that ended the asking, `fell_back` why it went on without the model.
    """

    memories: tuple[Memory, ...]
    context: str
    watermark: Watermark
    mode: str = "agpr"
    why_mode: str | None = None
    confidence: float | None = None
    insufficient: bool = False
    redacted: int | None = None
    explanation: Explanation | None = None
    spaces: tuple[Space, ...] | None = None
    answer: str | None = None
    citations: tuple[str, ...] | None = None
    abstained: bool | None = None
    answered_by: AnsweredBy | None = None
    unanswered: str | None = None
    rounds: int | None = None
    calls: int | None = None
    tokens: TokensTaken | None = None
    capped: str | None = None
    fell_back: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """Where the bus put one message; `keys` are what `wait_for` takes, one for each turn."""

    stream: str
    seq: int
    duplicate: bool = False
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """Where the bus put the closing of a session; `key` is what `wait_for` takes."""

    stream: str
    seq: int
    duplicate: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One session as the registry knows it; `state` is open, closed or forgotten.

    `zero_chunks`: read, and no fact found. `model_calls`, `tokens` and `cost` are what was spent on this session
    alone; what was made of several is in none of them.
    """

    session_id: str
    state: str
    turns: int
    first_at: datetime | None = None
    last_at: datetime | None = None
    chunks: int = 0
    waiting_chunks: int = 0
    facts: int = 0
    bytes: int = 0
    zero_chunks: int = 0
    model_calls: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplayState:
    """How far the replay of a session is: one model call a chunk; `started_user_seq` is None unless one runs.

    A preview tells how many chunks have their answer `recorded` already, and about how many tokens the prompts of
    the others have.
    """

    chunks: int
    characters: int
    done: int
    complete: bool
    started_user_seq: int | None = None
    recorded: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class User:
    """One memory owner and how much is kept of them."""

    user_id: str
    user_seq: int
    sessions: int
    turns: int


@dataclass(frozen=True, slots=True)
class Digest:
    """Hashes of the live memory at `user_seq`; two equal digests are two equal memories."""

    user_seq: int
    facts: str
    scopes: str
    trees: str
    units: str


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """A compaction that runs now: how many `groups` are planned, and how many `fused` and `parked` (given up)."""

    groups: int
    fused: int = 0
    parked: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon's own account of itself, by section, and if one was asked for, of a user the watermark and the
    compaction that runs."""

    sections: dict[str, object] = field(default_factory=dict[str, object])
    watermark: Watermark | None = None
    compaction: CompactionProgress | None = None

    @property
    def read_to(self) -> int | None:
        """The place on the bus up to which the daemon has recorded what stands there; None if it does not say."""
        found = self._find("bus", "read_to")
        return found if isinstance(found, int) else None

    @property
    def held_up_by(self) -> str:
        """Why building waits: a chat model that does not answer, or a budget that is used up; empty if neither."""
        if self._find("models", "chat", "circuit") == "open":
            return str(self._find("models", "chat", "reason") or "the chat model does not answer")
        return str(self._find("budget", "user", "reason") or self._find("budget", "all_users", "reason") or "")

    def _find(self, *names: str) -> object:
        part: object = self.sections
        for name in names:
            part = part.get(name) if isinstance(part, dict) else None
        return part
