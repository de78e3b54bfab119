"""Which daemons a command names."""

from __future__ import annotations

from pathlib import Path

import pytest

from memforest.bench.daemons import Daemon, check_chat_models, check_models, read_sockets
from memforest.errors import InvalidInput, Unavailable
from tests.memforest.fake_daemon import FakeDaemon


def test_one_daemon_needs_no_name() -> None:
    assert read_sockets(["/run/a.sock"]) == (Daemon("", Path("/run/a.sock")),)


def test_several_daemons_have_a_name_each() -> None:
    named = read_sockets(["gpt=/run/a.sock", "qwen=/run/b.sock"])

    assert named == (Daemon("gpt", Path("/run/a.sock")), Daemon("qwen", Path("/run/b.sock")))


def test_a_path_with_an_equals_sign_that_exists_is_no_name(tmp_path: Path) -> None:
    path = tmp_path / "a=b.sock"
    path.touch()

    assert read_sockets([str(path)]) == (Daemon("", path),)


@pytest.mark.parametrize("given", [["/a", "/b"], ["x=/a", "/b"], ["x=/a", "x=/b"]])
def test_daemons_that_could_not_be_told_apart_are_refused(given: list[str]) -> None:
    with pytest.raises(InvalidInput, match="NAME=PATH"):
        read_sockets(given)


@pytest.mark.parametrize("given", [["/a"], ["gpt=/a"], ["gpt=/a", "qwen=/b", "other=/c"]])
def test_models_without_a_daemon_each_are_refused_with_what_to_do(given: list[str]) -> None:
    with pytest.raises(InvalidInput, match="--socket gpt=PATH --socket qwen=PATH"):
        check_models(read_sockets(given), ["gpt", "qwen"])


def test_what_needs_a_chat_model_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "d.sock") as daemon:
        daemon.answers["status"] = lambda _: {
            "models": {"language_model": "rules", "embedder": "none", "chat": None}
        }
        with pytest.raises(Unavailable, match="which --mode deep needs"):
            check_chat_models([Daemon("", daemon.path)], "--mode deep")
