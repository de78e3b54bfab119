"""Candidates for entity names in a sentence, by their capitals and without a model.

A capital at the head of a sentence proves nothing, so a single word there is `uncertain`; the fold decides
it by the counts of surviving turns (algorithms.md 1, scopes). Scripts without capitals give no candidates
of their own: only Latin names inside them and 《titles》.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from daemon.offline.date_words import MONTHS, WEEKDAYS
from daemon.offline.sentences import CJK, language_of, word_set
from events.memory import Mention

# One fact names a few things. A pasted list of a thousand capitals must not become a thousand scopes.
MENTIONS_MAX: Final = 12
LABEL_CHARS_MAX: Final = 80

# A word of one script: letters and digits, inner hyphens and apostrophes, C++ and C# with their signs.
_LETTER = rf"[^\W_{CJK}]"
_WORD = re.compile(rf"(?<!{_LETTER})(?<![@/._])(?!\d)(?:{_LETTER})+(?:[-'’&](?:{_LETTER})+)*(?:\+\+|\#(?!\w))?")
_TITLE = re.compile(r"《([^《》\n]{1,80})》")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|\S+@\S+\.\w+")
# Small words that stand inside a name: Lord of the Rings, Ludwig van Beethoven, Rio de Janeiro.
_INSIDE: Final = word_set("of the de del della da di du la le van von der den ter el y for")

# Capitals that name nothing: pronouns, starters, greetings, shouts. Contractions are cut before the look-up.
STOP_WORDS: Final = word_set(
    "i a an the this that these those it its he she they we you my your his her our their me him them us"
    " and but or so if as at by for from in into of on to with without about after before during since"
    " until what which who whom whose when where why how while because although though however therefore"
    " is are was were be been being am do does did have has had having can could will would shall should"
    " may might must not no yes yeah yep yup yea nope nah ok okay sure right well now then here there also"
    " just even still only too very really maybe perhaps probably definitely absolutely totally actually"
    " honestly basically anyway anyways besides btw lol omg haha ha hah fyi imo tbh asap lately recently"
    " finally hopefully luckily thankfully unfortunately sometimes always never often usually once ever"
    " again hi hey hello hiya howdy bye goodbye cheers thanks thank congrats congratulations sorry please"
    " welcome wow woah whoa woohoo woo yay aww awww aw ah oh ooh oops oof ouch hmm mm mmm phew yum ugh"
    " gosh damn god good great nice cool awesome amazing best super sounds looks glad happy excited proud"
    " lucky pretty all any some many most more much each every both either neither one two three other"
    " another such same everyone everybody everything someone something nothing nobody anyone anything"
    " anytime let let's keep take taking took got get getting give giving go going gonna gotta wanna make"
    " making made see seeing seems come look looking love loving like hope hoping wish wishing want need"
    " needs try trying think thinking guess believe remember talk talking tell say said ask know knowing"
    " feel feels feeling check appreciate enjoy enjoying catch stay staying start starting started"
    " spending having being doing play playing work working watch watching write writing learn learning"
    " help helping find finding bring last next first old long way life thing things stuff time today"
    " tomorrow yesterday tonight lots plus speaking especially although two dear mr mrs ms dr tv am pm ps"
    " diy vip faq pic pics user assistant system ich du er wir ihr mein meine dein der die das den dem ein"
    " eine und oder aber ja nein nicht wie wo wer wann hallo danke bitte gestern heute im am je tu il elle"
    " nous vous mon ma mes le la les un une et ou mais oui non merci bonjour hier yo él ella nosotros mi"
    " mis el los las una uno y pero sí gracias hola ayer hoy mañana en"
) | frozenset(name for name in (*MONTHS, *WEEKDAYS) if name not in {"jan", "april", "june", "august", "mai"})

# Of these no name consists, wherever they stand; the other stop words only explain a capital at the head.
_NEVER: Final = word_set(
    "i a an the my your his her our their we he she it they you ich mr mrs ms dr prof tv am pm ok lol omg btw"
) | frozenset(name for name in (*MONTHS, *WEEKDAYS) if name not in {"jan", "april", "june", "august", "mai"})
_TITLES: Final = word_set("mr mrs ms dr prof st")

_CONTRACTION = re.compile(r"['’](?:s|m|re|ve|ll|d|t)$", re.IGNORECASE)
# Nearly all other texts have none of these; of those that do, their function words decide.
_GERMAN = re.compile(
    r"\b(?:[Ii]ch|und|[Dd]er|[Dd]as|[Dd]ie|ist|nicht|wir|eine?n?|mit|zu|im|hat|habe|auf|wird|sich|für|seit|keine?n?"
    r"|meine?n?|Meine?|nach|bei)\b"
)

_HONOURED_JA = re.compile(
    r"(?:昨日|今日|明日|先日|先週|今週|来週|今朝|今夜|毎日|同僚|友人|友達|上司|隣人|(?<![\u4e00-\u9fff])|(?<=[のはがをにとへも、。]))"
    r"([\u4e00-\u9fff]{1,4}|[\u30a1-\u30faー]{2,10})(?:さん|くん|ちゃん|様|氏)"
)
_NO_NAMES_JA: Final = word_set(
    "皆 奥 娘 息子 客 医者 嫁 旦那 孫 子 赤 父 母 兄 姉 弟 妹 店員 運転手 神 王 王子 同 彼"
)
_HONOURED_ZH = re.compile(
    r"([王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔崔康毛邱秦江史顾侯邵孟龙万段钱汤尹黎易常武乔贺赖龚文"
    r"張劉陳楊黃吳孫馬羅鄭謝韓馮蕭鄧許呂蘇盧賈葉閻鍾譚鄒陸龍錢湯賴龔][\u4e00-\u9fff]{0,2}?)(?:先生|女士|小姐|老师|老師|医生|醫生|教授|经理|經理)"
)
_Word = re.Match[str]


class Name(NamedTuple):
    """What may be a name, and where it stands; `titled` is the same with its title (Dr. Wu), from `outer` on."""

    label: str
    start: int
    end: int
    outer: int
    titled: str


def find_mentions(sentence: str) -> tuple[Mention, ...]:
    """The names a sentence may hold, in its order, each once; at most `MENTIONS_MAX`."""
    text = unicodedata.normalize("NFC", sentence)
    if "." in text or "@" in text:
        text = _ADDRESS.sub(" ", text)
    # Only German writes every noun with a capital, only the East has no capitals at all.
    language = language_of(text) if not text.isascii() or _GERMAN.search(text) else ""
    eastern = language in ("zh", "ja", "ko")
    shouting = not eastern and text.isupper() and " " in text.strip()
    found: dict[str, bool] = dict.fromkeys(_TITLE.findall(text), False)
    if eastern:
        found.update(dict.fromkeys(_honoured(text), False))
    for run in _capital_runs(text):
        begins = not eastern and _begins_sentence(text, run[0].start())
        kept = _trimmed(run, begins=begins)
        label = _label_of(text, kept)
        if label:
            begins = begins and kept[0] is run[0]
            alone = len(kept) == 1 and not _has_inner_capital(label)
            uncertain = shouting or (alone and (begins or language == "de"))
            found[label] = found.get(label, True) and uncertain
    return tuple(Mention(label, uncertain=uncertain) for label, uncertain in list(found.items())[:MENTIONS_MAX])


def _honoured(text: str) -> list[str]:
    """People in Chinese and Japanese who are named with an honorific: 田中さん, 王小明老师, 王先生."""
    names = [match[1] for match in _HONOURED_JA.finditer(text) if match[1] not in _NO_NAMES_JA]
    # A surname alone is too short to be told from other words.
    return names + [match[1] if len(match[1]) > 1 else match[0] for match in _HONOURED_ZH.finditer(text)]


def find_names(sentence: str) -> list[Name]:
    """Each run of capitals that may be a name, with its place; a genitive is behind its end."""
    names: list[Name] = []
    for run in [] if sentence.isupper() else _capital_runs(sentence):
        kept = _trimmed(run, begins=_begins_sentence(sentence, run[0].start()))
        label = _label_of(sentence, kept)
        if label:
            start, outer = kept[0].start(), kept[0].start()
            if kept[0] is not run[0] and run[run.index(kept[0]) - 1].group().casefold() in _TITLES:
                outer = run[run.index(kept[0]) - 1].start()
            end = start + len(label)
            names.append(Name(label, start, end, outer, sentence[outer:end] if outer < start else ""))
    return names


def _capital_runs(text: str) -> list[list[_Word]]:
    """Runs of neighbouring words with capitals, small words between them included."""
    runs: list[list[_Word]] = []
    run: list[_Word] = []
    waiting: list[_Word] = []  # small words that count only when a capital follows
    for word in _WORD.finditer(text):
        last = waiting[-1] if waiting else run[-1] if run else None
        if last is not None and not _adjacent(text, last, word):
            runs.append(run)
            run, waiting = [], []
        if _is_capital(word.group()):
            run += [*waiting, word]
            waiting = []
        elif run and word.group() in _INSIDE and len(waiting) < 2:
            waiting.append(word)
        elif run:
            runs.append(run)
            run, waiting = [], []
    return [*runs, run] if run else runs


def _adjacent(text: str, last: _Word, word: _Word) -> bool:
    """Whether two words may belong to one name: "Alice's Dog" may not, "J. R. Tolkien" may."""
    between, written = text[last.end() : word.start()], last.group()
    if between == ". ":
        return (len(written) == 1 and written.isupper()) or written.casefold() in _TITLES
    return between == " " and not _CONTRACTION.search(written)


def _is_capital(word: str) -> bool:
    return word != word.lower() and (len(word) > 2 or word[0].isupper())


def _has_inner_capital(word: str) -> bool:
    """LGBTQ, iPhone, McDonald, C++: a shape that is no accident of the sentence's head."""
    return len(word) > 1 and (any(char.isupper() for char in word[1:]) or word.endswith(("+", "#")))


def _begins_sentence(text: str, at: int) -> bool:
    """Whether only marks stand between the last sentence's end (or the text's begin) and `at`."""
    before = text[:at].rstrip(" \t\"'“‘«(*-–—•¿¡:")
    return not before or before[-1] in ".!?…\n"


def _is_stop(word: str, stop_words: frozenset[str]) -> bool:
    small = word.replace("’", "'").casefold()
    if word in {"IT", "US"}:
        return False
    return small in stop_words or small.endswith("n't") or _CONTRACTION.sub("", small) in stop_words


def _trimmed(run: list[_Word], *, begins: bool) -> list[_Word]:
    """The run without the stop words at its head and the small words at its end."""
    first, last = 0, len(run)
    while first < last and _is_stop(run[first].group(), STOP_WORDS if begins or last == 1 else _NEVER):
        first += 1
    while last > first and (run[last - 1].group() in _INSIDE or _is_stop(run[last - 1].group(), _NEVER)):
        last -= 1
    return run[first:last]


def _label_of(text: str, run: list[_Word]) -> str:
    """The name as it is written, without a genitive; "" when it cannot be one."""
    if not run:
        return ""
    label = _CONTRACTION.sub("", text[run[0].start() : run[-1].end()])
    return label if 1 < len(label) <= LABEL_CHARS_MAX else ""
