"""`doctor` on memories that came with vectors: a hint when the configured embedder does not reach them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daemon.config import Config, Data
from daemon.offline.embedder import HashingEmbedder
from daemon.upkeep.doctor_spaces import examine_spaces
from events.log import EventLog
from tests.builders import ManualClock, a_batch, a_forgetting, a_turn
from tests.daemon.test_spaces import MUG, a_memory

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.upkeep.findings import Finding


async def examined(folder: Path) -> list[Finding]:
    return await examine_spaces(replace(Config(), data=Data(str(folder))))


async def test_memories_with_vectors_of_another_model_are_a_hint_without_its_name(
    tmp_path: Path, clock: ManualClock
) -> None:
    nothing = await examined(tmp_path)
    log = await EventLog.open(tmp_path / "events.db", clock)
    own = HashingEmbedder().name
    await log.append(a_batch(a_turn("Hi."), a_memory("a", "Alpha.", None), a_memory("o", "Own.", MUG, own)))
    none_of_them = await examined(tmp_path)
    await log.append(a_batch(a_memory("b", "Beta.", MUG, "Xylophon"), a_memory("c", "Ce.", [1.0], "Xylophon")))
    (finding,) = await examined(tmp_path)
    await log.append_event(a_forgetting("import"))
    await log.close()

    assert nothing == none_of_them == []
    assert (finding.level, finding.subject) == ("warning", "embeddings")
    assert "1 with 3 numbers, 1 with 1 numbers" in finding.sentence
    assert "--no-embeddings" in finding.mend
    assert "Xylophon" not in str(finding)
