"""Mode `auto`: which recall a question asks for, by rule and without a call. Pure.

A lookup is served best by the ranking of single memories; what goes through time, over a list or from one person
to another lies in many places, which trees hold together. A false guess costs some time and no answer: each mode
ranks all memories.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from projections.recall.confidence import Confidence
from projections.recall.sessions import asks_of_many
from projections.recall.time_question import TimeKind

# A question may be a whole page; what it asks for stands at its beginning.
LOOKED_AT_CHARS: Final = 1_000
# Nodes for each memory of an answer: with fewer each of them is weighed one by one in any mode.
SMALL_NODES_PER_MEMORY: Final = 3
# Below this a first recall is worth a second one with a model: 17 of 100 answerable questions of LoCoMo, 19 of its
# adversarial ones. `INSUFFICIENT_BELOW` is .288.
LOW_CONFIDENCE: Final = 0.4

# Of time these ask for one memory: when it was, or what was on a day.
LOOKED_UP_TIMES: Final = frozenset((TimeKind.WHEN, TimeKind.AT))


class Shape(StrEnum):
    """How memories are to be found: one by one, or through their trees."""

    SINGLE = "single"
    TREES = "trees"


class WhyMode(StrEnum):
    """Why `auto` chose a mode."""

    TIME = "time"  # an order or a stretch of time
    LIST = "list"  # all there is of something, or how many
    COMPARISON = "comparison"
    SEVERAL = "several"  # several people, or one thing by way of another
    PLAIN = "plain"  # none of these
    SMALL = "small"  # so few memories that each is weighed by itself
    UNSURE = "unsure"  # the first recall found little, and a model looks further
    NO_MODEL = "no_model"  # the same, and there is no model
    CAPPED = "capped"  # the same, and the caller's caps leave no room for a call


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the first recall goes by, and why."""

    shape: Shape
    why: WhyMode


@dataclass(frozen=True, slots=True)
class Means:
    """What a second look may take: whether there is a model, and whether the caller's caps allow a call."""

    has_model: bool
    may_call: bool


def choose_shape(question: str, *, time: TimeKind | None, named: int, nodes: int, k: int) -> Chosen:
    """How the first recall finds memories.

    `time`: what it asks of time, if anything; `named`: how many entities of the memory it names; `nodes`: how many
    memories there are, of which the answer has at most `k`.
    """
    if nodes <= k * SMALL_NODES_PER_MEMORY:
        return Chosen(Shape.SINGLE, WhyMode.SMALL)
    why = _read_why(question[:LOOKED_AT_CHARS], time, named)
    return Chosen(Shape.SINGLE if why is WhyMode.PLAIN else Shape.TREES, why)


def look_further(first: Confidence, means: Means) -> WhyMode | None:
    """Why a model looks further after the first recall (`UNSURE`), or would have; None when it was sure enough."""
    if not first.insufficient and first.value >= LOW_CONFIDENCE:
        return None
    if not means.has_model:
        return WhyMode.NO_MODEL
    return WhyMode.UNSURE if means.may_call else WhyMode.CAPPED


def _read_why(question: str, time: TimeKind | None, named: int) -> WhyMode:
    if time is not None and time not in LOOKED_UP_TIMES:
        return WhyMode.TIME
    folded = unicodedata.normalize("NFKC", question).casefold().replace("’", "'")
    if _any_of(WhyMode.COMPARISON).search(folded):
        return WhyMode.COMPARISON
    if _any_of(WhyMode.LIST).search(folded) or asks_of_many(question):
        return WhyMode.LIST
    joins = _JOINED.search(question) or (named > 1 and _any_of(WhyMode.SEVERAL).search(folded))
    return WhyMode.SEVERAL if joins or _HOPS.search(folded) else WhyMode.PLAIN


# Two names with "and" or "or" between them: capitals tell, in the alphabets that have them.
_NAME: Final = r"[^\W\d_a-zß-öø-ÿа-я][\w'’-]*"
_JOINED: Final = re.compile(rf"\b{_NAME} (?:and|or|&|und|oder|et|ou|y|e|o|en|of|i|и|или) {_NAME}")
# "Ann's sister's dog", "the friend who lives in Oslo", "der Ort, wo ihr Bruder arbeitet".
_HOPS: Final = re.compile(
    r"\b\w+'s (?:\w+ ){0,2}\w+'s\b"
    r"|\b(?:the|a|an|same|any|some)\b(?: \w+){1,3},? (?:who|whom|whose|where|which)\b"
    r"|\b(?:der|die|das|den|dem) \w+, (?:der|die|das|den|dem|deren|dessen|wo|in der|in dem|mit der|mit dem)\b"
    r"|\b(?:le|la|l'|les) ?\w+ (?:qui|dont|où|que)\b"
    r"|\b(?:el|la|los|las|il|lo|o|a) \w+,? (?:cuyo|cuya|donde|quien|que|che|cui|dove|onde)\b"
)

# Of each language its cues, as they stand in a case-folded question.
_CUES: Final = {
    WhyMode.COMPARISON: (
        # English
        r"\b(?:more|less|fewer|\w{3,}er) (?:\w+ ){0,4}than\b",
        r"\b(?:in common|compared? (?:to|with)|compare|versus|vs\.?|differen(?:t|ce|ces) (?:between|from)|both)\b",
        # German; Dutch
        r"\b(?:mehr|weniger|\w{3,}er) (?:\w+ ){0,4}als\b",
        r"\b(?:gemeinsam|beide[nrs]?|vergleich\w*|verglichen|unterschied\w*|unterscheide\w*)\b",
        r"\b(?:meer|minder|\w{3,}er) (?:\w+ ){0,4}dan\b|\bverschil\w*\b|\bvergelijk\w*\b|\bgemeen\b",
        # French, Spanish, Italian, Portuguese
        r"\b(?:plus|moins) (?:\w+ ){1,4}qu(?:e\b|')|\b(?:en commun|différences?|tou(?:s|tes) (?:les )?deux)\b",
        r"\b(?:más|menos) (?:\w+ ){0,4}que\b|\b(?:en común|diferencias?|ambos|ambas)\b",
        r"\b(?:più|meno) (?:\w+ ){0,4}(?:di|che)\b|\b(?:in comune|differenz[ae]|entramb[ie])\b",
        r"\b(?:mais|menos) (?:\w+ ){0,4}(?:do )?que\b|\b(?:em comum|diferenças?|ambos|ambas)\b",
        r"\bcompar(?:e[rz]?|é[es]?|a|ar|ado|ada|ación|ação)\b|\bconfront[ao]\w*\b",
        # Russian; Chinese, Japanese, Korean
        r"\bчем\b.*\?|\bобщего\b|\bразни(?:ца|цу|цы)\b|\bоба\b|\bобе\b|\bсравн\w*",
        r"比较|相比|区别|區別|不同|共同|[谁誰]更|哪个更|哪個更|比\w+更",
        r"より(?:も)?|違い|共通|両方|比べ|どちら",
        r"보다|차이|공통|비교|둘 다",
    ),
    WhyMode.LIST: (
        # English: "what books does", "which of the places were"; "is" and "class" are no plurals.
        (
            r"\b(?:what|which)(?: \w+){0,2} (?!(?:does|was|has|is|his|this|its)\b)\w+(?<![sui'])s "
            r"(?:do|does|did|has|have|are|were|is|was|can)\b"
        ),
        r"\bwhat (?:are|were) (?:all|some|the|\w+'s|his|her|their|my|your)\b",
        r"\b(?:list|how many|name all|all (?:the|of|his|her|their|my)|every|each of)\b",
        r"\b(?:kinds|types|sorts) of\b",
        # German; Dutch
        r"\b(?:was|wen|wem|wo|wohin|wer) (?:\w+ ){0,6}(?:alles|überall)\b|\b(?:liste|aufzählen|zähle|nenne)\b",
        r"\b(?:alle|allen|sämtliche[nr]?|wie ?viele)\b|\bwelche (?:\w+ )?\w+(?:en|er|ern|eln|s)\b",
        r"\b(?:hoeveel|lijst|opsomm\w*|noem)\b|\bwelke (?:\w+ )?\w+(?:en|s)\b",
        # French, Spanish, Italian, Portuguese: their words for "which" have a plural.
        r"\b(?:quels|quelles|combien de|liste[rz]?|énumèr\w+|tous (?:les|ses|mes)|toutes (?:les|ses|mes))\b",
        r"\b(?:cuáles|cuántos|cuántas|lista|enumera|todos (?:los|sus|mis)|todas (?:las|sus|mis))\b|\bqué \w+s\b",
        r"\b(?:quali|quanti|quante|elenca\w*|tutti (?:i|gli)|tutte le)\b",
        r"\b(?:quais|quantos|quantas|liste|todos os|todas as)\b|\bque \w+s \w+\?",
        # Russian; Chinese, Japanese, Korean
        r"\b(?:какие|каких|сколько|перечисли\w*|список|все|всех)\b",
        r"哪些|所有|全部|列出|列举|列舉|多少|几个|幾個|几次|幾次|有什么样的|都有",
        r"すべて|全部|全て|一覧|リスト|いくつ|何人|何回|何冊|何個|何種類",
        r"모든|모두|전부|목록|나열|몇 ?(?:개|명|번|권|가지)",
    ),
    WhyMode.SEVERAL: (
        # Where two entities of the memory are named, and something joins them.
        r"\b(?:and|or|und|oder|et|ou|y|e|o|en|of|i|и|или|with|mit|avec|con|com|met|с)\b|&",
        r"[和与與跟同及、とや]|[와과랑]\b|하고",
    ),
}


@cache
def _any_of(why: WhyMode) -> re.Pattern[str]:
    """The cues of all languages; compiled when a question first needs them."""
    return re.compile("|".join(_CUES[why]))
