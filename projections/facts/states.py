"""What a state says: of whom, of what, which value, and whether it holds, held once, or ended.

Texts alone tell. A value is known by hashes of words under the user's key, so that the fold and its snapshots keep
no words. In doubt there is no value, or no word that tells whether it holds: such a state ends no other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Final, NamedTuple

from events.memory import ExtractedFact, FactRole, StateOf
from projections.facts.attributes import (
    EMPLOYER,
    HOME,
    NAMED,
    canonical_attribute,
    find_value,
    known_values,
)
from projections.facts.labels import normalise_label
from projections.facts.regions import Width, find_place
from projections.facts.stances import Stance, read_stance, standing_part
from projections.recall.keyed import hash_terms
from projections.recall.tokens import terms

# More names or words than a value has: who lists a hundred towns lives in none of them.
VALUE_NAMES_MAX: Final = 4
VALUE_WORDS_MAX: Final = 24


class StateKey(NamedTuple):
    """Whose state it is and which one, both labels in normal form, as the text's reader named them."""

    entity: str
    attribute: str


@dataclass(frozen=True, slots=True)
class State:
    """What one reading says of a state.

    `names`: places, people or terms of a closed list that are its value, each as the hashes of its words, the one
    it is about first. `words`: the content words of the text besides; `numbers`: those with digits. `width`: how
    wide the first place is, since a town may be in a country.
    """

    key: StateKey
    stance: Stance
    names: tuple[frozenset[int], ...] = ()
    words: frozenset[int] = frozenset()
    numbers: frozenset[int] = frozenset()
    width: Width = Width.TOWN


# As models call whoever a text speaks of: another one in the next text.
_ANYBODY_WORDS: Final = """
    i me myself we us you he him she her it they them his their one someone somebody people person speaker
    man woman friend colleague coworker neighbor neighbour ich wir du er sie es je nous tu il elle on ils
    elles yo nosotros él ella usted 我 我们 你 您 他 她 它 他们 私 僕 俺 彼 彼女
"""
_ANYBODY: Final = frozenset(_ANYBODY_WORDS.split())

# A text that leans on another carries it behind itself in brackets; that one says what it says itself.
_CONTEXT: Final = re.compile(r"\s*\[[^\[\]]*\]\s*$")
_DATES: Final = re.compile(
    r"\d{4}-\d\d(?:-\d\d)?|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b|\b(?:19|20)\d\d\b(?:年)?|\d{1,2}月(?:\d{1,2}[日号])?"
    r"|\b(?:\d{1,2}(?:st|nd|rd|th|\.)? )?(?:of )?(?:jan(?:uary)?|feb(?:ruary)?|march|april|june|july|aug(?:ust)?"
    r"|sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|januar|februar|märz|juni|juli|oktober|dezember|janvier"
    r"|février|avril|juin|juillet|août|septembre|octobre|novembre|décembre|enero|febrero|marzo|abril|junio|julio"
    r"|agosto|septiembre|octubre|noviembre|diciembre)\b(?: \d{1,2}(?:st|nd|rd|th)?\b)?"
    r"|\b(?:for|since|seit|depuis|desde hace)? ?\d+ (?:years?|months?|weeks?|days?|jahren?|monaten?|ans|mois|años"
    r"|meses)(?: ago)?\b(?! old)"
)
# Words around a value that are said of every state: verbs of being and becoming, and when.
_FRAME_WORDS: Final = """
    is are was be been being became become becomes becoming has have had having now currently
    current still today since recently lately just finally already officially again presently yet
    live lives lived living reside resides move moves moved moving relocate relocated settle settled
    work works worked working start starts started begin began job new as for ago year years month
    months week weeks day days old got get take took make made name named called call says said told
    ich er sie es wir ist sind bin war wurde wird werde hat habe haben jetzt nun derzeit aktuell
    inzwischen mittlerweile seit heute gerade wohnt wohne lebt lebe zog gezogen umgezogen arbeitet
    arbeite als der die das ein eine einen einem einer des dem den und von mit im am zu zur zum je j
    il elle on nous est suis sont été a ai avons maintenant actuellement désormais depuis aujourd
    habite vis vit déménagé travaille comme un une le la les de du des et à au aux en chez dans yo
    él ella es está estoy soy son ha he ahora actualmente desde hoy vivo vive mudé mudó trabajo
    trabaja como el los las del y con mi su i she he they we my her his their
"""
_FRAME: Final = frozenset(_FRAME_WORDS.split())
_WORD: Final = re.compile(r"[^\W_]+(?:['’+#-]*[^\W_]+)*[+#]*")

# As far in front of a name as what tells its part in the sentence may begin.
_BEFORE_MAX: Final = 40
# What stands before the name of a place that is left, before those that only come along, and before the value.
_FROM: Final = re.compile(
    r"(?:\b(?:from|left|leaving|leave|out of|away from|aus|von|verlassen|quitté|quitte|quitter|desde|dejé|dejó"
    r"|instead of|than|statt|au lieu de|en vez de)|(?<=parti )de|(?<=déménagé )de|(?<=mudé )de|(?<=mudó )de"
    r"|从|離開|离开)\s*(?:the |den |der |dem )?$"
)
_ALONG_WORDS: Final = r"with|mit|avec|con|like|near|cerca de|près de|to be (?:closer|close) to|和|跟"
# A home "bei" a town is near it; a job "bei" a company is there.
_ALONG: Final = {
    HOME: re.compile(rf"\b(?:{_ALONG_WORDS}|bei)\s*(?:the )?$"),
    EMPLOYER: re.compile(rf"\b(?:{_ALONG_WORDS})\s*(?:the )?$"),
}
_AT: Final = re.compile(
    r"(?:\b(?:in|to|at|for|nach|bei|für|à|au|aux|en|a|chez|pour|para|into|join(?:ed|s)?)|[在到去])\s*"
    r"(?:the |sunny |downtown |der |die |den |dem |la |le |el |los |las )?$"
)
# What is written with capitals where a place or a company stands.
_CAPITALS: Final = re.compile(
    r"\b(?:in|to|at|for|from|of|nach|von|aus|bei|für|à|de|chez|pour|en|a|para)\s+(?:the\s+)?"
    r"(?P<name>[A-ZÀ-ÖØ-Þ][\w'’-]+(?: [A-ZÀ-ÖØ-Þ][\w'’-]+){0,3})"
)
# Scripts without capitals: the run of letters behind or before a verb of living or working.
_EAST_PLACES: Final = {
    HOME: re.compile(
        r"(?:住在|搬到|搬去|搬至|定居在?|移居到?|现居|居住在)了?(?P<name>[\u3400-\u9fff]{2,12}?)"
        r"(?=[了的，。！,.!\s和跟工住生上读附]|$)"
        r"|(?P<before>[\u30a0-\u30ff\u4e00-\u9fff]{1,10})(?:には?(?:住|引っ越|移住)|で暮ら|へ引っ越)"
    ),
    EMPLOYER: re.compile(
        r"在(?P<name>[\u3400-\u9fff]{2,20}?)(?=工作|上班|任职|做)|(?P<before>[\u30a0-\u30ff\u4e00-\u9fff]{1,12})(?:で働|に勤め)"
    ),
}


def read_state(fact: ExtractedFact, key: bytes = b"") -> State | None:
    """What a fact says of a state, its words hashed under a key; None when it speaks of none.

    Whose and which state it is was found when it was extracted. Only the role STATE says how things are.
    """
    of = fact.state
    if of is None or fact.role is not FactRole.STATE:
        return None
    state_key = read_key(of)
    if state_key is None:
        return None
    entity, attribute = state_key.entity, canonical_attribute(state_key.attribute)
    said = _CONTEXT.sub("", fact.text)
    folded = unicodedata.normalize("NFKC", said).casefold().replace("’", "'")
    if folded.startswith(f"{entity}:"):  # who speaks, as the rules put it in front
        folded = folded[len(entity) + 1 :]
    folded = folded.strip(" .!。！")
    labels = [normalise_label(mention.label) for mention in fact.mentions]
    sure = [label for label, mention in zip(labels, fact.mentions, strict=True) if not mention.uncertain]
    folded = standing_part(folded, attribute, [entity, *sure])
    names, left = _find_names(folded, attribute, labels, sure, entity)
    if attribute in NAMED and not names and not left:  # a person's correction may name what nobody named before
        capitals = [normalise_label(match["name"]) for match in _CAPITALS.finditer(said)]
        capitals = [label for label in capitals if not _DATES.fullmatch(label) and label not in ("may", "mai")]
        names, left = _find_names(folded, attribute, capitals, capitals, entity)
    stance = Stance.ENDED if left and not names else read_stance(folded, attribute, [entity, *sure])
    known = find_place if attribute == HOME else _as_it_is
    places = [known(name) for name in names or left]
    spoken = _DATES.sub(" ", folded)
    words = _content_words(spoken, entity, attribute)
    return State(
        key=state_key,
        stance=stance,
        names=tuple(frozenset(hash_terms(key, set(terms(name)))) for name, _ in places),
        words=frozenset(hash_terms(key, [word for word in words if not _has_digit(word)])),
        numbers=frozenset(hash_terms(key, [word for word in words if _has_digit(word)])),
        width=places[0][1] if places else Width.TOWN,
    )


def read_key(of: StateOf) -> StateKey | None:
    """Whose state and which one, in normal form; None when either has no sign in it, or it may be anybody's."""
    entity = normalise_label(of.entity).removeprefix("the ")  # as models call a user without a name
    attribute = normalise_label(of.attribute)
    if not entity or not attribute or entity in _ANYBODY:
        return None
    return StateKey(intern(entity), intern(attribute))


def _find_names(
    folded: str, attribute: str, labels: Sequence[str], sure: Collection[str], entity: str
) -> tuple[list[str], list[str]]:
    """The names that are the value, the one it is about first, and those that were left behind.

    Of a closed list the value is the one it says. Of places and companies the name behind "in", "at" or "to"
    leads; one behind "from" is where somebody was before, and one behind "with" is company. A capital that may
    only begin a sentence counts where it leads.
    """
    if known_values(attribute):
        value = find_value(attribute, folded)
        return ([value] if value else []), []
    found: list[tuple[bool, int, str]] = []
    left: list[str] = []
    for at, label in _places_of(folded, attribute, [each for each in labels if not _is_part(each, entity)]):
        before = folded[max(0, at - _BEFORE_MAX) : at]
        if _FROM.search(before):
            left.append(label)
        elif attribute not in NAMED or not _ALONG[attribute].search(before):
            leads = _AT.search(before) is not None or label not in labels
            if leads or label in sure:
                found.append((attribute in NAMED and not leads, at, label))
    names = list(dict.fromkeys(label for _, _, label in sorted(found)))
    return names[:VALUE_NAMES_MAX], left[:VALUE_NAMES_MAX]


def _places_of(folded: str, attribute: str, labels: list[str]) -> Iterator[tuple[int, str]]:
    """Where the text has the labels, and what scripts without capitals name by the place it stands at."""
    known: set[str] = set()
    for label in labels:
        at = folded.find(label)
        if at >= 0 and terms(label):
            known.add(label)
            yield at, label
    east = _EAST_PLACES.get(attribute)
    for match in east.finditer(folded) if east is not None and not folded.isascii() else ():
        group = "name" if match["name"] else "before"
        if match[group] not in known:
            yield match.start(group), match[group]


def _content_words(spoken: str, entity: str, attribute: str) -> list[str]:
    """The words that make the value, without those of the entity, the attribute and every state."""
    dull = {*_FRAME, *entity.split(), *attribute.split()}
    kept = [word for word in _WORD.findall(spoken) if word.removesuffix("'s") not in dull]
    entity_terms = set(terms(entity))
    return list(dict.fromkeys(word for word in terms(" ".join(kept)) if word not in entity_terms))[
        :VALUE_WORDS_MAX
    ]


def _as_it_is(name: str) -> tuple[str, Width]:
    return name, Width.TOWN


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _is_part(label: str, entity: str) -> bool:
    """Whether a name is the entity's own, more or less of it: Alice, Alice Smith."""
    one, other = set(label.split()), set(entity.split())
    return one <= other or other <= one
