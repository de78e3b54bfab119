"""Says who: a sentence becomes text that stands without its speaker.

English sentences whose only first persons are "I" and "my" are rewritten where the agreement is certain;
every other sentence, and every other language, gets the speaker in front ("Alice: We went camping.").
"""

from __future__ import annotations

import re
from typing import Final

from daemon.offline.sentences import Language, word_set

# Simple past forms, beside the regular ones in -ed; forms that equal the present (put, read) are left out.
PAST_FORMS: Final = word_set(
    "was were had did went got made took saw came knew thought found gave told felt left kept began began"
    " became brought bought wrote said spoke stood heard met ran paid sat lost held taught caught won sold"
    " sent built fell led grew drew drove flew ate drank slept wore broke chose forgot fought understood"
    " rode rose sang swam threw woke spent meant learnt dreamt showed wasn't weren't didn't hadn't started"
    " used been"
)
_MODALS: Final = word_set(
    "will would can could should must may might can't cannot couldn't won't wouldn't shouldn't mustn't"
)
# Present forms whose third person is known; what is not here is not rewritten.
BASE_VERBS: Final = word_set(
    "love like hate want need live work play enjoy prefer think feel know hope believe use own eat drink"
    " cook run walk read write paint draw dance sing swim drive ride travel visit go do have make take get"
    " see look teach study learn speak keep start try plan help volunteer practice collect watch wear"
    " remember miss wish wonder find mean agree understand appreciate admire support belong come sleep"
    " train meet spend"
)
_ADVERBS: Final = (
    "really|also|just|always|never|finally|already|still|actually|recently|usually|often|currently|now|once"
    "|even|definitely|totally|sometimes|truly|only|mostly|mainly|absolutely|ever|probably|simply|regularly"
)
_SUBJECT = re.compile(
    rf"\bI(?P<short>'(?:m|ve|ll|d))?(?P<adverbs>(?:\s+(?:{_ADVERBS})\b)*)(?:\s+(?P<verb>[A-Za-z']+))?"
)
_MY = re.compile(r"\b[Mm]y\b")
# Any of these and the rewriting would be a guess.
_UNSURE = re.compile(
    r"\b(?:me|mine|myself|we|we're|we've|we'll|we'd|us|our|ours|ourselves|let's|you|you're|you've"
    r"|you'll|you'd|your|yours|y'all)\b|[\"“”]",
    re.IGNORECASE,
)
_TURNED: Final = word_set("am was do did have had can could will would should may might must nor or")
_SECOND_VERB = re.compile(rf"\b(?:and|but|or)\s+(?:(?:{_ADVERBS})\s+)*([a-z']+)")
_OPENING = re.compile(
    r"^(?:(?:yeah|yep|yup|yes|well|oh|ooh|wow|whoa|woah|hey|hi|hello|thanks|thank you|btw"
    r"|by the way|anyway|anyways|aw+"
    r"|haha|cool|awesome|great|nice|sure|ah|hmm|also|so|okay|ok|woo|woohoo|yay|congrats|and|but)"
    r"(?:\s+(?-i:[A-Z])[\w'-]+(?=[,!.]))?(?:[,!.–-]+\s*|\s+(?=I\b|I'|my\b)))(?:(?-i:[A-Z])[\w'-]+[,!]\s+)?",
    re.IGNORECASE,
)


def in_third_person(sentence: str, name: str, language: Language) -> str:
    """The sentence with its speaker named: rewritten where that is safe, else "name: sentence"."""
    if language in ("en", ""):
        rewritten = _rewritten(sentence.replace("’", "'"), name)
        if rewritten is not None:
            return rewritten
    return f"{name}: {sentence}"


def _rewritten(sentence: str, name: str) -> str | None:
    body = _OPENING.sub("", sentence, count=1)
    if _UNSURE.search(body) or body.endswith("?"):
        return None
    subjects = list(_SUBJECT.finditer(body))
    if not subjects and not _MY.search(body):
        return None
    pieces: list[str] = []
    at, present = 0, False
    for subject in subjects:
        if not _is_free(body[: subject.start()], first=subject is subjects[0]):
            return None
        verb = _third_form(subject["short"], subject["verb"])
        if verb is None:
            return None
        present = present or verb != (subject["verb"] or "")
        pieces.append(f"{body[at : subject.start()]}{name}")
        pieces.append(f" {verb}{subject['adverbs']}" if subject["short"] else f"{subject['adverbs']} {verb}")
        if subject["short"] and subject["verb"]:
            pieces.append(f" {subject['verb']}")
        at = subject.end()
    text = "".join([*pieces, body[at:]])
    if present and any(_needs_agreement(verb) for verb in _SECOND_VERB.findall(body)):
        return None
    text = _MY.sub(f"{name}'s", text)
    # What stood behind an opening ("Thanks, glad I could help!") begins the sentence now.
    return text if text.startswith(name) else text[:1].upper() + text[1:]


def _is_free(before: str, *, first: bool) -> bool:
    """Whether "I" stands where a subject stands: not turned round ("do I"), not joined ("Max and I")."""
    words = before.split()
    if not words:
        return True
    last = words[-1].casefold()
    if last == "and":
        return not first
    return last.strip("(") not in _TURNED and not words[-1][0].isupper() if len(words) > 1 else last not in _TURNED


def _third_form(short: str | None, verb: str | None) -> str | None:
    """The verb after the name: I'm -> is, I have -> has, I love -> loves; None when it is not certain."""
    if short:
        return {"'m": "is", "'ve": "has", "'ll": "will"}.get(short)
    if verb is None:
        return None
    special = {"am": "is", "have": "has", "haven't": "hasn't", "do": "does", "don't": "doesn't", "go": "goes"}
    if verb in special:
        return special[verb]
    if verb in PAST_FORMS or verb in _MODALS or (verb.endswith("ed") and verb != "need" and len(verb) > 3):
        return verb
    if verb in BASE_VERBS and verb != "read":
        if verb.endswith("y") and verb[-2] not in "aeo":
            return f"{verb[:-1]}ies"
        return f"{verb}es" if verb.endswith(("sh", "ch", "ss", "x")) else f"{verb}s"
    return None


def _needs_agreement(verb: str) -> bool:
    return verb in BASE_VERBS or verb in ("am", "have", "don't", "haven't")
