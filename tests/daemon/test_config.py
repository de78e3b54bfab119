"""The configuration: every key by file and by environment, and a sentence that names what is wrong."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemon.cli import main
from daemon.command_line import EX_CONFIG
from daemon.config import (
    Config,
    config_keys,
    effective_values,
    hide_password,
    parse_mode,
    parse_zone,
    read_config,
)
from daemon.config_models import AGPR_BY_EMBEDDER
from daemon.config_values import ConfigInvalid
from daemon.models.prices import Price
from projections.recall.agpr import NO_EMBEDDER, PAPER, AgprParameters

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "memforest.toml"

# A value for each key that differs from its default and is allowed.
OTHERS: dict[str, object] = {
    "data.dir": "/elsewhere",
    "data.ballast_mb": 0,
    "data.free_min_mb": 1,
    "data.derived_max_mb": 64,
    "data.memories_mb": 16,
    "bus.url": "nats://elsewhere:4222",
    "bus.stream": "OTHER_1-a",
    "bus.embedded": True,
    "bus.credentials": "/a.creds",
    "bus.decoder": "openai",
    "bus.zone": "Europe/Berlin",
    "bus.reopen_forgotten": True,
    "socket.path": "/run/a.sock",
    "socket.mode": "0660",
    "metrics.listen": "127.0.0.1:9464",
    "models.concurrency": 4,
    "models.embedder": "static",
    "models.chat_json": "json_object",
    "models.timeout_s": 30.5,
    "models.tokens_per_day": 2_000_000,
    "models.tokens_per_day_user": 50_000,
    "log.level": "debug",
    "log.format": "json",
    "memtree.preset": "paper",
    "memtree.chunk_turns": 4,
    "memtree.branching": 5,
    "memtree.concatenation_max": 0,
    "memtree.scene_facts_max": 30,
    "memtree.second_scene": False,
    "memtree.judge": True,
    "memtree.idle_s": 5.5,
    "memtree.refresh_age_s": 60.0,
    "eventtree.preset": "paper",
    "eventtree.alpha": 0.1,
    "eventtree.beta": 0.5,
    "eventtree.window": 3,
    "eventtree.eta": 0.5,
    "eventtree.ratio": 0.3,
    "eventtree.member_cap": 4,
    "eventtree.time_bonus": 0.0,
    "eventtree.online": False,
    "eventtree.unit_cap": 20,
    "eventtree.reassign": 0,
    "eventtree.overgrown": 2.0,
    "eventtree.slack": 0.1,
    "eventtree.min_age_s": 60.0,
    "eventtree.never_merged": "plan, event",
    "agpr.preset": "paper",
    "agpr.candidates_per_answer": 2,
    "agpr.anchor_share": 0.5,
    "agpr.time_unit": "days",
    "agpr.gamma": 0.5,
    "agpr.smoothing": 0.0,
    "agpr.cosine_weight": 0.5,
    "agpr.session_weight": 0.25,
    "agpr.entity_weight": 0.1,
    "search.map_from_mb": 64,
    "search.graph_from_nodes": 200_000,
    "query.calls_max": 8,
    "query.calls_limit": 32,
    "query.model_tokens_max": 20_000,
    "query.model_tokens_limit": 100_000,
    "query.timeout_s": 5.0,
    "query.timeout_limit_s": 60.0,
    "query.answer_context_tokens": 3_000,
}
# The key that switches a chat model on, by its being set.
SWITCH = "models.chat_model"
# Keys of which one needs another: of an embedder at an endpoint, of a chat model there, and of either.
OF_AN_EMBEDDER: dict[str, object] = {
    "models.embed_url": "http://127.0.0.1:8080/v1",
    "models.embed_model": "bge-m3",
    "models.embed_dimensions": 512,
    "models.embed_api_key": "sk-Xylophon",
}
OF_A_CHAT_MODEL: dict[str, object] = {
    "models.chat_url": "http://127.0.0.1:8080/v1",
    "models.chat_extra_body": '{"seed": 7}',
}
OF_EITHER: dict[str, object] = {"models.api_key": "sk-Xylophon"}
ENDPOINT = {"MEMFOREST_MODELS_EMBEDDER": "endpoint", "MEMFOREST_MODELS_EMBED_MODEL": "some"}
CHAT = {"MEMFOREST_MODELS_CHAT_MODEL": "gpt-4.1-mini"}


def value_of(config: Config, name: str) -> object:
    section, key = name.split(".")
    return getattr(getattr(config, section), key)


def variable(name: str) -> str:
    return "MEMFOREST_" + name.replace(".", "_", 1).upper()


def as_toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def read_text(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Config:
    path = tmp_path / "memforest.toml"
    path.write_text(text, encoding="utf-8")
    return read_config(path, environ or {})


def refusal(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigInvalid) as raised:
        read_text(tmp_path, text, environ)
    return str(raised.value)


def test_these_tests_know_every_key() -> None:
    assert {name for name, _ in config_keys()} == {
        *OTHERS,
        *OF_AN_EMBEDDER,
        *OF_A_CHAT_MODEL,
        *OF_EITHER,
        SWITCH,
    }


def test_there_are_at_most_40_operational_keys() -> None:
    operational = [name for name, _ in config_keys() if name.split(".")[0] not in ("memtree", "eventtree", "agpr")]

    assert len(operational) <= 40


@pytest.mark.parametrize("name", OTHERS)
def test_each_key_is_read_from_the_file_and_from_the_environment_which_wins(tmp_path: Path, name: str) -> None:
    section, key = name.split(".")
    default, other = dict(config_keys())[name], OTHERS[name]
    line = "" if default is None else f"{key} = {as_toml(default)}"  # None is what is left out
    by_file = read_text(tmp_path, f"[{section}]\n{key} = {as_toml(other)}")
    by_environment = read_config(None, {variable(name): str(other)})
    both = read_text(tmp_path, f"[{section}]\n{line}", {variable(name): str(other)})

    assert value_of(Config(), name) == default != other
    assert [value_of(config, name) for config in (by_file, by_environment, both)] == [other, other, other]


@pytest.mark.parametrize("name", sorted(OF_AN_EMBEDDER | OF_EITHER))
def test_keys_of_an_endpoint_are_read_when_one_is_chosen_and_refused_otherwise(tmp_path: Path, name: str) -> None:
    """Nothing is sent anywhere because a URL or a key is set somewhere."""
    other = (OF_AN_EMBEDDER | OF_EITHER)[name]
    chosen = read_config(None, {**ENDPOINT, variable(name): str(other)})
    sentence = refusal(tmp_path, environ={variable(name): str(other)})

    assert value_of(chosen, name) == other
    assert name in sentence
    assert 'models.embedder = "endpoint"' in sentence
    assert "Xylophon" not in sentence


@pytest.mark.parametrize("name", sorted(OF_A_CHAT_MODEL | OF_EITHER))
def test_keys_of_a_chat_model_are_read_when_one_is_named_and_refused_otherwise(tmp_path: Path, name: str) -> None:
    other = (OF_A_CHAT_MODEL | OF_EITHER)[name]
    chosen = read_config(None, {**CHAT, variable(name): str(other)})
    sentence = refusal(tmp_path, environ={variable(name): str(other)})

    assert value_of(chosen, name) == other
    assert name in sentence
    assert SWITCH in sentence
    assert "Xylophon" not in sentence


@pytest.mark.parametrize("name", sorted(OF_AN_EMBEDDER))
def test_a_chat_model_sends_nothing_to_an_embedder_s_endpoint(tmp_path: Path, name: str) -> None:
    assert name in refusal(tmp_path, environ={**CHAT, variable(name): str(OF_AN_EMBEDDER[name])})
    assert read_config(None, CHAT).models.embedder == "hashing"


def test_an_embedder_s_endpoint_leaves_reading_and_writing_to_the_model_here() -> None:
    assert not read_config(None, ENDPOINT).models.asks_endpoint
    assert not Config().models.asks_endpoint
    assert read_config(None, CHAT).models.asks_endpoint


def test_the_embedder_s_endpoint_has_the_chat_model_s_key_unless_it_has_its_own() -> None:
    both = {**ENDPOINT, **CHAT, "MEMFOREST_MODELS_API_KEY": "sk-1"}
    own = {**both, "MEMFOREST_MODELS_EMBED_API_KEY": "sk-2"}

    assert read_config(None, both).models.embed_key == "sk-1"
    assert read_config(None, own).models.embed_key == "sk-2"
    assert read_config(None, own).models.api_key == "sk-1"


def test_what_an_endpoint_needs_comes_from_openai_s_variables_when_it_is_not_set() -> None:
    environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    neither = read_config(None, ENDPOINT).models
    theirs = read_config(None, {**environ, **ENDPOINT}).models
    ours = read_config(
        None,
        {**environ, **ENDPOINT, "MEMFOREST_MODELS_API_KEY": "sk-2", "MEMFOREST_MODELS_EMBED_URL": "https://host"},
    ).models
    unused = read_config(None, environ).models

    assert (neither.api_key, neither.embed_url) == ("", "https://api.openai.com/v1")
    assert (theirs.api_key, theirs.embed_url, theirs.chat_url) == ("sk-1", "http://127.0.0.1:1/v1", "")
    assert (ours.api_key, ours.embed_url) == ("sk-2", "https://host")
    assert (unused.api_key, unused.embed_url, unused.chat_url) == ("", "", "")


def test_a_chat_model_is_asked_where_openai_s_variables_say_unless_its_url_is_set() -> None:
    environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    neither = read_config(None, CHAT).models
    theirs = read_config(None, {**environ, **CHAT}).models
    ours = read_config(None, {**environ, **CHAT, "MEMFOREST_MODELS_CHAT_URL": "https://host"}).models

    assert (neither.api_key, neither.chat_url) == ("", "https://api.openai.com/v1")
    assert (theirs.api_key, theirs.chat_url, theirs.embed_url) == ("sk-1", "http://127.0.0.1:1/v1", "")
    assert (ours.api_key, ours.chat_url) == ("sk-1", "https://host")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"MEMFOREST_MODELS_EMBEDDER": "endpoint"}, "models.embed_model"),
        ({**ENDPOINT, "MEMFOREST_MODELS_EMBED_URL": "ftp://host"}, "models.embed_url"),
        ({**ENDPOINT, "MEMFOREST_MODELS_EMBED_URL": "host:8080"}, "models.embed_url"),
        ({**ENDPOINT, "MEMFOREST_MODELS_EMBED_DIMENSIONS": "-1"}, "models.embed_dimensions"),
        ({**ENDPOINT, "MEMFOREST_MODELS_EMBED_DIMENSIONS": "8193"}, "models.embed_dimensions"),
        ({**CHAT, "MEMFOREST_MODELS_CHAT_URL": "host:8080"}, "models.chat_url"),
        ({**CHAT, "MEMFOREST_MODELS_CHAT_URL": "http://[host"}, "models.chat_url"),
        ({**CHAT, "OPENAI_BASE_URL": "ftp://host"}, "models.chat_url"),
        ({**CHAT, "MEMFOREST_MODELS_CHAT_URL": "http://h/v1/chat/completions"}, "leave /chat/completions out"),
        ({**ENDPOINT, "MEMFOREST_MODELS_EMBED_URL": "http://h/v1/embeddings/"}, "leave /embeddings out"),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_refused_by_the_key(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named):
        read_config(None, environ)


def test_further_fields_of_a_request_are_an_object_of_json() -> None:
    text = '{"chat_template_kwargs": {"enable_thinking": false}, "temperature": 0}'
    found = read_config(None, {**CHAT, "MEMFOREST_MODELS_CHAT_EXTRA_BODY": text}).models

    assert found.extra_body == {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 0}
    assert Config().models.extra_body == {}


@pytest.mark.parametrize(
    "text",
    [
        "seed=7",
        "[1]",
        "7",
        "{",
        "[" * 100_000,
        *(f'{{"{ours}": null}}' for ours in ("messages", "model", "n", "response_format", "stream")),
    ],
)
def test_fields_of_a_request_that_are_no_object_or_the_daemon_s_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"models\.chat_extra_body"):
        read_config(None, {**CHAT, "MEMFOREST_MODELS_CHAT_EXTRA_BODY": text})


def test_prices_are_read_for_each_model(tmp_path: Path) -> None:
    text = """
        [[prices]]
        model = "gpt-4.1-mini"
        prompt = 0.4
        cached = 0.1
        completion = 1.6
        [[prices]]
        model = "qwen3"
        prompt = 1
        completion = 0
    """
    prices = read_text(tmp_path, text).prices

    assert prices == (
        Price("gpt-4.1-mini", prompt=0.4, cached=0.1, completion=1.6),
        Price("qwen3", prompt=1.0, cached=None, completion=0.0),
    )
    assert Config().prices == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prices = 7", "[[prices]]"),
        ("prices = [7]", "[[prices]]"),
        ("[prices]\nmodel = 'm'", "[[prices]]"),
        ("[[prices]]\nprompt = 1", "prices.model"),
        ("[[prices]]\nmodel = ''", "prices.model"),
        ("[[prices]]\nmodel = 7", "prices.model"),
        ("[[prices]]\nmodel = 'm'\noutput = 1", "prices.output"),
        *(
            (
                "[[prices]]\nmodel = 'm'\n"
                + "".join(f"{other} = 1\n" for other in ("prompt", "completion") if other != key)
                + f"{key} = {value}",
                f"prices.{key}",
            )
            for key in ("prompt", "cached", "completion")
            for value in ("-0.1", "nan", "inf", "'1'", "true", "1e7", "1" + "0" * 400)
        ),
        ("[[prices]]\nmodel = 'm'\ncompletion = 1", "prices.prompt"),
        ("[[prices]]\nmodel = 'm'\nprompt = 1", "prices.completion"),
        ("[[prices]]\nmodel = 'm'\nprompt = 1\ncompletion = 1\n" * 2, "two prices"),
        ("[[prices]]\nmodel = 'm'\n" * 257, "at most 256"),
    ],
)
def test_a_price_that_is_none_is_refused_by_its_key(tmp_path: Path, text: str, named: str) -> None:
    assert named in refusal(tmp_path, text)


@pytest.mark.parametrize(("embedder", "base"), AGPR_BY_EMBEDDER.items())
def test_ranking_is_the_embedder_s_but_for_what_is_set(embedder: str, base: AgprParameters) -> None:
    environ = {**ENDPOINT, "MEMFOREST_MODELS_EMBEDDER": embedder}
    if embedder != "endpoint":
        del environ["MEMFOREST_MODELS_EMBED_MODEL"]
    unset = read_config(None, environ).agpr_parameters
    one = read_config(None, {**environ, "MEMFOREST_AGPR_GAMMA": "0.125"}).agpr_parameters
    paper = read_config(
        None, {**environ, "MEMFOREST_AGPR_GAMMA": "0.125", "MEMFOREST_AGPR_PRESET": "paper"}
    ).agpr_parameters

    assert unset == base
    assert one == replace(base, gamma=0.125)
    assert paper == PAPER


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[surprise]\na = 1", "surprise"),
        ("[bus]\nsurprise = 1", "bus.surprise"),
        ("[Bus]\nurl = 'x'", "Bus"),
        ("bus = 'nats://x'", "[bus]"),
        ("[bus]\nurl = 5", "bus.url"),
        ("[bus]\nembedded = 'yes'", "bus.embedded"),
        ("[bus]\nembedded = 1", "bus.embedded"),
        ("[models]\nconcurrency = true", "models.concurrency"),
        ("[models]\nconcurrency = 4.0", "models.concurrency"),
        ("[memtree]\nidle_s = '30'", "memtree.idle_s"),
        ("[socket]\nmode = 0o600", "socket.mode"),
        ("[bus\n", "TOML"),
    ],
)
def test_what_is_no_key_or_of_another_type_names_itself(tmp_path: Path, text: str, named: str) -> None:
    assert named in refusal(tmp_path, text)


def test_a_whole_number_is_good_for_a_number(tmp_path: Path) -> None:
    idle_s = read_text(tmp_path, "[memtree]\nidle_s = 30").memtree.idle_s

    assert (idle_s, type(idle_s)) == (30.0, float)


@pytest.mark.parametrize(
    "name", ["MEMFOREST_SURPRISE", "MEMFOREST_BUS_SURPRISE", "MEMFOREST_", "MEMFOREST_BUS", "MEMFOREST_BUSURL"]
)
def test_a_variable_with_our_prefix_that_is_no_key_names_itself(name: str) -> None:
    with pytest.raises(ConfigInvalid, match=name):
        read_config(None, {name: "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bus.embedded", "yes"),
        ("models.concurrency", "four"),
        ("models.concurrency", "4.0"),
        ("memtree.idle_s", "soon"),
    ],
)
def test_a_variable_of_another_type_names_its_key_and_not_its_value(name: str, text: str) -> None:
    with pytest.raises(ConfigInvalid, match=name) as raised:
        read_config(None, {variable(name): text})

    assert text not in str(raised.value).replace("true or false", "").split()


@pytest.mark.parametrize("text", ["true", "True", "1"])
def test_yes_and_no_are_true_and_false_or_1_and_0(text: str) -> None:
    assert read_config(None, {"MEMFOREST_BUS_EMBEDDED": text}).bus.embedded is True
    assert read_config(None, {"MEMFOREST_BUS_EMBEDDED": "0"}).bus.embedded is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("models.concurrency", value) for value in (0, -1, 4097)),
        *(("models.embedder", value) for value in ("", "Hashing")),
        *(("models.chat_json", value) for value in ("", "json", "JSON_SCHEMA")),
        *(("models.timeout_s", value) for value in (0, 0.5, 3601, "nan", "inf")),
        *(("models.tokens_per_day", value) for value in (-1, 1 << 63)),
        *(("models.tokens_per_day_user", value) for value in (-1, 1 << 63)),
        *(("log.level", value) for value in ("", "INFO", "trace")),
        ("log.format", "xml"),
        *(("memtree.chunk_turns", value) for value in (0, 65)),
        *(("memtree.branching", value) for value in (0, 2)),
        ("memtree.concatenation_max", -1),
        *(("memtree.scene_facts_max", value) for value in (1, 10_001)),
        ("memtree.preset", "papers"),
        *(("memtree.idle_s", value) for value in (0, -1, "nan")),
        *(("memtree.refresh_age_s", value) for value in (0, "nan")),
        ("eventtree.preset", "best"),
        *(("eventtree.alpha", value) for value in (0, 1.5, "nan")),
        *(("eventtree.beta", value) for value in (-0.1, 1.1)),
        ("eventtree.window", -1),
        ("eventtree.eta", 2),
        *(("eventtree.ratio", value) for value in (-0.1, 1, "nan")),
        *(("eventtree.time_bonus", value) for value in (-1, "inf")),
        ("agpr.candidates_per_answer", 0),
        *(("agpr.anchor_share", value) for value in (0, 1.1)),
        ("agpr.time_unit", "years"),
        *(("agpr.gamma", value) for value in (-0.1, 1.1, "nan")),
        *(("agpr.smoothing", value) for value in (-0.1, "inf")),
        ("agpr.cosine_weight", 1.1),
        ("agpr.session_weight", -0.1),
        ("agpr.entity_weight", -0.1),
        *(("data.dir", value) for value in ("",)),
        *(("bus.stream", value) for value in ("", "A.B", "A B", "*")),
        *(("bus.zone", value) for value in ("", "Nowhere/At-all", "../../etc/passwd", "/etc/localtime")),
        *(("metrics.listen", value) for value in ("0.0.0.0:9464", "9464", "example.org:1", "127.0.0.1:65536")),
        *(("socket.mode", value) for value in ("", "600x", "0066", "1777", "-600", "0400")),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigInvalid, match=name.split(".")[1]):
        read_config(None, {variable(name): str(value)})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"nowhere\.toml"):
        read_config(tmp_path / "nowhere.toml", {})
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[data]\ndir = '/home/J\xf6rg'")
    with pytest.raises(ConfigInvalid, match=r"latin\.toml"):
        read_config(latin, {})


def test_a_file_in_utf_8_is_read_whatever_the_locale_is(tmp_path: Path) -> None:
    assert read_text(tmp_path, '[data]\ndir = "/home/Jörg"').data_dir == Path("/home/Jörg")


def test_the_example_file_shows_every_key_with_its_default() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    shown = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and _is_key(line) else line for line in text.splitlines()
    )
    parsed: dict[str, dict[str, Any]] = tomllib.loads(shown)
    found = {f"{section}.{key}": value for section, keys in parsed.items() for key, value in keys.items()}

    # What a package installs elsewhere than a checkout does.
    places = {"data.dir": "/var/lib/memforest", "socket.path": "/run/memforest/memforest.sock"}
    assert found == effective_values(Config()) | places


def test_the_example_file_is_read_as_it_stands() -> None:
    config = read_config(EXAMPLE, {})

    differing = {name for name, default in config_keys() if value_of(config, name) != default}
    assert differing == {"data.dir", "socket.path"}


def _is_key(line: str) -> bool:
    name, sign, _ = line.removeprefix("# ").partition(" = ")
    return bool(sign) and name in {key.partition(".")[2] for key, _ in config_keys()}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://alice:Xylophon@host:4222", "nats://host:4222"),
        ("nats://Xylophon@host", "nats://host"),
        ("tls://alice:p@Xylophon@host", "tls://host"),
        ("nats://alice:Xylophon://x@host", "nats://host"),
        # nats-py takes an address without a scheme, too.
        ("alice:Xylophon@host:4222", "host:4222"),
        ("host:4222", "host:4222"),
        ("", ""),
    ],
)
def test_what_stands_before_the_host_of_an_address_is_never_shown(url: str, shown: str) -> None:
    assert hide_password(url) == shown


def test_the_command_shows_every_key_and_no_password(tmp_path: Path) -> None:
    environ = {
        "MEMFOREST_BUS_URL": "nats://alice:Xylophon@host:4222",
        "MEMFOREST_MODELS_EMBEDDER": "endpoint",
        "MEMFOREST_MODELS_EMBED_MODEL": "bge-m3",
        "MEMFOREST_MODELS_EMBED_URL": "http://alice:Xylophon@host/v1",
        "MEMFOREST_MODELS_EMBED_API_KEY": "sk-Xylophon",
        "MEMFOREST_MODELS_CHAT_MODEL": "gpt-4.1-mini",
        "MEMFOREST_MODELS_CHAT_URL": "https://alice:Xylophon@host/v1?key=Xylophon",
        "MEMFOREST_MODELS_API_KEY": "sk-Xylophon",
        "MEMFOREST_AGPR_SMOOTHING": "0.125",
    }
    result = CliRunner().invoke(main, ["config", "--data", str(tmp_path)], env=environ)

    assert result.exit_code == 0
    assert [line.split(" = ")[0] for line in result.output.splitlines()] == [name for name, _ in config_keys()]
    assert 'bus.url = "nats://host:4222"' in result.output
    assert 'models.embed_url = "http://host/v1"' in result.output
    assert 'models.chat_url = "https://host/v1"' in result.output
    assert 'models.api_key = "(set)"' in result.output
    assert 'models.embed_api_key = "(set)"' in result.output
    assert f'data.dir = "{tmp_path}"' in result.output
    assert "Xylophon" not in result.output


def test_the_command_shows_how_answers_are_really_ranked(tmp_path: Path) -> None:
    arguments = ["config", "--json", "--data", str(tmp_path)]
    shown = json.loads(CliRunner().invoke(main, arguments, env={"MEMFOREST_AGPR_SMOOTHING": "0.125"}).output)
    static = json.loads(CliRunner().invoke(main, arguments, env={"MEMFOREST_MODELS_EMBEDDER": "static"}).output)

    assert (shown["agpr.smoothing"], shown["agpr.cosine_weight"]) == (0.125, NO_EMBEDDER.cosine_weight)
    assert static["agpr.cosine_weight"] == AGPR_BY_EMBEDDER["static"].cosine_weight > 0


def test_a_wrong_configuration_ends_a_command_with_78_and_a_sentence() -> None:
    result = CliRunner().invoke(main, ["config"], env={"MEMFOREST_BUS_SURPRISE": "1"})

    assert result.exit_code == EX_CONFIG
    assert "MEMFOREST_BUS_SURPRISE" in result.output
    assert "Traceback" not in result.output


def test_modes_are_octal() -> None:
    assert [oct(parse_mode(text)) for text in ("0600", "660", "0o666")] == ["0o600", "0o660", "0o666"]


def test_zones_are_those_of_the_iana() -> None:
    assert str(parse_zone("Asia/Kathmandu")) == "Asia/Kathmandu"


def test_an_empty_socket_path_is_in_the_data_directory() -> None:
    config = read_config(None, {"MEMFOREST_DATA_DIR": "~/forest"})

    assert config.socket_path == Path("~/forest/memforest.sock").expanduser()
    assert config.credentials_path is None
