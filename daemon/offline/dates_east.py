"""The date rules of Chinese and Japanese, which know no word boundaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from daemon.offline.date_words import EAST, Rule
from daemon.offline.spans import (
    LAST,
    NEXT,
    THIS,
    Span,
    Unit,
    day_near,
    exact_day,
    month_near,
    one_day,
    period,
    season_near,
    season_of,
    weekday,
    whole_month,
    whole_year,
)

if TYPE_CHECKING:
    from datetime import date

_DIGITS: Final = {char: value for value, char in enumerate("〇一二三四五六七八九")} | {
    "两": 2,
    "兩": 2,
    "零": 0,
}
_NUMBER = r"(?:\d{1,3}|[一二三四五六七八九十两兩]{1,3})"
_WEEK = r"(?:周|週|星期|礼拜|禮拜)"

# Longer words stand first; what a word must not be part of is said around it ("目前天气" is no day).
_DAYS: Final = {
    "大前天": -3, "前天": -2, "一昨日": -2, "おととい": -2, "昨天": -1, "昨晚": -1, "昨夜": -1, "昨日": -1,
    "きのう": -1, "今天": 0, "今日": 0, "今晚": 0, "今夜": 0, "今早": 0, "大后天": 3, "明天": 1, "明日": 1,
    "明晚": 1, "后天": 2, "後天": 2, "明後日": 2, "あさって": 2,
}  # fmt: skip
_PERIODS: Final[dict[str, tuple[Unit, int]]] = {
    "上周末": ("weekend", -1), "上週末": ("weekend", -1), "先週末": ("weekend", -1), "下周末": ("weekend", 1),
    "来週末": ("weekend", 1), "这周末": ("weekend", 0), "本周末": ("weekend", 0), "今週末": ("weekend", 0),
    "上上周": ("week", -2), "先々週": ("week", -2), "上周": ("week", -1), "上週": ("week", -1),
    "上星期": ("week", -1), "上个星期": ("week", -1), "上個星期": ("week", -1), "上礼拜": ("week", -1),
    "先週": ("week", -1), "这周": ("week", 0), "這週": ("week", 0), "本周": ("week", 0),
    "这星期": ("week", 0), "这个星期": ("week", 0), "今週": ("week", 0),
    "下周": ("week", 1), "下週": ("week", 1),
    "下星期": ("week", 1), "下个星期": ("week", 1), "来週": ("week", 1), "再来週": ("week", 2),
    "上个月": ("month", -1), "上個月": ("month", -1), "上月": ("month", -1), "先月": ("month", -1),
    "这个月": ("month", 0), "本月": ("month", 0), "今月": ("month", 0), "下个月": ("month", 1),
    "下個月": ("month", 1), "来月": ("month", 1), "前年": ("year", -2), "一昨年": ("year", -2),
    "去年": ("year", -1), "昨年": ("year", -1), "今年": ("year", 0), "明年": ("year", 1), "来年": ("year", 1),
}  # fmt: skip
_YEARS: Final = {word: offset for word, (unit, offset) in _PERIODS.items() if unit == "year"}
_WEEKS: Final = {
    "上上": -2,
    "上": -1,
    "这": 0,
    "這": 0,
    "本": 0,
    "下": 1,
    "先々": -2,
    "先": -1,
    "今": 0,
    "来": 1,
}
_COUNTED: Final[tuple[tuple[str, Unit], ...]] = (
    ("周末", "weekend"), ("周", "week"), ("週", "week"), ("星期", "week"), ("礼拜", "week"), ("月", "month"),
    ("年", "year"), ("天", "day"), ("日", "day"),
)  # fmt: skip
_ZH_WEEKDAYS: Final = "一二三四五六日"
_JA_WEEKDAYS: Final = "月火水木金土日"
_SEASONS: Final = {"春": 0, "夏": 1, "秋": 2, "冬": 3}


def number_of(digits: str) -> int:
    """The value of up to three digits, Arabic or Chinese (十五 is 15, 二十 is 20)."""
    if digits.isdigit():
        return int(digits)
    tens, ten, ones = digits.rpartition("十")
    if ten:
        return (_DIGITS.get(tens, 1) if tens else 1) * 10 + (_DIGITS.get(ones, 0) if ones else 0)
    return _DIGITS.get(digits, 0)


def _any_of(words: dict[str, int] | dict[str, tuple[Unit, int]]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _written(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    month, number = number_of(match["month"]), number_of(match["day"]) if match["day"] else 0
    if not 1 <= month <= 12 or (match["day"] and not 1 <= number <= 31):
        return None
    relative = match["relative"]
    year = day.year + _YEARS[relative] if relative else int(match["year"]) if match["year"] else None
    if not match["day"]:
        which = NEXT if ahead else THIS
        return month_near(day, month, which) if year is None else whole_month(year, month)
    return day_near(day, month, number, ahead=ahead) if year is None else exact_day(year, month, number)


def _counted(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    del ahead
    count = number_of(match["count"])
    unit: Unit = next(one for name, one in _COUNTED if match["unit"].startswith(name))
    return period(unit, day, -count if match["side"] == "前" else count)


def _weekday(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    name = match["day"]
    number = 6 if name == "天" else (_ZH_WEEKDAYS if name in _ZH_WEEKDAYS[:6] else _JA_WEEKDAYS).index(name)
    if match["week"] is None:
        return weekday(day, number, THIS if ahead else LAST)
    monday = period("week", day, _WEEKS[match["week"]]).first
    return one_day(period("day", monday, number).first)


def _japanese_weekday(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    number = _JA_WEEKDAYS.index(match["day"])
    if match["week"] is None:
        return weekday(day, number, THIS if ahead else LAST)
    return one_day(period("day", period("week", day, _WEEKS[match["week"]]).first, number).first)


def _season(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    number = _SEASONS[match["season"]]
    if match["relative"]:
        return season_of(day.year + _YEARS[match["relative"]], number)
    return season_near(day, number, NEXT if ahead else THIS)


def _period(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    del ahead
    unit, offset = _PERIODS[match[0]]
    return period(unit, day, offset)


def _shifted(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    del ahead
    return period("day", day, _DAYS[match[0]])


def _year(match: re.Match[str], day: date, *, ahead: bool) -> Span | None:
    del day, ahead
    return whole_year(int(match["year"]))


_RELATIVE_YEAR = f"(?P<relative>{_any_of(_YEARS)})"

# Of rules that match at the same place the longest wins, of equally long ones the first.
RULES: Final[tuple[Rule, ...]] = (
    Rule(
        re.compile(
            rf"(?:{_RELATIVE_YEAR}の?|(?P<year>\d{{4}})\s*年\s*)?(?<!\d)(?P<month>{_NUMBER})\s*月(?!前|間|间|後|后)"
            rf"(?:\s*(?P<day>{_NUMBER})\s*[日号號])?"
        ),
        _written,
        EAST,
    ),
    Rule(re.compile(r"(?<!\d)(?P<year>(?:19|20)\d\d)\s*年"), _year, EAST),
    Rule(re.compile(rf"(?:{_RELATIVE_YEAR}の?)(?P<season>[春夏秋冬])[天季]?"), _season, EAST),
    Rule(
        re.compile(
            rf"(?P<count>{_NUMBER})\s*[个個ヶかカヵ]?(?P<unit>天|日|周末|周|週間|週|星期|礼拜|月|年)[間间]?"
            r"\s*(?:之|以)?(?P<side>[前後后])(?!天)"
        ),
        _counted,
        EAST,
    ),
    Rule(
        re.compile(
            rf"(?<![每毎\d一两几])(?:(?P<week>上上|上|下|这|這|本)[个個]?)?{_WEEK}(?P<day>[一二三四五六日天])(?![次个個回遍])"
        ),
        _weekday,
        EAST,
    ),
    Rule(
        re.compile(r"(?<![毎])(?:(?P<week>先々|先|今|来)週の?)?(?P<day>[月火水木金土日])曜"),
        _japanese_weekday,
        EAST,
    ),
    Rule(re.compile(rf"(?<![目之以])(?:{_any_of(_PERIODS)})(?![围圍边邊遭])"), _period, EAST),
    Rule(re.compile(rf"(?<![目之以])(?:{_any_of(_DAYS)})(?!天|[努香])"), _shifted, EAST),
)
HINT = re.compile(r"[年月日天周週曜昨明今夜晚]|星期|礼拜|きのう|おととい|あさって")
