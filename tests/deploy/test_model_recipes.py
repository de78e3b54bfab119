"""deploy/MODELS.md against the code: every table of a recipe is a configuration that the daemon starts with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daemon.config import read_config

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "MODELS.md").read_text()
RECIPES = {
    section.partition("\n")[0]: "\n".join(re.findall(r"^```toml\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    for section in TEXT.split("\n## ")[1:]
}
SERVERS = ["OpenAI", "vLLM with Qwen3", "Ollama", "llama.cpp", "LM Studio"]


@pytest.mark.parametrize("server", SERVERS)
def test_the_table_of_a_recipe_switches_both_models_on(server: str, tmp_path: Path) -> None:
    path = tmp_path / "memforest.toml"
    path.write_text(RECIPES[server])
    config = read_config(path, {})

    assert config.models.asks_endpoint
    assert (config.models.embedder, config.models.embed_model != "") == ("endpoint", True)
    assert config.models.chat_url.endswith("/v1")


def test_every_recipe_has_a_server_and_the_readmes_lead_to_it() -> None:
    assert [name for name, table in RECIPES.items() if table] == SERVERS
    assert "(deploy/MODELS.md)" in (ROOT / "README.md").read_text()
    assert "(MODELS.md)" in (ROOT / "deploy" / "README.md").read_text()
