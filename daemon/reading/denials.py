"""What a text denies, and whether another one that stands for it denies the same.

By rule, sentence by sentence: of "does not eat meat" the words behind the denial ("eat", "meat") are what is
denied, and another text denies it too when a denial stands near one of them, in whatever words: "never",
"without", "refuses", "unmarried". What another text does not speak of in such words at all is taken for denied as
soon as it denies anything: a good text must not be refused for a wording that no rule knows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Final

from daemon.offline.sentences import CJK, split_sentences, word_set
from daemon.offline.small_talk import FILLERS
from daemon.reading.numbers import normal

# What is denied is said in the first words behind the denial, or else in the last ones before it.
SCOPE_WORDS_MAX: Final = 3
# A clause is shorter, and what is none is read no further.
_REACH_CHARS: Final = 160
# Denials of one text that are looked for in another.
_DENIALS_MAX: Final = 200
# All but two letters of the shorter word are the same in two forms of it, and three at least.
_STEM_CHARS: Final = 3

_WORDS: Final = (
    "not(?! only| just)|no(?! problem| doubt)|never|none|nobody|nothing|nowhere|neither|nor|without"
    "|cannot(?! wait)|[a-z]{2,8}n't(?! wait)"
    "|nicht(?! nur)|kein(?:e[nmrs]?)?|nie|niemals|nichts|niemand(?:e[nm])?|ohne|weder|noch nie"
    "|ne|ni|pas|jamais|rien|aucune?|sans"
    "|nunca|nada|nadie|ningun[oa]?|ningún|sin|tampoco|não|nem|sem"
    "|non|senza|nessun[oa]?|né|niente"
    "|не|ни|нет|никогда|ничего|никто|без"
    "|niet|geen|nooit|inte|aldrig|ikke|ingen|không|değil|δεν|לא|لا|لم|لن|ليس"
)
# Not in "not bad", "almost", "but", "very", "future", "perhaps", "few".
_EAST: Final = (
    "(?<!差)不(?![过過错錯仅僅但断斷管論论少久])|[没沒無无]|未(?![来來])|非(?!常)"
    "|(?<!しれ)(?<![少危切])ない|ません|なかった|なし(?=[でに、。]|$)|ずに|않|없|(?<!\\S)[못안](?= )"
)
# As "unable to swim" for "can't swim": enough in a text that stands for others.
_SOFT: Final = (
    "unable|unwilling|unlike|dis(?:lik|trust|agree|approv)\\w*|avoid\\w*|stopped|quit|g[ai]ve[n]? up|giving up"
    "|lack\\w*|refus\\w*|fail\\w*|declin\\w*|reject\\w*|free of|free from|hates?|instead|rather than|against"
    "|closed|cancel\\w*|called off|locked out|miss(?:ed|es|ing)|lost|skip\\w*|single|alone|only|former\\w*|no-one"
    "|badly|poorly|un\\w+able|away|absent"
    "|impossible|illegal|forbidden|banned|abandon\\w*|den(?:y|ie[ds])|except\\w*|until|yet to|too \\w+ to"
    "|\\w{3,}less|\\w{2,}-free|teetotal\\w*|vegan\\w*|vegetarian\\w*"
    "|un(?:happ|eas|well|sure|safe|certain|fair|kind|finished|employed|paid|like)\\w*"
    "|verzicht\\w*|vermeide\\w*|meide\\w*|aufgehört|mangel\\w*|statt|\\w{4,}(?:frei|los)|nicht\\w{4,}|fehlt\\w*"
    "|gewechselt|schlecht|selten|abwesend|einzelkind|ledig|weigert|verweigert|abgelehnt|lehnt|geschlossen|abgesagt|veg[ae]\\w+"
    "|dejó de|dejado de|evita\\w*|odia\\w*|rechaz\\w*|falta\\w*|nega\\w*|soltero|soltera|imposible"
    "|quitté\\w*|rarement|absente?|arrêté\\w*|évite\\w*|déteste\\w*|refuse\\w*|manque\\w*|célibataire|incapable"
    "|smess\\w+|evita|rifiuta\\w*|отказ\\w*|избега\\w*|перестал\\w*|ненавид\\w*"
)
_SOFT_EAST: Final = "[拒避戒]|讨厌|停止|嫌い|嫌う|やめ|辞め|无法|禁止|仅|只|だけ"
# Of those, what denies by itself wherever it stands: also a source's.
_FIRM: Final = (
    "unable|refus(?:es?|ed|ing)|quit|gave up|given up|stopped (?=\\w+ing\\b)|avoids?|declined|rejects?|rejected"
    "|verweigert|weigert|aufgehört|verzichtet|dejó de|arrêté de"
)
_PREFIXES: Final = ("un", "dis", "il", "im", "in", "ir", "non", "mis")
# What a text may deny of its own accord where somebody left, sold or lost something, or did it only then.
_CHANGES: Final = re.compile(
    r"\b(?:left|leav\w+|sold|sell\w*|lost|los\w+|moved|mov\w+|end(?:s|ed|ing)?|former\w*|used to|only|until"
    r"|till|gone|died|broke\w*|divorc\w+|fired|retired|nur|verkauft|verlor\w*|verlassen|gekündigt|früher|bis|vend\w+|perdi\w+"
    r"|quitt\w+|jusqu\w+|hasta|solo|sólo)\b|[离卖丢]|只|離れ|売っ|失",
    re.IGNORECASE,
)
_CLAUSE_ENDS: Final = (
    r"[,;:()–—，、；：]|\b(?:but|although|though|because|since|while|who|which|that|aber|obwohl|weil|da|sondern"
    r"|mais|parce|pero|porque|ma|perché|но|а)\b"
)
_CONJUNCTS: Final = rf"{_CLAUSE_ENDS}|\b(?:and|und|et|y|e|и)\b|和"
_HAN: Final = "\u3400-\u9fff"
_DULL: Final = FILLERS | word_set(
    "ich du er sie es wir ihr mich mir sich der die das den dem des ein eine einen einem einer hat haben"
    " ist sind war wird werden kann können mehr mit von zu im am auf für le la les un une de des du il"
    " elle ils elles est sont a en el los las una es son tiene su sus con por para o do da os as em é tem"
    " di lo gli ha è y any anymore either yet ever pas plus más del al her his their hers him them herself"
    " himself want wants do doing use used able"
)


@dataclass(frozen=True, slots=True)
class Denial:
    """What is denied: by which word, and the words of what it denies; none where no rule can tell."""

    written: str
    scope: frozenset[str]


def find_denials(text: str) -> Iterator[Denial]:
    """What a text denies, in order; at most `_DENIALS_MAX` of a sentence, as no sentence has."""
    for sentence in split_sentences(normal(text)):
        folded = sentence.casefold()
        scope: frozenset[str] = frozenset()
        for match in islice(_denying().finditer(folded), _DENIALS_MAX):
            last, scope = scope, _scope_of(folded, match)
            if not scope or not scope <= last:  # as "pas" behind "ne"
                yield Denial(match[0], scope)


class Denying:
    """A text that may deny what others do; each word is looked for once, however often others deny it."""

    def __init__(self, text: str) -> None:
        self._sentences = [_Sentence(each.casefold()) for each in split_sentences(normal(text))]
        self._told: dict[str, bool | None] = {}

    @property
    def denies(self) -> bool:
        """Whether it denies anything, in whatever way."""
        return any(sentence.denials for sentence in self._sentences)

    def carries(self, denial: Denial) -> bool:
        """Whether it denies the same, or says nothing of it in words that a rule knows."""
        told = [self._tell(word) for word in denial.scope]
        return self.denies if all(each is None for each in told) else any(told)

    def _tell(self, word: str) -> bool | None:
        """Whether one of these words is denied: it stands where something is; None when there is none of them."""
        if word not in self._told:
            denied = list(self._denied(word))
            self._told[word] = any(denied) if denied else None
        return self._told[word]

    def _denied(self, word: str) -> Iterator[bool]:
        """Of each place of a word in the text whether it is denied there, or is its own opposite ("unmarried")."""
        if word[0] >= "\u3000":
            for sentence in self._sentences:
                yield from (
                    sentence.denies(match.start()) for match in re.finditer(re.escape(word), sentence.text)
                )
            return
        for other, is_opposite, sentence, at in self._stems.get(word[:_STEM_CHARS], ()):
            if _are_forms(word, other):
                yield is_opposite or sentence.denies(at)

    @cached_property
    def _stems(self) -> dict[str, list[tuple[str, bool, _Sentence, int]]]:
        """The words of the text, also without a prefix that denies, by their first letters."""
        stems: dict[str, list[tuple[str, bool, _Sentence, int]]] = {}
        for sentence in self._sentences:
            for match in _WORD.finditer(sentence.text):
                for prefix in ("", *_PREFIXES):
                    if match[0].startswith(prefix):
                        rest = match[0][len(prefix) :]
                        place = (rest, bool(prefix), sentence, match.start())
                        stems.setdefault(rest[:_STEM_CHARS], []).append(place)
        return stems


def invented_denial(sources: Sequence[str], text: str) -> str:
    """The word by which a text denies something where no source denies or ends anything; "" for none."""
    first = next(iter(_strict().finditer(normal(text).casefold())), None)
    if first is None or any(Denying(source).denies or _CHANGES.search(normal(source)) for source in sources):
        return ""
    return first[0]


class _Sentence:
    """A sentence in small letters, with the places at which it denies."""

    def __init__(self, folded: str) -> None:
        self.text = folded
        self.denials = [(match.start(), match.end()) for match in _softly().finditer(folded)]
        strict = _strict().search(folded)
        self._denied_from = len(folded) if strict is None else strict.start()

    def denies(self, at: int) -> bool:
        """Whether a place stands behind "not" or the like, or beside a denial of any kind."""
        if self._denied_from <= at:
            return True
        # What ends between a place and the denial next to it ends before those behind that one, too.
        next_one = bisect_right(self.denials, (at, len(self.text)))
        sides = [(end, at) for _, end in self.denials[max(0, next_one - 1) : next_one]]
        sides += [(at, start) for start, _ in self.denials[next_one : next_one + 1]]
        return any(_conjunct_end().search(self.text, *side) is None for side in sides)


def _scope_of(folded: str, match: re.Match[str]) -> frozenset[str]:
    """The words that tell what is denied: those behind the denial, or before it where none are."""
    behind = folded[match.end() : match.end() + _REACH_CHARS]
    end = _clause_end().search(behind)
    behind = behind[: end.start()] if end else behind
    before = folded[max(0, match.start() - _REACH_CHARS) : match.start()]
    starts = [each.end() for each in _clause_end().finditer(before)]
    before = before[starts[-1] :] if starts else before
    if match["east"] is not None:
        behind, before = _HANS.sub(" ", behind), _HANS.sub(" ", before.rpartition("は")[2])
        signs = "".join((before if match[0][0] in "なまずん않없못안" else behind or before).split())
        return frozenset(signs[:SCOPE_WORDS_MAX] if behind.strip() else signs[-SCOPE_WORDS_MAX:])
    words = [word for word in _WORD.findall(behind) if _tells(word)][:SCOPE_WORDS_MAX]
    if not behind.strip(" .!?\"'"):
        words = [word for word in _WORD.findall(before)[1:] if _tells(word)][-SCOPE_WORDS_MAX:]
    return frozenset(words)


def _tells(word: str) -> bool:
    return len(word) >= _STEM_CHARS and word not in _DULL and _strict().fullmatch(word) is None


def _are_forms(one: str, other: str) -> bool:
    shorter = min(len(one), len(other))
    same = max(_STEM_CHARS, shorter - 2)
    return shorter >= _STEM_CHARS and one[:same] == other[:same]


@cache
def _strict() -> re.Pattern[str]:
    """Words that deny, in the languages of the date rules and of small talk, and Russian."""
    return re.compile(rf"(?<![\w'])(?:(?:{_WORDS})(?!\w)|n'(?=[^\W\d_]))|(?P<east>{_EAST})")


@cache
def _denying() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'])(?:(?:{_WORDS}|{_FIRM})(?!\w)|n'(?=[^\W\d_]))|(?P<east>{_EAST})")


@cache
def _softly() -> re.Pattern[str]:
    words = rf"(?<![\w'])(?:(?:{_WORDS}|{_SOFT})(?!\w)|n'(?=[^\W\d_]))"
    return re.compile(rf"{words}|{_EAST}|{_SOFT_EAST}")


@cache
def _clause_end() -> re.Pattern[str]:
    return re.compile(_CLAUSE_ENDS)


@cache
def _conjunct_end() -> re.Pattern[str]:
    return re.compile(_CONJUNCTS)


_WORD = re.compile(rf"[^\W\d_{CJK}]+")
_HANS = re.compile(f"[^{_HAN}]")
