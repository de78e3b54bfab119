"""Chunks that need no model, since nobody said anything in them.

Only whole chunks of greetings, thanks, goodbyes, laughter, signs and bare reactions, and only where no such word
can be an answer: "yes" says much after a question. When in doubt a chunk says something.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

from daemon.offline.sentences import CJK, split_sentences, word_set
from daemon.offline.small_talk import EAST_FILLERS, FILLERS

if TYPE_CHECKING:
    from projections.ports import ChunkText, TurnText

# Nobody says nothing at greater length.
TURN_CHARS_MAX: Final = 60
_SHORT_NAME_CHARS_MIN: Final = 3  # Mel for Melanie

# Fillers that tell something when nothing else is said: what is done, felt, had or denied, when and by whom.
_TELLING: Final = word_set(
    "not no nope nah don't doesn't didn't can't won't wouldn't never none nein non back gonna wanna gotta"
    " i'd i'll we'll we'd he she they they're go going see seeing have has had having got gets get make makes made"
    " do does did done doing can could will would should may might must say said tell telling feel feels think"
    " know mean means guess hope wish look looks sounds seems love happy excited proud stoked lucky work job stuff"
    " thing things everything anything something news new idea time morning afternoon evening night day today"
    " weekend tag abend morgen tardes noches días hear heard hearing catch wait believe keep take stay up out off"
    " down always again one point way kind chat talk forward bit happening myself yourself bet enjoy luck another"
    " same sorry me my mine our ours us we we're we've i i'm i've is was were am"
)
_PLAIN: Final = (FILLERS - _TELLING) | word_set(
    "hiya heya yo sup ty thankyou thnx tysm np yw lmao rofl hahaha hahahaha hehehe hihi xd ttyl brb cya ciao salut"
    " bye-bye goodnight hm hmmm uh um umm er eh huh ahh ahhh ohh yeahh yay wooo yummy gotcha"
    " muy merci vielen dank schönen beaucoup muchas gracias hasta luego ciao tschau servus moin grüß gott danke"
    " bonne bonsoir coucou oh ah ok okay grazie obrigado obrigada"
)
# Said after something that was told or asked, these say yes to it.
_ASSENT: Final = word_set(
    "yes yeah yep yup yea yeahh ok okay sure right definitely absolutely totally certainly exactly agreed agree"
    " indeed true course correct well please both all some more most much many too also better best gotcha ja"
    " genau oui accord d'accord sí vale claro si"
)
# Said after a proposal ("I will book it"), these do, too.
_APPROVAL: Final = word_set(
    "good great perfect excellent awesome cool nice sounds fine super toll gut bien genial"
)
_PROPOSES = re.compile(
    r"\b(?:will|shall|let's|could|should|would|can|plan|suggest|recommend|propose)\b|'ll\b", re.I
)
_EAST_ASSENT = re.compile("[好是对對行はええ네]|可以|没问题|当然|うん|了解|收到|明白|わかり|そう")
# Signs that say yes or no by themselves.
_SIGNS_OF_ASSENT: Final = frozenset("👍👎👌✅❌☑✔💯🙅🙆")
_EAST_DENIAL = re.compile("いいえ|不(?!客气)|没(?!问题)|沒(?!問題)|未")
_WHOLE: Final = word_set(
    "how_are_you how_are_you_doing how_are_you_today how_are_things how's_it_going how_is_it_going"
    " how_have_you_been how've_you_been what's_up whats_up what's_new how_do_you_do how're_you how_about_you"
    " and_you what_about_you you_too same_to_you good_morning good_afternoon good_evening good_night good_day"
    " have_a_nice_day have_a_great_day have_a_good_day have_a_good_one have_a_great_weekend have_a_nice_weekend"
    " take_care see_you see_ya see_you_later see_you_soon talk_to_you_later talk_to_you_soon talk_soon"
    " catch_you_later no_problem no_worries you're_welcome you_are_welcome you're_very_welcome my_pleasure"
    " don't_mention_it i_see oh_i_see i'm_fine i'm_good i'm_fine_thanks i'm_good_thanks i'm_fine_thank_you"
    " i'm_doing_well i'm_well nice_to_meet_you nice_to_see_you good_to_see_you great_to_see_you"
    " good_to_hear_from_you long_time_no_see long_time_no_talk good_luck sounds_good sounds_great good_job"
    " great_job nice_work great_work good_work well_done way_to_go keep_it_up happy_to_help glad_to_help"
    " guten_morgen guten_tag guten_abend gute_nacht auf_wiedersehen bis_bald bis_dann wie_geht's wie_geht_es_dir"
    " schönen_tag schönen_tag_noch gern_geschehen kein_problem keine_ursache ça_va comment_ça_va au_revoir"
    " à_bientôt à_demain bonne_journée bonne_nuit bonne_soirée de_rien je_vous_en_prie buenos_días buenas_tardes"
    " buenas_noches hasta_luego hasta_pronto hasta_mañana cómo_estás qué_tal de_nada"
)
_QUESTION_MARKS: Final = frozenset("?？؟")
_PHRASE_WORDS: Final = (5, 4, 3, 2)
_TOKEN = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_EAST = re.compile(f"[{CJK}]")


def says_nothing(chunk: ChunkText) -> bool:
    """Whether nobody said anything in a chunk that a fact could be made of, so that no model need be asked.

    Every turn is at most `TURN_CHARS_MAX` long and nothing but small talk, without a number, a name that is not
    one of the speakers', or a denial. Where the turn before the chunk told or asked something, no word or sign
    may stand that could agree to it; where it asked, nothing counts as small talk.
    """
    if any(len(turn.text.strip()) > TURN_CHARS_MAX for turn in chunk.turns):
        return False  # nearly all end here
    turns = (*chunk.turns, chunk.previous) if chunk.previous else chunk.turns
    speakers = frozenset(word for turn in turns for word in _words((turn.speaker or "")[:TURN_CHARS_MAX]))
    assents = True
    if chunk.previous is not None and not _is_empty(chunk.previous, speakers, assents=True):
        if not _QUESTION_MARKS.isdisjoint(chunk.previous.text):
            return False
        assents = False
        if _PROPOSES.search(chunk.previous.text) and any(map(_approves, chunk.turns)):
            return False
    return all(_is_empty(turn, speakers, assents=assents) for turn in chunk.turns)


def _approves(turn: TurnText) -> bool:
    return not _APPROVAL.isdisjoint(_words(turn.text))


def _is_empty(turn: TurnText, speakers: frozenset[str], *, assents: bool) -> bool:
    """Whether every sentence of a turn says nothing; with `assents`, "yes" is nothing either."""
    text = turn.text.strip()
    if len(text) > TURN_CHARS_MAX:
        return False
    text = unicodedata.normalize("NFKC", text).replace("’", "'")
    if any(one.isnumeric() for one in text if not _EAST.match(one)):
        return False
    if not (assents or _SIGNS_OF_ASSENT.isdisjoint(text)):
        return False
    return all(_is_nothing(sentence, speakers, assents=assents) for sentence in split_sentences(text))


def _is_nothing(sentence: str, speakers: frozenset[str], *, assents: bool) -> bool:
    if _EAST.search(sentence):
        spoken = "".join(_TOKEN.findall(sentence))
        if _EAST_DENIAL.search(spoken) or not (assents or not _EAST_ASSENT.search(spoken)):
            return False
        return EAST_FILLERS.fullmatch(spoken) is not None
    words = [word for word in _words(sentence) if not _is_speaker(word, speakers)]
    if not assents and not _ASSENT.isdisjoint(words):
        return False
    asks = bool(words) and sentence.rstrip().endswith(tuple(_QUESTION_MARKS))
    return _are_plain(words) and not (asks and not _ends_with_phrase(words))


def _are_plain(words: list[str]) -> bool:
    """Whether only words remain that say nothing, beside stock phrases ("hi, how are you")."""
    at = 0
    while at < len(words):
        longest = next((n for n in _PHRASE_WORDS if " ".join(words[at : at + n]) in _phrases()), 0)
        if not longest and words[at] not in _PLAIN:
            return False
        at += longest or 1
    return True


def _ends_with_phrase(words: list[str]) -> bool:
    """Whether a question is one that nobody answers ("Hello, how are you?")."""
    return any(" ".join(words[-n:]) in _phrases() for n in _PHRASE_WORDS)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.casefold())


def _is_speaker(word: str, speakers: frozenset[str]) -> bool:
    """Whether somebody is called who speaks here, by the name or the short form of it."""
    called = word not in FILLERS and (word in speakers or len(word) >= _SHORT_NAME_CHARS_MIN)
    return called and any(name.startswith(word) for name in speakers)


@cache
def _phrases() -> frozenset[str]:
    return frozenset(phrase.replace("_", " ") for phrase in _WHOLE)
