"""The log of a run: a JSON line for each thing that is done, so that a run that was killed goes on where it was.

The first line says what is run; a run with other settings is refused. A last line that was cut off is cut away.
Words stand in it only when they are wanted.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from memforest.bench.records import Asked, Built
from memforest.errors import InvalidInput, ProtocolError
from memforest.wire import JsonObject, decode_json, read_as

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from memforest.bench.records import Case

FORMAT = 1


class BadLog(InvalidInput):
    """The log is not one of this run."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a daemon's ledger had added up to at some moment: model calls, tokens, cost."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def since(self, before: Spending) -> Spending:
        """What was spent in between."""
        return Spending(self.calls - before.calls, self.tokens - before.tokens, self.cost - before.cost)


@dataclass(frozen=True, slots=True)
class Begun:
    """A stage of a conversation of which something may be published already, to this user."""

    daemon: str
    conversation_id: str
    stage: int
    user_id: str
    before: Spending = Spending()


@dataclass(slots=True)
class Known:
    """What the lines of a log say, by daemon and conversation, and by daemon, row and case."""

    begun: dict[tuple[str, str, int], Begun] = field(default_factory=dict[tuple[str, str, int], Begun])
    built: dict[tuple[str, str, int], Built] = field(default_factory=dict[tuple[str, str, int], Built])
    asked: dict[tuple[str, str, str], Asked] = field(default_factory=dict[tuple[str, str, str], Asked])
    forgotten: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


class Log:
    """A log that is written as the run goes on; without a path nothing is kept beyond the run."""

    def __init__(self, path: Path | None, settings: JsonObject, *, run_id: str, words: bool = False) -> None:
        """`settings` decide what is asked and of whom; `run_id` is that of a new run. Raises BadLog, OSError."""
        self.known = Known()
        self.run_id = run_id
        self.resumed = False
        self._words = words
        self._file: IO[bytes] | None = None if path is None else path.open("a+b")
        if self._file is not None:
            try:
                self._take_up(self._file, settings)
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def begin(self, begun: Begun) -> None:
        """A stage is about to be published; what it is for is known whatever happens next."""
        self.known.begun[begun.daemon, begun.conversation_id, begun.stage] = begun
        self._write("begun", asdict(begun))

    def build(self, built: Built, stage: int) -> None:
        """A stage is built."""
        self.known.built[built.daemon, built.conversation_id, stage] = built
        self._write("built", {"stage": stage, **asdict(built)})

    def ask(self, asked: Asked, case: Case) -> None:
        """A question was asked in one row."""
        self.known.asked[asked.daemon, asked.row, asked.case_id] = asked
        line = asdict(asked)
        if self._words:
            line |= {"question": case.question, "answers": case.answers, "options": case.options}
        else:
            for worded in line["worded"]:
                worded["text"] = None
        self._write("asked", line)

    def forget(self, daemon: str, conversation_id: str) -> None:
        """All of a conversation was asked, and its user is forgotten."""
        self.known.forgotten.add((daemon, conversation_id))
        self._write("forgotten", {"daemon": daemon, "conversation_id": conversation_id})

    def _write(self, kind: str, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            # In one write: what is cut off by a kill is one line at the end.
            self._file.write(json.dumps({"type": kind, **line}).encode() + b"\n")
            self._file.flush()

    def _take_up(self, file: IO[bytes], settings: JsonObject) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadLog("Another run writes this log just now; wait for it, or name another file.") from None
        file.seek(0)
        content = file.read()
        if not content:
            self._write("run", {"format": FORMAT, "run_id": self.run_id, "settings": settings})
            return
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].splitlines() or [content]
        self._check(_read_line(1, lines[0]), settings)
        if whole < len(content):  # not before it is known to be ours
            os.truncate(file.fileno(), whole)
        self.resumed = True
        for number, line in enumerate(lines[1:], start=2):
            self._take(number, _read_line(number, line))

    def _check(self, head: JsonObject, settings: JsonObject) -> None:
        """The first line against this run's settings, which are numbers and names of ours."""
        before: object = head.get("settings")
        if head.get("type") != "run" or not isinstance(before, dict) or not isinstance(head.get("run_id"), str):
            raise BadLog("The file is no log of `memforest bench`; name a new one with --log.")
        if head.get("format") != FORMAT:
            raise BadLog("The log is of another version of `memforest bench`; name a new one with --log.")
        now = json.loads(json.dumps(settings))
        other = [name for name in sorted({*now, *before}) if now.get(name) != before.get(name)]
        if other:
            raise BadLog(
                f"The log is of a run with other settings ({', '.join(other)}); "
                "repeat its command to go on with it, or name a new file with --log."
            )
        self.run_id = head["run_id"]

    def _take(self, number: int, line: JsonObject) -> None:
        known = self.known
        try:
            match line.pop("type", None):
                case "begun":
                    begun = read_as(Begun, line)
                    known.begun[begun.daemon, begun.conversation_id, begun.stage] = begun
                case "built":
                    built = read_as(Built, line)
                    known.built[built.daemon, built.conversation_id, int(line["stage"])] = built
                case "asked":
                    asked = read_as(Asked, line)
                    known.asked[asked.daemon, asked.row, asked.case_id] = asked
                case "forgotten":
                    known.forgotten.add((str(line["daemon"]), str(line["conversation_id"])))
                case _:
                    raise BadLog(f"Line {number} of the log is none of ours; name a new one with --log.")
        except (ProtocolError, KeyError, ValueError):
            raise BadLog(f"Line {number} of the log is damaged; name a new one with --log.") from None


def _read_line(number: int, line: bytes) -> JsonObject:
    try:
        value = decode_json(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadLog(f"Line {number} of the log is damaged; name a new one with --log.")
    return value
