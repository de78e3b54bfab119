"""`doctor`: each usual mistake is found and has its mend, and looking changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.config import Bus, Config, Data, Socket
from daemon.disk import MIB, Ballast
from daemon.upkeep.doctor import create_stream, examine, examine_log
from daemon.upkeep.findings import Finding
from events.log import EventLog
from tests.builders import ManualClock, a_batch, a_dead_letter, a_forgetting, a_turn
from tests.bus_in_use import unattended_server
from tests.stored import damage


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


async def looked_at(store: Path) -> tuple[list[Finding], list[tuple[int, int]]]:
    progress: list[tuple[int, int]] = []
    findings = await examine_log(a_config(store), lambda done, total: progress.append((done, total)))
    return findings, progress


async def test_a_deep_look_at_a_sound_log_says_how_many_events_it_checked(store: Path) -> None:
    findings, progress = await looked_at(store)

    assert [(finding.level, finding.sentence.split(" match")[0]) for finding in findings] == [
        ("ok", "all 200 events")
    ]
    assert progress[-1] == (200, 200)


async def test_a_deep_look_names_every_damaged_event_with_its_mend_and_tells_none_of_its_words(
    store: Path,
) -> None:
    path = store / "events.db"
    damage(path, "UPDATE events SET happened_at = 1 WHERE seq IN (3, 100)")
    damage(path, "UPDATE words SET text = CAST('Xylophon' AS BLOB) WHERE seq = 50 AND n = 0")
    damage(path, "DELETE FROM events WHERE seq BETWEEN 150 AND 152")
    findings, _ = await looked_at(store)

    assert [finding.sentence for finding in findings] == [
        "the event at seq 3 (user_seq 3) does not match its chain",
        "the event at seq 50 (user_seq 50) has words that do not match its commitment",
        "the event at seq 100 (user_seq 100) does not match its chain",
        "each event from seq 150 to 152 is missing",
        "the running hash over all events does not match",
    ]
    assert all(finding.level == "error" and "restore" in finding.mend for finding in findings)
    assert "Xylophon" not in str(findings)


async def test_a_deep_look_at_a_file_that_is_no_store_is_an_error_and_not_a_crash(store: Path) -> None:
    (store / "events.db").write_bytes(b"\xff" * 8192)
    findings, progress = await looked_at(store)

    assert [finding.level for finding in findings] == ["error"]
    assert progress == []


async def test_a_daemon_may_write_while_the_log_is_looked_at(store: Path, clock: ManualClock) -> None:
    log = await EventLog.open(store / "events.db", clock)
    added: list[int] = []

    async def look() -> list[Finding]:
        return await examine_log(a_config(store), lambda done, total: added.append(total))

    findings = await look()
    await log.append_event(a_turn(turn_id="one more"))
    again = await look()
    await log.close()

    assert [finding.level for finding in (*findings, *again)] == ["ok", "ok"]
    assert added[-1] == 201


async def test_ballast_write_ahead_log_schema_and_what_waits_are_told(store: Path, clock: ManualClock) -> None:
    before = await found(a_config(store))
    Ballast(store / "ballast", 16 * MIB).make()
    log = await EventLog.open(store / "events.db", clock)
    await log.append(a_batch(a_turn(turn_id="again"), a_forgetting(), letters=(a_dead_letter(session_id="s2"),)))
    (store / "events.db.before-1").touch()
    after = await found(a_config(store))
    await log.close()
    none = await found(replace(a_config(store), data=Data(str(store), ballast_mb=0)))

    assert (before["ballast"].level, after["ballast"].level, none["ballast"].level) == ("warning", "ok", "warning")
    assert before["schema"].sentence.startswith("version ")
    assert (after["write-ahead log"].level, after["copy"].level) == ("ok", "warning")
    assert not {"dead letters", "forgetting", "copy"} & before.keys()
    assert after["dead letters"].sentence == "1 could not be decoded"
    assert after["forgetting"].sentence == "1 forgotten and not erased yet"


async def test_less_room_than_ingest_needs_is_an_error(store: Path) -> None:
    config = replace(a_config(store), data=Data(str(store), free_min_mb=1 << 20))

    assert (await found(config))["disk"].level == "error"


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
    assert made == "stream MEMFOREST was created, and so is the bucket MEMFOREST_TOMBSTONES"
    assert again == "stream MEMFOREST is there, and so is the bucket MEMFOREST_TOMBSTONES"
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
