"""The files of deploy/ against what they name and against each other; no image is built and no unit started."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from daemon.config import config_keys
from tests.deploy.server_with_rights import CONFIGURATION, DEPLOY, USERS

ROOT = DEPLOY.parent
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = (DEPLOY / "compose.yaml").read_text()
README = (DEPLOY / "README.md").read_text()
PASSWORDS = {f"NATS_{user.upper()}_PASSWORD" for user in USERS}
KEYS = {"MEMFOREST_" + name.upper().replace(".", "_") for name, _ in config_keys()}


def unit() -> RawConfigParser:
    """The systemd unit; of a key that stands twice the last."""
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    parser.read(DEPLOY / "memforest.service")
    return parser


def copied() -> list[str]:
    """What the image's build copies out of the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, flags=re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def is_sent(path: str) -> bool:
    """Whether the ignore file lets a path into the build; the last pattern that matches decides."""
    sent = True
    for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        parents = [path, *map(str, Path(path).parents)]
        if any(fnmatch.fnmatch(parent, pattern.removeprefix("**/")) for parent in parents if parent != "."):
            sent = line.startswith("!")
    return sent


def test_the_image_is_built_from_files_that_exist_and_are_sent() -> None:
    assert {"pyproject.toml", "daemon", "memforest", "deploy/memforestd", "requirements.lock"} <= set(copied())
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert [source for source in copied() if not is_sent(source)] == []


@pytest.mark.parametrize("path", [".git", "deploy/memforest.env", "memforest-data", "tests", "memforest.toml"])
def test_nothing_else_is_sent_to_the_build(path: str) -> None:
    assert not is_sent(path)


def test_the_image_has_all_that_the_wheel_is_made_of() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    packages = re.search(r"^packages = \[(.+)\]$", settings, flags=re.MULTILINE)
    scripts = re.search(r"shared-scripts\]\n\"(.+)\" =", settings)
    assert packages is not None
    assert scripts is not None

    needed = {*re.findall(r'"(\w+)"', packages[1]), scripts[1], "README.md", "LICENSE", "pyproject.toml"}

    assert needed <= set(copied())


def test_the_image_runs_as_nobody_in_particular_and_ends_like_the_unit() -> None:
    stages = CONTAINERFILE.split("\nFROM ")
    service = unit()["Service"]

    assert "\nUSER memforest\n" in stages[-1]
    assert "\nSTOPSIGNAL SIGTERM\n" in stages[-1]
    assert "ulimit -c 0 && exec memforestd" in stages[-1]
    assert re.findall(r"stop_grace_period: (\d+)s", COMPOSE) == [service["TimeoutStopSec"]]


def test_variables_of_the_container_files_are_keys_or_passwords_of_the_server() -> None:
    set_here = set(re.findall(r"\b(MEMFOREST_[A-Z_]+)[=:]", CONTAINERFILE + COMPOSE))
    asked_for = set(re.findall(r"\$\{([A-Z_]+)[:}]", COMPOSE))
    of_the_server = set(re.findall(r"password: \$(\w+)", CONFIGURATION.read_text()))

    assert set_here <= KEYS
    assert of_the_server == PASSWORDS
    assert asked_for <= of_the_server
    assert [name for name in sorted(PASSWORDS) if name not in README] == []


def test_build_arguments_are_used_and_documented() -> None:
    arguments = set(re.findall(r"^ARG (\w+)", CONTAINERFILE, flags=re.MULTILINE))

    assert {name for name in arguments if f"${{{name}}}" not in CONTAINERFILE} == set()
    assert {name for name in arguments if f"`{name}`" not in README} == set()


def test_compose_mounts_and_builds_what_exists() -> None:
    mounted = re.findall(r"- (\./[^:\s]+):", COMPOSE)
    (context,) = re.findall(r"context: (\S+)", COMPOSE)
    (dockerfile,) = re.findall(r"dockerfile: (\S+)", COMPOSE)

    assert mounted == ["./nats/memforest.conf"]
    assert (DEPLOY / mounted[0]).is_file()
    assert (DEPLOY / context / dockerfile).resolve() == DEPLOY / "Containerfile"


def test_the_unit_keeps_what_people_said_to_the_daemon_and_restarts_it_when_that_helps() -> None:
    wanted = {
        "Type": "notify", "WatchdogSec": "30", "TimeoutStopSec": "45", "KillMode": "mixed",
        "Restart": "on-failure", "RestartPreventExitStatus": "65 78", "StateDirectory": "memforest",
        "StateDirectoryMode": "0700", "RuntimeDirectoryMode": "0700", "UMask": "0077", "LimitCORE": "0",
        "ProtectSystem": "strict", "NoNewPrivileges": "yes",
    }  # fmt: skip
    service = unit()["Service"]

    assert {name: service.get(name) for name in wanted} == wanted


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "memforest.service").read_text()
    installed = "ExecStart=/usr/bin/memforestd "
    assert installed in text
    file = tmp_path / "memforest.service"
    # It insists that the program is there.
    file.write_text(text.replace(installed, "ExecStart=/bin/true "))

    ended = subprocess.run(
        ["systemd-analyze", "verify", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )

    assert (ended.returncode, ended.stderr) == (0, "")
