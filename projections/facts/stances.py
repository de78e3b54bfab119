"""Whether a text says that a state holds, held once, or ended; by words, in several languages.

In doubt a state is not said to hold: then it ends no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from projections.facts.attributes import DIET, EMPLOYER, HOME, JOB


class Stance(IntEnum):
    """How a text says a state; the numbers are kept in snapshots."""

    HOLDS = 0  # from its time on, until another one ends it
    PAST = 1  # it held at its own time, and no more
    ENDED = 2  # it holds no more
    UNSURE = 3  # a wish or a doubt, or for a while: it says nothing of what is so


# Parts of a text, and the verbs by which one says what is so.
_PARTS: Final = re.compile(r"[,;.，。；–—]\s*|\b(?:but|sondern|mais|pero)\b|但是?")
_BEGINS: Final = re.compile(
    r"\b(?:now|liv|mov|relocat|resid|work|join|start|wohn|leb|zog|zieh|gezogen|arbeit|habit|vis\b|vit\b|déménag|viv|mud"
    r"|trabaj|travaill)|[住搬工现]"
)

_ENDS: Final = re.compile(
    r"\bno longer\b|\bany ?more\b|\bused to\b|\bstopped\b|\bquit\b"
    r"|\bleft [\w' ]{0,30}\bjob\b|\bceased\b|\bgave up\b|\bis over\b"
    r"|\bnicht (?:\w+ ){0,4}mehr\b|\bnicht mehr\b|\bkeine?[nmrs]? (?:\w+ ){0,3}mehr\b"
    r"|\bnicht länger\b|\baufgehört\b"
    r"|\bn(?:e |')(?:\w+ ){1,3}plus\b|\bn'\w+ plus\b|\bcessé de\b|\barrêté de\b"
    r"|\bya no\b|\bdej[óoé] de\b|\bdejado de\b|\bnon \w+ più\b|\bnão \w+ mais\b|\bjá não\b"
    r"|不再|已经不|已經不|没有再|もう.{0,12}(?:ない|ません)|(?:ない|なく)なっ",
)
_NOT: Final = re.compile(
    r"\b(?:not|never|cannot|nicht|nie|kein\w*|pas|jamais|nunca|não|non)\b|n['’]t\b"
    r"|\bno (?:vivo|vive|trabajo|trabaja|soy|es|está|estoy)\b|[不没沒]|(?:ない|ません)"
)
_UNSURE: Final = re.compile(
    r"(?<!in )(?<!since )(?<!until )(?<!last )(?<!of )(?<!from )(?<!early )(?<!late )(?<!\d )(?<!-)"
    r"(?<!\d[tsnr][htd] )\bmay\b(?! \d| of )"  # the month is no doubt
    r"|\b(?:might|maybe|perhaps|would|could|wish(?:es)?|hopes?|hoping|wants?|wanted|plans?"
    r"|planning|going to|intends?|considering|thinking (?:of|about)|dreams?|if(?! you\b)|almost|will|möchte"
    r"|würde|vielleicht|plant|hofft|voudrais?|voudrait|veut|veux|peut-être"
    r"|espère|quiere|quiero|quisiera|espera|espero|quizás?|planea"
    r"|wenn|falls|angenommen|wäre|hätte|träum\w*|geträumt|stell\w* (?:dir )?vor|rêv\w*|imagin\w*|sueñ\w*|soñ\w*"
    r"|ojalá|suppos(?:e|ed|ing)|pretend\w*|dream(?:ed|t|ing)?|unless|whether|wonders?|as though|feels? like|joking"
    r"|kidding)\b"
    r"|\b(?:think|thinks|thought|believes?|believed|assumes?|assumed|claims?) (?:that )?"
    r"(?!it\b|this\b)[\w']+ (?:\w+ )?(?:liv|work|mov|resid|is\b|was\b)"
    r"|想(?:要|去|搬|住)|希望|打算|计划|可能|也许|如果|要是|假如|梦见|梦到|たい|かもしれ|つもり|もし|夢"
    r"|(?:^|[,;:] ?)si\b|[?？]$"
)
# So only for a while or beside another one, or until a day that the text's time is: nothing else ends by it.
_FOR_A_WHILE: Final = re.compile(
    r"\bfor the (?:summer|winter|spring|fall|autumn|weekend|week|month|season|semester|holidays?|time being)\b"
    r"|(?<!been )\b(?:living|staying|working) (?:[\w'-]+ ){1,6}"
    r"for (?:a|an|one|two|three|\d+|some|a few|a couple of) (?:nights?|days?|weeks?|months?)\b"
    r"|\b(?:lives?|living|works?|working) (?:[\w'-]+ ){1,5}(?:in|during) (?:the )?(?:summer|winter)s?\b(?! of)"
    r"|\b(?:on|at) (?:the )?week(?:end|day)s?\b|\b(?:during|in) the week\b|\bhalf (?:of )?the (?:year|time)\b"
    r"|\btemporar\w+|\bpart[- ]time\b|\bvolunteer\w*|\bon the side\b|\bside (?:job|gig|hustle)\b|\bat work\b"
    r"|\b(?:every|each) (?:summer|winter|weekend)\b|\buntil\b"
    r"|\bam wochenende\b|\bunter der woche\b|\bvorübergehend|\bnebenbei\b|\b(?:für|über) den (?:sommer|winter)\b"
    r"|\bbis (?:zum|ende|mai|märz|\d)|\bjusqu'|\bpendant (?:la semaine|l'été|l'hiver)\b|\ble week-?end\b"
    r"|\btemporairement\b|\btemporalmente\b|\bhasta\b|\blos fines de semana\b|暂时|临时|周末|週末"
)
_SAID_OF_STANCES: Final = """
    longer anymore any used stopped quit ceased gave over left mehr nicht plus ya dejo dejado no not
    never cannot nie kein keine keinen keinem keiner keines pas jamais nunca non t may might maybe
    perhaps would could wish wishes hope hopes hoping want wants wanted plan plans planning going
    intend intends considering thinking dream dreams if almost will vielleicht plant hofft voudrai
    voudrais voudrait veut veux quiere quiero quisiera espera espero quiza quizas planea lived
    resided was were wohnte lebte habe hat habitait habitais vivait vivais worked arbeitete war
    waren travaillait travaillais era fui fue trabajaba estaba formerly previously once then time
    days before damals ehemals autrefois auparavant antes antiguamente entonces
    wenn falls si imagine imagines imagined imagining suppose supposed supposing pretend pretends
    pretended pretending dreamed dreamt unless whether wonder wonders though feel feels joking kidding
    think thinks thought believe believes believed assume assumes assumed claim claims summer summers
    winter winters spring fall autumn weekend weekends weekday weekdays week weeks month months season
    semester holiday holidays nights day half every each temporarily temporary part volunteer volunteers
    volunteering volunteered side work until woche nebenbei bis jusqu semaine temporairement temporalmente hasta
    fines as age wochenende sommer kind angenommen
"""
# A text in ASCII without any of these words says that a state holds: none of the patterns here can match it.
_STANCE_WORDS: Final = frozenset(_SAID_OF_STANCES.split())
_ASCII_GAPS: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
_LIVED: Final = (
    r"(?<!have )(?<!has )(?<!had )(?<!'ve )(?<!'s )(?<!always )(?:\blived\b|\bresided\b)"
    r"|\b(?:was|were) (?:living|based|residing)\b"
    r"|\b(?:wohnte|lebte)\b|\b(?:habe|hat)\b.*\b(?:gewohnt|gelebt)\b"
    r"|\b(?:habitait|habitais|vivait|vivais|vécu|habité)\b"
    r"|\b(?:vivía|viví|vivió|residía)\b|住过|住過|住んでい(?:た|ました)"
)
_WORKED: Final = (
    r"(?<!have )(?<!has )(?<!'ve )(?<!'s )\bworked\b|\b(?:was|were) (?:working|employed|an?\b)"
    r"|\b(?:arbeitete|war)\b"
    r"|\b(?:habe|hat)\b.*\bgearbeitet\b|\b(?:travaillait|travaillais|travaillé|était|étais)\b"
    r"|\b(?:trabajaba|trabajé|trabajó|era|fui|fue)\b|工作过|働いてい(?:た|ました)|でした"
)
# Who has lived in three towns tells where she has been; who has lived in one since then is there.
_HAS_LIVED: Final = (
    r"|\b(?:have|has|'ve|'s) (?:\w+ )?(?:lived|resided|worked)\b"
    r"(?!.*\b(?:since|for|all|always|now|whole|entire|ever|here|over|more than|\d+)\b)"
    r"|\bas an? (?:young |little |small )?(?:kid|child|teen\w*|boy|girl|baby|student|undergrad\w*)\b"
    r"|\bat (?:age|the age of) \w+"
    r"|\bwhen (?:i|he|she|x) (?:was|were)\b|\bals kind\b|\bquand j'étais\b|\bcuando era\b|小时候|子供の(?:頃|ころ)"
)
_WAS: Final = r"\b(?:was|were|war|waren|était|étais|estaba|era|fue|fui)\b|でした|だった"
_ONCE: Final = (
    r"|\b(?:formerly|previously|once|back then|at that time|in those days|before that|früher|damals|ehemals"
    r"|autrefois|auparavant|à l'époque|antes|antiguamente|entonces)\b|以前|曾经|曾經|曾在|过去|原来|原先|昔|かつて"
)
_PAST_OF: Final = {
    HOME: re.compile(_LIVED + _HAS_LIVED + _ONCE),
    EMPLOYER: re.compile(_WORKED + _HAS_LIVED + _ONCE),
    JOB: re.compile(_WORKED + _ONCE),
}
_PAST: Final = re.compile(_WAS + _ONCE)


def read_stance(folded: str, attribute: str, labels: Iterable[str] = ()) -> Stance:
    """How a folded text says a state of a canonical attribute; `labels` are names in it, which are no verbs."""
    spoken, folded = folded, _without(folded, labels)
    if spoken.isascii() and spoken[-1:] != "?" and _STANCE_WORDS.isdisjoint(spoken.translate(_ASCII_GAPS).split()):
        return Stance.HOLDS  # as most do
    if _UNSURE.search(folded):
        return Stance.UNSURE
    if _ENDS.search(folded):
        return Stance.ENDED
    if _PAST_OF.get(attribute, _PAST).search(folded):
        return Stance.PAST
    if _FOR_A_WHILE.search(spoken):
        return Stance.UNSURE
    # "Eats no meat" is how somebody eats, not an end of it.
    if attribute != DIET and _NOT.search(folded):
        return Stance.ENDED
    return Stance.HOLDS


def standing_part(folded: str, attribute: str, labels: Sequence[str]) -> str:
    """Of a text that says what is over and what is so instead, the parts that say what is so; else all of it."""
    parts = _PARTS.split(folded)
    if len(parts) == 1 or read_stance(folded, attribute, labels) is Stance.HOLDS:
        return folded
    so = [part for part in parts if _BEGINS.search(part) and read_stance(part, attribute, labels) is Stance.HOLDS]
    return ", ".join(so) if so and any(_ENDS.search(part) or _NOT.search(part) for part in parts) else folded


def _without(folded: str, labels: Iterable[str]) -> str:
    """The text without names: Will and Hope say nothing of what is so."""
    for label in labels:
        if label.isalpha() and len(label) > 1 and label in folded:
            folded = re.sub(rf"\b{label}\b", "x", folded)
    return folded
