"""`doctor`: each usual mistake is found and has its mend, and looking changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from daemon.bus import BusUnavailable
from daemon.config import Bus, Config, Data, Socket
from daemon.doctor import Finding, create_stream, examine
from daemon.embedded_bus import LOOPBACK, free_port
from events.log import EventLog
from tests.builders import ManualClock, a_turn
from tests.bus_in_use import unattended_server


def a_config(folder: Path, **bus: object) -> Config:
    """A configuration with an embedded bus, so that nothing is waited for."""
    return Config(data=Data(str(folder)), bus=replace(Bus(embedded=True), **bus))  # type: ignore[arg-type]


async def found(config: Config) -> dict[str, Finding]:
    return {finding.subject: finding for finding in await examine(config)}


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> Path:
    """A data directory with a store in it."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    log = await EventLog.open(folder / "events.db", clock)
    for number in range(200):
        await log.append_event(a_turn("x" * 200, turn_id=f"t{number}"))
    await log.close()
    return folder


async def test_a_fresh_set_up_is_fine_and_stays_as_it_is(tmp_path: Path) -> None:
    findings = await found(a_config(tmp_path / "data"))

    assert {finding.level for finding in findings.values()} <= {"ok", "warning"}
    assert findings["data.dir"].sentence.endswith("the daemon makes it")
    assert findings["store"].sentence == "no events yet"
    assert findings["bus"].level == "ok"
    assert not (tmp_path / "data").exists()


async def test_a_store_in_order_tells_how_many_events_it_has(store: Path) -> None:
    findings = await found(a_config(store))

    assert (findings["data.dir"].level, findings["store"].level) == ("ok", "ok")
    assert findings["store"].sentence.startswith("200 events")


async def test_a_directory_that_others_can_read_is_a_warning_with_its_mend(store: Path) -> None:
    os.chmod(store, 0o755)
    finding = (await found(a_config(store)))["data.dir"]

    assert (finding.level, finding.mend) == ("warning", f"chmod 700 {store}")


@pytest.mark.parametrize("at", [0, 4096 * 3])
async def test_a_damaged_store_is_an_error_and_not_a_crash(store: Path, at: int) -> None:
    path = store / "events.db"
    content = bytearray(path.read_bytes())
    content[at : at + 8192] = b"\xff" * 8192
    path.write_bytes(content)
    finding = (await found(a_config(store)))["store"]

    assert finding.level == "error"
    assert finding.mend


async def test_a_socket_path_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    long = replace(a_config(tmp_path), socket=Socket(path="/tmp/" + "x" * 120))
    nowhere = replace(a_config(tmp_path), socket=Socket(path="/nowhere/at/all/m.sock"))

    assert (await found(long))["socket.path"].level == "error"
    assert (await found(nowhere))["socket.path"].sentence == "/nowhere/at/all does not exist"


async def test_a_server_without_the_stream_is_told_how_to_get_it_and_then_has_it(tmp_path: Path) -> None:
    async with unattended_server(tmp_path / "nats") as url:
        config = a_config(tmp_path / "data", embedded=False, url=url)
        before = (await found(config))["bus"]
        made = await create_stream(config)
        again = await create_stream(config)
        after = (await found(config))["bus"]

    assert (before.level, before.mend) == ("error", "memforestd doctor --create-stream")
    assert (made, again) == ("stream MEMFOREST was created", "stream MEMFOREST is there")
    assert after.level == "ok"
    assert url.partition("@")[0].removeprefix("nats://") not in before.sentence + after.sentence, "its token"


async def test_a_server_that_is_not_there_is_an_error_that_shows_no_password(tmp_path: Path) -> None:
    url = f"nats://alice:Xylophon@{LOOPBACK}:{free_port()}"
    config = a_config(tmp_path / "data", embedded=False, url=url)
    findings: list[Finding] = []

    async def look() -> None:
        findings.append((await found(config))["bus"])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        with pytest.raises(BusUnavailable) as raised:
            await create_stream(config)

    assert (findings[0].level, findings[0].mend) == ("error", "start NATS, or set bus.url or bus.embedded")
    assert "Xylophon" not in findings[0].sentence + str(raised.value)
