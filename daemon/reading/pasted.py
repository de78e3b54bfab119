"""Code, logs and tables that people paste into a conversation, told from what they say.

Nobody wants facts of each of their numbers and names, so their details are not asked for again.
"""

from __future__ import annotations

import re
from functools import cache

# Of longer lines the head tells.
LINE_CHARS_MAX = 400
# A line of so many numbers and fewer words is a row.
_NUMBERS_MIN = 5
# In a line of code every twentieth character is one of these, and three at least.
_SIGNS_MIN = 3
_CHARS_PER_SIGN = 20

# Nearly all texts end here: no digit, no fence, no row, none of the signs of code.
_SIGN_OR_DIGIT = re.compile(r"[\d{}<>=|\\_$;\t`]")
_SUSPECT = re.compile(
    r"[{}<>=|\\_$;\t]|```|Traceback|[0-9a-f]{24}|^[ \t]{0,16}at \w|(?:\d{1,15}[^\dA-Za-z]{1,3}){4}\d", re.MULTILINE
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_BLOCK = re.compile(r"\n[ \t]*\n")
_SIGNS = re.compile(r"[{}\[\]=|\\_$;\t]| [<>]=? ")
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
_WORD = re.compile(r"[^\W\d_]{2,}")


def without_pasted(text: str) -> str:
    """The text without fences, lines of code, logs and tables, and without blocks that are mostly such lines."""
    if not (_SIGN_OR_DIGIT.search(text) and _SUSPECT.search(text)):
        return text
    text = _FENCED.sub("\n\n", text)
    return "\n\n".join(filter(None, map(_said_in, _BLOCK.split(text))))


def _said_in(block: str) -> str:
    lines = block.split("\n")
    said = [line for line in lines if not _is_machines(line[:LINE_CHARS_MAX])]
    pasted = len(lines) - len(said)
    return "" if pasted > 1 and 2 * pasted >= len(lines) else "\n".join(said)


def _is_machines(line: str) -> bool:
    """Whether no person talks like this."""
    if _machines().search(line):
        return True
    signs = len(_SIGNS.findall(line))
    if signs >= _SIGNS_MIN and signs * _CHARS_PER_SIGN >= len(line):
        return True
    numbers = len(_NUMBER.findall(line))
    return numbers >= _NUMBERS_MIN and numbers > len(_WORD.findall(line))


@cache
def _machines() -> re.Pattern[str]:
    """Prompts of shells, times and frames of logs, heads of definitions, hashes."""
    head = (
        r"\s{0,40}(?:\$ |>>> |\.\.\. |\+{3} |-{3} [\w/]|@@ )"
        r"|\s{0,40}\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
        r"|\s{0,40}(?:File \"|at [\w$.<>]+\(|Traceback \(|Caused by: )"
        r"|\s{0,40}(?:(?:def|class|func|fn) \w+ ?[(:{]|(?:public|private|const|let|var) \w+.*[=({;]"
        r"|(?:import|from) [\w.]+(?: import\b|;|$)|(?:raise|return)\b.*[(;=])"
        r"|[A-Z]\w+(?:Error|Exception): "
    )
    return re.compile(rf"^(?:{head})|\b[\w.]+\.\w+\(|[;{{]\s*$|\b[0-9a-f]{{24,}}\b")
