"""Verify a store in a process of its own, and say which models it had loaded: none.

`python -m tests.faults.folding DATA_DIR SOCKET`: the verdicts of `memforestd verify`, which loads the whole
daemon, from the one module that folds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import msgspec

from daemon.config import read_config
from daemon.upkeep.verify import UserVerdict, verify
from events.log import LogReader
from memforest import AsyncClient
from projections.digests import MemoryDigest

# Whatever could ask a model, or answer in its place.
MODELS = (
    "daemon.building.engine",
    "daemon.building.worker",
    "daemon.chat",
    "daemon.models.client",
    "daemon.models.embed",
    "daemon.models.endpoint",
    "daemon.models.language_models",
    "daemon.offline",
    "httpx",
    "openai",
)


async def fold(folder: Path, socket: Path) -> list[UserVerdict]:
    """Every user of the store, folded from nothing and compared with the daemon on the socket."""
    parameters = read_config(None, os.environ).memory_parameters
    log = await LogReader.open_to_read(folder / "events.db")
    try:
        async with AsyncClient(socket) as client:

            async def ask(user_id: str) -> MemoryDigest:
                return MemoryDigest(**await client.request("digest", {"user_id": user_id}))

            return await verify(log, parameters, ask)
    finally:
        await log.close()


if __name__ == "__main__":
    verdicts = anyio.run(fold, Path(sys.argv[1]), Path(sys.argv[2]))
    loaded = sorted(name for name in sys.modules if name.startswith(MODELS))
    sys.stdout.buffer.write(msgspec.json.encode({"users": verdicts, "models": loaded}))
