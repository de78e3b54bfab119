"""Whether memories that came with vectors can be reached by the configured embedder's: `memforestd doctor`."""

from __future__ import annotations

import sqlite3
from collections import Counter

from daemon.config import Config
from daemon.config_values import ConfigInvalid
from daemon.models.embedders import close_embedder, make_embedder
from daemon.upkeep.findings import Finding
from events.errors import LogDamaged, StoreUnusable
from events.log import LogReader
from events.reading import read_events
from events.session import MemoryImported
from projections.facts.imported import read_width

# Memories that are looked at, the newest ones, and events among which they are looked for: a second or two.
MEMORIES_MAX = 500
EVENTS_MAX = 100_000
MEND = (
    "send `embedding` and `embedding_model` with such questions, or import with --no-embeddings, and the daemon's "
    "own embedder sees to the texts"
)


async def examine_spaces(config: Config) -> list[Finding]:
    """A hint when the newest imported memories have vectors of other models; nothing when there are none.

    Names of models are what somebody wrote, so only counts and widths are told.
    """
    path = config.data_dir / "events.db"
    if not path.exists():
        return []
    try:
        embedder = make_embedder(config.models)
        name = embedder.name
        await close_embedder(embedder)
        log = await LogReader.open_to_read(path)
    except (ConfigInvalid, StoreUnusable):
        return []  # told elsewhere
    try:
        imported = await log.read(_read_newest)
    except (LogDamaged, StoreUnusable):
        return []
    finally:
        await log.close()
    others = Counter(
        (event.embedding_model, read_width(event.embedding))
        for event in imported
        if event.embedding is not None and event.embedding_model != name
    )
    if not others:
        return []
    models = ", ".join(f"{count} with {width} numbers" for (_, width), count in others.most_common())
    sentence = f"of the newest {len(imported)} imported memories some have vectors of other models: {models}"
    why = "questions find them by words alone, unless they bring a vector of that model"
    return [Finding("warning", "embeddings", sentence, MEND, why)]


def _read_newest(connection: sqlite3.Connection) -> list[MemoryImported]:
    rows = connection.execute(
        """SELECT seq FROM events WHERE seq > (SELECT max(seq) FROM events) - ? AND type = ?
           ORDER BY seq DESC LIMIT ?""",
        (EVENTS_MAX, MemoryImported.wire_name, MEMORIES_MAX),
    )
    events = (each.event for each in read_events(connection, [seq for (seq,) in rows]).values())
    return [event for event in events if isinstance(event, MemoryImported)]
