"""What kind of thing a sentence says, which state of its speaker it sets, and its topics; by pattern.

Only states that a later sentence may close get an attribute: home, employer, job, diet, relationship, a pet, and
what `owned_states` has.
"""

from __future__ import annotations

import re
from typing import Final

from daemon.offline.owned_states import OWNED_HINTS, OWNED_STATES, OWNED_STATES_LEFT
from daemon.offline.sentences import CJK, word_set
from daemon.offline.small_talk import FILLERS
from daemon.offline.third_person import PAST_FORMS
from events.memory import FactRole, StateOf

TOPICS_MAX: Final = 3

_I_AM = r"\bI(?:'m| am)(?: (?:now|currently|still|officially|actually|finally))?"
_JOBS = (
    "nurse|doctor|teacher|engineer|developer|programmer|designer|lawyer|chef|cook|writer|artist|banker|student|driver"
    "|scientist|researcher|accountant|manager|consultant|therapist|counselor|musician|photographer|journalist"
    "|electrician|plumber|carpenter|farmer|firefighter|pilot|mechanic|barista|waiter|waitress|architect|dentist"
    "|professor|librarian|translator|editor|analyst|salesman|freelancer|veterinarian|vet|pharmacist|librarian"
)
# Whoever is a good cook need not be one.
_JOB = (
    r"(?!(?:\w+ )?(?:good|bad|great|terrible|awful|horrible|decent|fast|slow|careful|lousy|big|better)\b)"
    rf"(?:[\w-]+ ){{0,2}}(?:{_JOBS})\b(?! of\b)"
)
# Capitals that are no towns, behind "moved to" or "live in".
_NO_TOWN = (
    "Office|Room|Platform|Plan|Windows|Linux|Mac|Android|Apartment|Apt|Unit|Gate|Seat|Level|Phase|Team|Chapter|Step|Page"
    "|Excel|Slack|January|February|March|April|May|June|July|August|September|October|November|December"
)
_PETS = "dog|puppy|pup|cat|kitten|parrot|rabbit|hamster|turtle|horse|goldfish|snake|lizard|bird|guinea pig"
_STATES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "home",
        re.compile(
            r"\bI(?:'ve|'m| am| have)?(?: been)?(?: (?:just|recently|finally|now|currently|also))?"
            r" (?:live|lived|living|moved|relocated|based|settled|reside)(?: (?:back|out|away|over|down))?"
            r"(?: from [A-Z]\w*(?: [A-Z]\w*)?)?"
            rf" (?:in|to|at) (?:(?:sunny|downtown|the|beautiful) )?(?!(?:{_NO_TOWN})\b)[A-Z]"
            rf"|\b[Ww]e(?:'ve)?(?: just| now)? (?:live|moved|relocated)(?: from [A-Z]\w*)?"
            rf" (?:in|to) (?!(?:{_NO_TOWN})\b)[A-Z]"
            r"|\bI\b[^.!?]{0,40} and (?:now|currently) live in [A-Z]"
            r"|\b[Ii]ch (?:wohne|lebe)(?: \w+){0,3} in [A-Z]"
            r"|\b(?:[Ii]ch bin|[Ww]ir sind) (?:\w+ ){0,5}nach [A-Z]\w+ (?:um)?gezogen"
            r"|\b[Jj](?:'habite|e vis)(?: \w+)? à [A-Z]|\b[Jj]'ai (?:\w+ )?déménagé (?:de [A-Z]\w+ )?à [A-Z]"
            r"|\b[Jj]e me suis installée? à [A-Z]|\b[Nn]ous avons déménagé à [A-Z]"
            r"|\b(?:[Vv]ivo (?:\w+ )?en|[Mm]e (?:mudé|he mudado)(?: de [A-Z]\w+)? a) [A-Z]"
            r"|\b[Nn]os (?:hemos )?muda(?:mos|do) a [A-Z]"
            rf"|我(?:现在|目前|已经|刚|最近)?(?:从[{CJK}]{{1,10}})?(?:住在|搬到|搬去)"
            r"|に(?:住んでい(?:ます|る)|引っ越し(?:た|ました))"
        ),
    ),
    (
        "employer",
        re.compile(
            rf"(?:(?:\bI(?: now| currently)? work|{_I_AM} working) (?:at|for)"
            r"|\bI(?: just)? (?:started (?:working|a new job|my new job)|got a (?:new )?job) (?:at|for|with)"
            # Without the post it may be a club or a school.
            r"|\bI(?:'ve| have)?(?: just)? (?:joined|started at)(?= [A-Z][^,;.!?]{0,60} as an? [a-z]))"
            r" (?:[A-Z]|(?:a|an|the) (?!living\b))"
            r"|我(?:现在|目前)?在\S{2,20}(?:工作|上班)|\b[Ii]ch arbeite (?:\w+ )?(?:bei|für(?! Geld)) [A-Z]"
            r"|\b[Tt]rabajo (?:en|para) [A-Z]|\b[Jj]e travaille (?:maintenant )?(?:chez|pour) [A-Z]"
            r"|(?:で働いてい|に勤めてい)(?:ます|る)"
        ),
    ),
    (
        "job",
        re.compile(
            rf"{_I_AM} an? {_JOB}|\bI(?: now| currently)? work as an? "
            rf"|\bI got (?:promoted to|a job as)\b|\b[Mm]y (?:new )?job is (?:being |as )?an? {_JOB}"
        ),
    ),
    (
        "diet",
        re.compile(
            r"\bI(?:'m| am|'ve become|'ve gone|'ve been| became| went| turned)(?: \w+)?(?: an?)?"
            r" (?:vegan|vegetarian|pescatarian|gluten-free|lactose[- ]intolerant|keto)\b"
            r"|\bI don't eat (?:meat|fish|dairy|gluten)\b"
            r"|\b[Ii]ch bin (?:\w+ )?[Vv]eganer|\b[Ss]oy vegan|我(?:是|吃)素"
        ),
    ),
    (
        "relationship",
        re.compile(
            rf"(?:{_I_AM}|\b(?:I|[Ww]e)(?: just)?(?:'re| are| got|'ve been))(?: (?:happily|newly|just))?"
            r" (?:single|married|engaged|divorced|separated|widowed)\b|我(?:结婚|離婚|离婚|订婚|单身)"
        ),
    ),
)
# A state that its speaker says is over: no other one need have taken its place.
_STATES_LEFT: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "home",
        re.compile(
            r"\bI no longer live in [A-Z]|\bI (?:don't|do not) live in [A-Z][^.!?]{0,40} any ?more\b"
            r"|\bI(?:'ve)?(?: just)? moved (?:away from|out of) [A-Z]"
            r"|\b[Ii]ch (?:wohne|lebe) (?:\w+ )?nicht mehr in [A-Z]|\b[Jj]e n'habite plus à [A-Z]"
            r"|\b[Jj]e ne vis plus à [A-Z]|\b[Yy]a no vivo en [A-Z]|我(?:现在|已经)?不(?:再)?住在"
            r"|もう.{1,12}に(?:は)?住んでい(?:ない|ません)"
        ),
    ),
    (
        "employer",
        re.compile(
            r"\bI no longer work (?:at|for) [A-Z]"
            r"|\bI (?:don't|do not) work (?:at|for) [A-Z][^.!?]{0,40} any ?more\b"
            r"|\bI(?:'ve)?(?: just)? (?:quit|left) my job (?:at|with) [A-Z]"
            r"|\bI(?:'ve)?(?: was| got| have been| been)(?: just)? (?:laid off|fired|let go) (?:from|by) [A-Z]"
            r"|\bI(?:'ve)?(?: just)? (?:retired|resigned) from [A-Z]"
            r"|\b[Ii]ch arbeite (?:\w+ )?nicht mehr (?:bei|für) [A-Z]"
            r"|\b[Jj]e ne travaille plus (?:chez|pour|à) [A-Z]"
            r"|\b[Yy]a no trabajo (?:en|para) [A-Z]|我(?:现在|已经)?不(?:再)?在\S{2,20}(?:工作|上班)"
        ),
    ),
    (
        "diet",
        re.compile(
            r"\bI(?:'m| am) no longer (?:a )?(?:vegan|vegetarian|pescatarian)\b"
            r"|\bI(?:'m| am) not (?:a )?(?:vegan|vegetarian|pescatarian) any ?more\b"
            r"|\b[Ii]ch bin nicht mehr (?:[Vv]egan|[Vv]egetari)|\b[Yy]a no soy (?:vegan|vegetarian)"
            r"|\b[Jj]e ne suis plus (?:végan|végétari)"
        ),
    ),
)
_PET_NAMED = re.compile(
    rf"\b[Mm]y (?:\w+ )?(?:{_PETS})(?:,| named| called| is called| is named|'s name is)? ([A-Z]\w+)"
)
_PET_OWNED = re.compile(rf"\bI(?: have|'ve got| own) (?:a|an|one) (?:[\w-]+ ){{0,2}}({_PETS})\b")
# Whose state it is: without one of these no state pattern can match.
_OWN = re.compile(
    r"\bI\b|\b[Mm]y\b|\b[Ww]e\b|\b[Ii]ch\b|\b[Ww]ir\b|\b[Jj][e']|\b[Nn]ou?s\b|\b[Vv]ivo\b|\b[Mm]e\b|\b[Ss]oy\b"
    r"|\b[Tt]rabajo\b|\b[Mm]eine?\b|\b[Mm](?:on|a|i)\b|我|に|で働"
)
# Before or inside a state these make it a wish, a doubt or the past; May with a capital is a month.
_NOT_NOW = re.compile(
    r"\b(?:will|would|might|(?-i:may)|could|if|when|going to|gonna|plan|hope|hoping|want|wish|almost)\b"
    r"|\b(?:werde|würde)\b|'(?:ll|d)\b",
    re.IGNORECASE,
)
# These only in the same part of the sentence: "I don't live in Boston anymore, I live in Davis".
_NOT_SO = re.compile(r"\b(?:not|never|used to|no|nicht|ne)\b|n't\b|[没不]", re.IGNORECASE)
# In front of it these make it what somebody else says, or a story.
_NOT_OWN = re.compile(
    r"[\"“”„«»「『]|(?<=\w )(?<!^So )\w+:|\b(?:was|were|is|are|be) like\b"
    r"|(?<!I )(?<!I've )(?<!As I )\b(?i:say|says|said|tells?|told|asks?|asked|thinks?|thought|believes?|believed"
    r"|claims?|claimed|sagt|sagte|meint|meinte|glaubt|dit|pense|croit|dice|dijo|cree|piensa)\b"
    r"|\b(?i:imagin|suppos|pretend|dream|dreamt|wonder|träum|geträumt|rêv|sueñ|soñ)\w*"
    r"|\b(?i:whether|feels? like|as though)\b"
    r"|\b(?i:story|stories|novel|song|lyrics|poem|movie|film|game|character|roleplay|wenn|falls|angenommen)\b"
    r"|(?:^|[,;:] ?)[Ss]i\b"
    rf"|\b[Ii]n (?:the )?(?!(?:{_NO_TOWN}|Spring|Summer|Fall|Autumn|Winter)\b)[A-Z][\w' ]*,? $"
    r"|[说說告诉问以为].{0,3}我?$|如果|要是|假如|梦|小说|游戏|もし|夢"
    r"|(?<!私)(?<!僕)(?<!俺)(?<!わたし)(?<!ぼく)(?<!今)(?<!現在)(?<!いま)[はが]"
)
_AND_I = re.compile(r",? and (?=I(?:'m|’m)? |(?:now |currently )?(?:live in|work (?:at|for|as)) )")
_PART_END = re.compile(r"[,;，；–—]\s*|\bbut\b|\bsondern\b|\bmais\b|\bpero\b|但是?")

_CONSTRAINT = re.compile(
    r"\ballerg|\bintoleran|\b(?:can't|cannot|can not) (?!wait|believe|imagine|get enough|stop|help"
    r"|thank|even|get over|say)"
    r"|\bmust(?:n't)?\b(?! be\b| have been)|\b(?:have|has|need) to\b(?! say| admit)|\bnot allowed\b"
    r"|\bmay not\b|过敏|過敏|不能|必须|不可以"
    r"|アレルギー|なければならない|\ballergisch|\bdarf (?:ich )?(?:nicht|kein)|\bmuss\b|\balérgic|\bno puedo\b"
    r"|\btengo que\b"
    r"|\ballergique|\bne peux pas\b|\bje dois\b",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"\b(?:I|we)(?:'ll| will)\b|\bgoing to \w|\bgonna\b|\bplan(?:s|ning)? (?:to|on|a|for)\b"
    r"|\bthinking (?:of|about) \w+ing\b"
    r"|\b(?:want|hop(?:e|ing)|hope|aim(?:ing)?|intend) to\b|\blooking forward to\b|\bcan't wait (?:to|for)\b"
    r"|打算|计划|計劃|要去|准备去|予定|つもり|\bich (?:werde|plane)\b|\bhabe vor\b|\bvoy a\b|\bvamos a\b"
    r"|\bplaneo\b|\bje vais\b",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\b(?:I|we)(?:'ve)?(?: \w+)? (?:love|like|prefer|enjoy|adore|hate|dislike)d?\b"
    r"|\bfavou?rites?\b|\bfavs?\b|\bfan of\b"
    r"|\b(?:don't|can't) (?:like|stand)\b|\binto \w+ing\b|喜欢|喜歡|最爱|讨厌|爱吃|偏好|好き|嫌い"
    r"|\bmag\b|\bliebe\b|\blieber\b"
    r"|\bme (?:gusta|encanta)|\bprefiero\b|\bj'(?:aime|adore)\b|\bje préfère\b",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"\b(?:I|he|she|we|they)(?:'m|'re| am| is| are| live| lives| have| has| own| work| works)\b(?! been\b)"
)
_EVENT_EAST = re.compile(r"[了过過]|(?:ました|した|った)")
_EVENT_WEST = re.compile(
    r"\b(?:habe|hat|haben|bin|war) \w.*\bge\w+t?\b|\bj'ai \w+é\b|\b(?:fui|fue|hice|compré|fuimos|gané)\b"
)
_ADDRESS = re.compile(r"https?://|www\.\w")
_WORDS = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_EAST = re.compile(f"[{CJK}]")
_DULL: Final = (
    FILLERS
    | PAST_FORMS
    | word_set(
        "because after before while since until during through over under between around against without"
        " within their her his him she he those what there people person years year month week days today"
        " yesterday tomorrow last next ago recently lately currently already actually really maybe perhaps"
        " finally always often sometimes want wanted need needed like liked loved enjoy enjoyed think trying"
        " tried using coming coming started helped helps help feeling felt makes making getting going being"
        " doing having where whose"
    )
)


# A role's pattern is tried only when one of these words stands in the sentence, or a foreign letter.
_HINTS: Final[tuple[tuple[FactRole, frozenset[str], re.Pattern[str]], ...]] = (
    (
        FactRole.CONSTRAINT,
        word_set(
            "allergic allergy allergies allergen intolerant intolerance can't cannot can must mustn't have has"
            " need not may allergisch darf muss puedo tengo allergique peux dois"
        ),
        _CONSTRAINT,
    ),
    (
        FactRole.PLAN,
        word_set(
            "i'll we'll will going gonna plan plans planning thinking want hope hoping aim aiming intend looking"
            " wait ich habe voy vamos planeo je"
        ),
        _PLAN,
    ),
    (
        FactRole.PREFERENCE,
        word_set(
            "love like prefer enjoy adore hate dislike loved liked preferred enjoyed adored hated disliked"
            " favorite favourite favorites favourites fav favs fan stand into mag liebe lieber gusta encanta"
            " prefiero j'aime j'adore"
        ),
        _PREFERENCE,
    ),
)
_STATE_HINTS: Final = OWNED_HINTS | word_set(
    "live lived living moved relocated based settled reside wohne lebe bin habite j'habite vis déménagé vivo mudé"
    " work working started job arbeite trabajo a an promoted vegan vegetarian pescatarian gluten keto eat"
    " intolerant veganer vegana vegano single married engaged divorced separated widowed my have i've own gezogen"
    " umgezogen lebe mudado mudamos quit left laid fired let retired resigned soy vegetarier travaille vis"
)


def role_of(sentence: str, state: StateOf | None, *, quoted_source: bool) -> FactRole:
    """The role of a sentence; `quoted_source` marks the words of an assistant."""
    if state is not None:
        return FactRole.STATE
    plain = sentence.replace("’", "'")
    words = _WORDS.findall(plain)
    foreign = not plain.isascii()
    small = {word.casefold() for word in words}
    for role, hints, pattern in _HINTS:
        if (foreign or not hints.isdisjoint(small)) and pattern.search(plain):
            return role
    if quoted_source or _ADDRESS.search(plain):
        return FactRole.REFERENCE
    if _is_event(plain, words):
        return FactRole.EVENT
    return FactRole.STATE if _STATE.search(plain) else FactRole.DETAIL


def _is_event(sentence: str, words: list[str]) -> bool:
    if not sentence.isascii() and _EAST.search(sentence):
        return _EVENT_EAST.search(sentence) is not None
    past = any(word in PAST_FORMS or (word.endswith("ed") and len(word) > 4) for word in words)
    return past or (not sentence.isascii() and _EVENT_WEST.search(sentence) is not None)


def state_of(sentence: str, speaker: str) -> StateOf | None:
    """The state that the sentence sets for its speaker, if a pattern tells: (speaker, "home")."""
    plain = sentence.replace("’", "'")
    if plain.endswith(("?", "？")) or not _OWN.search(plain):
        return None
    if plain.isascii() and _STATE_HINTS.isdisjoint(_WORDS.findall(plain.casefold())):
        return None
    for attribute, pattern in (*_STATES, *OWNED_STATES):
        match = pattern.search(plain)
        if match and ("don't eat" in match[0] or _is_so(plain, match)):
            return StateOf(speaker, attribute)
    for attribute, pattern in (*_STATES_LEFT, *OWNED_STATES_LEFT):
        match = pattern.search(plain)
        if match and not _NOT_NOW.search(plain, 0, match.end()) and not _NOT_OWN.search(plain[: match.start()]):
            return StateOf(speaker, attribute)
    # A second dog does not end the first, so a pet's attribute names the animal.
    pet = _PET_NAMED.search(plain) or _PET_OWNED.search(plain)
    if pet and _is_so(plain, pet):
        return StateOf(speaker, f"pet {pet[1].casefold()}")
    return None


def split_states(sentence: str, speaker: str) -> list[str]:
    """The sentence in parts where it sets two states ("I live in Rome and work for Eni"), for a fact has one."""
    for joint in _AND_I.finditer(sentence):
        one, other = sentence[: joint.start()], sentence[joint.end() :]
        other = other if other.startswith("I") else f"I {other}"
        first, second = state_of(one, speaker), state_of(other, speaker)
        if first and second and first != second:
            return [f"{one}.", *split_states(other, speaker)]
    return [sentence]


def _is_so(sentence: str, said: re.Match[str]) -> bool:
    """Whether what was found is neither wished for, nor doubted, nor said not to be so."""
    if _NOT_NOW.search(sentence, 0, said.end()) or _NOT_OWN.search(sentence[: said.start()]):
        return False
    start = max((end.end() for end in _PART_END.finditer(sentence, 0, said.start())), default=0)
    return _NOT_SO.search(sentence, start, said.end()) is None


def topics_of(sentence: str) -> tuple[str, ...]:
    """At most three lower-case content words, the longest, in the order of the sentence."""
    seen: dict[str, None] = {}
    for word in _WORDS.findall(sentence):
        small = word.casefold()
        if (
            len(small) > 3
            and small not in _DULL
            and word[0].islower()
            and "'" not in small
            and not _EAST.search(small)
        ):
            seen.setdefault(small)
    chosen = set(sorted(seen, key=lambda word: (-len(word), word))[:TOPICS_MAX])
    return tuple(word for word in seen if word in chosen)
