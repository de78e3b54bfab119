"""Which sentences say nothing worth keeping: greetings, thanks, bare reactions, questions to the other.

Their turns stay in the log and in the verbatim chunk; they only yield no fact. Measured on LoCoMo this
loses about two of a hundred turns that answer a question.
"""

from __future__ import annotations

import re
from typing import Final

from daemon.offline.sentences import CJK, word_set

# Words without content of their own: a sentence of nothing else is small talk.
FILLERS: Final = word_set(
    "a an the this that these those it its it's that's there there's here here's i i'm i've i'll i'd you"
    " you're you've you'll you'd we we're we've we'll he she they they're me my your yours our us them"
    " what what's who who's how how's how're when where why which whats hows and or but so if as at by for"
    " from in into of on to with about than then too also just very really even still only much many more"
    " most all any some no not is are was were be been being am do does did don't doesn't didn't have has"
    " had having can can't could will would should may might must gonna gotta wanna let let's get got make"
    " makes made go going see seeing look looks sounds seems feel feels say said tell telling know think"
    " mean means guess hope wish yes yeah yep yup yea nope nah ok okay sure right well now btw lol haha ha"
    " hah hehe omg wow woah whoa woohoo woo yay aw aww awww awwww ah oh ooh oops oof ouch hmm mm mmm mhm"
    " phew yum ugh gosh man dude wow hi hey hello howdy bye goodbye later soon cheers thanks thank thx"
    " congrats congratulations sorry please welcome good great nice cool awesome amazing wonderful"
    " fantastic incredible lovely sweet beautiful perfect excellent super best better fun interesting"
    " exciting excited exciting inspiring impressive glad happy proud stoked lucky love appreciate agree"
    " agreed exactly absolutely definitely totally certainly indeed course true job work stuff thing"
    " things everything anything something time long chat talk care take keep stay up out back off down"
    " again always never one way kind lot lots bit morning afternoon evening night day today everyone guys"
    " all happening hearing hear heard catch check wait believe forward news new doing done idea point"
    " enjoy luck day weekend won't wouldn't bet yourself myself such pretty absolutely another same anyway"
    " anyways hallo danke bitte gut super toll schön genau ja nein tschüss guten morgen tag abend wie"
    " geht's dir es bonjour salut merci oui non bien super d'accord ça va bonsoir au revoir hola gracias"
    " sí bien vale claro adiós buenos buenas días tardes noches qué tal genial"
)
# Lines people say whole; their words would count as content.
_WHOLE = re.compile(
    r"(?:and |so |but |oh,? |hey,? )?(?:long time,? no (?:see|chat|talk)|what(?:'s| is"
    r"| have you been) (?:new|up|up to)\b.*"
    r"|keep (?:it up|going|up the (?:good|great|amazing|awesome) work)|way to go|no (?:problem|worries|way)"
    r"|you(?:'re| are) (?:so |very |most )?welcome|you(?:'ve)? got this|my pleasure|don't mention it"
    r"|(?:talk|speak|see|catch) (?:to |with )?(?:you|ya) (?:later|soon|then|tomorrow)?|same here"
    r"|me (?:too|neither)"
    r"|(?:thanks|thank you|thx|cheers)(?: so much| a lot| a ton| again)?(?: for (?:your"
    r"|the) [\w ]{1,40}| for asking)?"
    r"|(?:i(?:'m| am) )?(?:so |really |super )?(?:happy|glad|proud|excited|sorry) (?:for|of|to hear"
    r"|about) (?:you|that|it)"
    r"|how (?:are|have|is|was|about|did|do|'s)\b[^.]{0,60}\?|guess what|you know what|take care"
    r"|good luck|sounds good)",
    re.IGNORECASE,
)
EAST_FILLERS = re.compile(
    r"(?:你好|您好|大家好|嗨|谢谢|謝謝|多谢|感谢|不客气|哈+|呵+|嘿+|好的?|好吧|好呀|好啊|嗯+|哦+|噢|哇+|是的?|对|對|行|可以|没问题|再见|拜拜"
    r"|晚安|早上好|早安|下午好|晚上好|早|太好了|太棒了|真棒|真好|加油|辛苦了?|收到|明白了?|了解|当然|你们?|大家|啊|呀|吧|呢|啦"
    r"|こんにちは|こんばんは|おはよう(?:ございます)?|ありがとう(?:ございます)?|はい|うん|ええ|いいえ|すごい|そうですね?|そうだね"
    r"|なるほど|わかりました|了解(?:です)?|お疲れ様(?:です|でした)?|おやすみ(?:なさい)?|さようなら|またね|ね|よ|です|안녕하세요|감사합니다|네)+"
)
_EAST = re.compile(f"[{CJK}]")
_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|my|we|we're|we've|our|me|ich|mein|je|j'ai|mon|yo|mi)\b", re.IGNORECASE
)
_EAST_FIRST_PERSON = re.compile(r"[我咱私僕俺]|うち|저|나")
_SECOND_PERSON = re.compile(r"\b(?:you|your|you're|you've|you'll|you'd|yours)\b", re.IGNORECASE)
# "You can use oil instead of butter" tells something, whomever it is told to.
_ADVICE = re.compile(r"\b(?:can|could|should|try|use|when|if|make sure|so you|instead)\b", re.IGNORECASE)
_PARTICULAR = re.compile(r"\d|(?<=[a-z,;:\"'-] )[\"']?[A-Z](?!')")
# A name that is called: after a comma at the end, or behind a greeting.
_CALLED = re.compile(
    r"(?:,\s*|\b(?:[Hh]ey|[Hh]i|[Hh]ello|[Tt]hanks|[Tt]hank you|[Ww]ow|[Yy]eah|[Cc]ongrats|[Ss]orry"
    r"|[Bb]ye)\s+)"
    r"[A-Z][\w'-]+(?=\s*(?:[,.!?…]|$|[^\w\s]))"
)


def says_nothing(sentence: str) -> bool:
    """Whether the sentence is small talk: nothing but fillers, a stock phrase, or a question to the other."""
    plain = sentence.replace("’", "'")
    if _EAST.search(plain):
        return _says_nothing_in_the_east(plain)
    spoken = _CALLED.sub(" ", plain)
    tokens = _TOKEN.findall(spoken.casefold())
    if all(token in FILLERS for token in tokens):
        return True
    if is_question(sentence) and not _FIRST_PERSON.search(spoken):
        return True
    return _WHOLE.fullmatch(" ".join(spoken.strip(" \t.!,…-").split())) is not None


def is_only_said_to_the_other(sentence: str) -> bool:
    """A statement about "you" that names nothing, nobody and no advice: encouragement, not a fact."""
    plain = sentence.replace("’", "'")
    if not _SECOND_PERSON.search(plain) or _FIRST_PERSON.search(plain) or _ADVICE.search(plain):
        return False
    # A number or a name inside the sentence is worth keeping.
    return _PARTICULAR.search(_CALLED.sub(" ", plain), 1) is None


def is_question(sentence: str) -> bool:
    """Whether the sentence ends like a question."""
    return sentence.rstrip(" \t\"'”’»)」』").endswith(("?", "？"))


def _says_nothing_in_the_east(sentence: str) -> bool:
    spoken = "".join(_TOKEN.findall(sentence))
    if EAST_FILLERS.fullmatch(spoken):
        return True
    asks = is_question(sentence) or spoken.endswith(("吗", "呢", "ですか", "ますか"))
    return asks and not _EAST_FIRST_PERSON.search(spoken)
