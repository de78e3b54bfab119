"""Other names in Chinese and Japanese, where nothing parts a name from its sentence but marks and a few words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_EAST = re.compile(f"[{_HAN}\u3040-\u30ff]")
_LATIN = r"[A-Z][A-Za-z.'-]*(?: [A-Z][A-Za-z.'-]*){0,3}"
# A name that is followed by a mark or the end, and one that is behind one: of few signs, or it is a sentence.
_OPEN, _CLOSE = '[「『“"《]?', '[」』”"》]?'
_NAME = (
    rf"{_OPEN}(?P<alias>{_LATIN}|[{_HAN}·]{{1,6}}?|[\u30a0-\u30ff·ー]{{2,10}}|[\u3040-\u309fー]{{2,6}}?){_CLOSE}"
)
_END_ZH = r"(?=[，。！；、,.!;）)]|$|就好|就行|就可以|吧|的|了)"
_END_JA = r"(?=さん|ちゃん|くん|[、。！,.!）)]|$|で|です|だ|と)"
_LABEL = rf"(?P<label>{_LATIN}|[{_HAN}\u30a0-\u30ff·ー]{{2,10}})"
_HONORIFIC: Final = r"(?:さん|くん|君|ちゃん|様|氏)?"

_ZH_ALSO: Final = re.compile(
    rf"{_LABEL}[」』”\"]?(?:[，,（(]|的)?(?:他|她|它)?(?:，)?(?:又名|又叫|也叫做?|也称为?|又称|亦称|别名(?:是|叫)?|外号(?:是|叫)?|小名(?:是|叫)?"
    rf"|绰号(?:是|叫)?|昵称(?:是|叫)?|英文名(?:是|叫)?|中文名(?:是|叫)?|简称|俗称)[：:]?{_NAME}{_END_ZH}"
)
_ZH_ALL_CALL: Final = re.compile(
    rf"{_LABEL}，(?:但|但是|不过)?(?:大家|朋友们?|我们|同学们?|家人|同事们?)(?:都|一般|平时)?(?:叫|喊|管)(?:他|她|它|我)(?:叫)?{_NAME}{_END_ZH}"
)
_ZH_ME: Final = re.compile(rf"(?:请|可以|就|都|一般|大家|朋友们?|同事们?|，|^)叫我{_NAME}{_END_ZH}")
_ZH_I_AM: Final = re.compile(
    rf"我(?:的名字)?(?:叫|是){_OPEN}(?P<label>{_LATIN}|[{_HAN}·]{{2,4}}){_CLOSE}(?=[，。！,.!]|$)"
)
_JA_ALSO: Final = re.compile(
    rf"{_LABEL}{_HONORIFIC}[」』]?(?:、|（|\(|は、?|の)?(?:通称|別名|愛称は?|あだ名は?|ニックネームは?|またの名を|略称は?|略して)、?{_NAME}{_END_JA}"
)
_JA_ALL_CALL: Final = re.compile(
    rf"(?:みんな|皆|友達|家族|私たち)(?:は|が){_LABEL}{_HONORIFIC}(?:のこと)?を{_NAME}(?:さん|ちゃん|くん)?と呼(?:ぶ|んで|びます|ばれ)"
)
_JA_CALLED: Final = re.compile(rf"{_LABEL}{_HONORIFIC}は(?:みんなに|皆に|友達に)?{_NAME}と呼ばれて")
_JA_ME: Final = re.compile(rf"(?:^|[、。])(?:私を|僕を|気軽に)?{_NAME}(?:さん|ちゃん|くん)?と呼んで(?!い)")
_JA_I_AM: Final = re.compile(rf"(?:私の)?名前は{_OPEN}{_LABEL}{_CLOSE}(?:です|だ|と)")
_ASKED_OR_DENIED: Final = re.compile(r"[吗嗎呢]|ですか|ますか|别叫|不要|不叫|没有|別叫|ないで|ません|[?？]")
# What stands before a name in one run of signs with it: 我的朋友李明, 我住在北京.
_BEFORE: Final = re.compile(
    r"^.*(?:朋友|同事|同学|老板|老师|医生|邻居|姐姐|妹妹|哥哥|弟弟|儿子|女儿|妻子|丈夫|的|叫|是|和|跟|与|在|见到|认识|去|友人|同僚|友達|上司)"
)
_MARKS = re.compile(r"^[\s·ー]+|[\s·]+$")


def find_eastern(sentence: str, speaker: str | None) -> Iterator[tuple[str, str]]:
    """Pairs of (name, alias) as they are written; of the speaker where they speak of themselves."""
    if not _EAST.search(sentence) or _ASKED_OR_DENIED.search(sentence):
        return
    for pattern in (_ZH_ALSO, _ZH_ALL_CALL, _JA_ALSO, _JA_ALL_CALL, _JA_CALLED):
        for match in pattern.finditer(sentence):
            label = _bare(match["label"])
            if label:
                yield label, match["alias"]
    introduced = _ZH_I_AM.search(sentence) or _JA_I_AM.search(sentence)
    own = introduced["label"] if introduced else speaker or ""
    for pattern in (_ZH_ME, _JA_ME):
        told = pattern.search(sentence)
        if told and own:
            yield own, told["alias"]


def _bare(label: str) -> str:
    """The name at the end of a run of signs; "" when it cannot be told."""
    if label.isascii():
        return label
    bare = _MARKS.sub("", _BEFORE.sub("", label))
    is_han = all("\u3400" <= sign <= "\u9fff" for sign in bare)
    return bare if 2 <= len(bare) <= (4 if is_han else 10) else ""
