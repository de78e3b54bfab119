"""Porter's stems: those of his paper by hand, and a vocabulary against Snowball's implementation of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import Stemmer

from memforest.bench.stemming import stem

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        *(("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre")),
        *(("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing")),
        *(("conflated", "conflat"), ("hopping", "hop"), ("falling", "fall"), ("filing", "file")),
        *(("happy", "happi"), ("sky", "sky"), ("relational", "relat"), ("conditional", "condit")),
        *(("vietnamization", "vietnam"), ("triplicate", "triplic"), ("hopeful", "hope"), ("goodness", "good")),
        *(("adjustment", "adjust"), ("adoption", "adopt"), ("probate", "probat"), ("rate", "rate")),
        *(("controll", "control"), ("roll", "roll"), ("paintings", "paint"), ("painting", "paint")),
        *(("as", "as"), ("2023", "2023"), ("北", "北"), ("c3po", "c3po")),
    ],
)
def test_stems_are_those_of_the_paper(word: str, stemmed: str) -> None:
    assert stem(word) == stemmed


def test_a_vocabulary_is_stemmed_as_snowball_does_it() -> None:
    text = "\n".join(
        (ROOT / name).read_text().lower() for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    )
    words = {word for word in re.findall(r"[a-z]{3,}", text) if not re.search(r"bly$|logy$", word)}
    oracle = Stemmer.Stemmer("porter")

    # Porter's later rules for -bli and -logi, and doubled letters as in "trekked", are not in Snowball's.
    assert len(words) > 1_000
    assert {word: stem(word) for word in words if not re.search(r"(hh|jj|kk|vv)(ed|ing)$", word)} == {
        word: oracle.stemWord(word) for word in words if not re.search(r"(hh|jj|kk|vv)(ed|ing)$", word)
    }
