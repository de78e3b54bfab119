"""What a state is about, whatever a model calls it: one name for "residence" and "wohnort", and whether an entity
has one value of it at a time, or may have several.

Made for precision: of an attribute that may hold several values no value ends another, and an attribute that no
list here knows is left under its own name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

HOME: Final = "home"
EMPLOYER: Final = "employer"
JOB: Final = "job"
DIET: Final = "diet"
RELATIONSHIP: Final = "relationship"

# A longer one is a sentence, as models write when they have no name.
ATTRIBUTE_CHARS_MAX: Final = 40

# In normal form (see `normalise_label`). A home town is where one comes from, an address is no town, and where
# somebody is just now ("location") is not where they live: none of these is a home.
_NAMES: Final = {
    HOME: """
        home | home city | city of residence | residence | place of residence | current residence
        | lives in | living in | lives | residing in | resides in | home location | current home
        | current city | residency | wohnort | wohnsitz | zuhause | wohnt in | domicile
        | lieu de résidence | résidence | domicilio | residencia | lugar de residencia
        | ciudad de residencia | vive en | residenza | moradia | residência | 居住地 | 现居地 | 住处 | 居住城市
        | 住所 | 常住地 | 居住地点 | 自宅 | 住まい
    """,
    EMPLOYER: """
        employer | company | current employer | works at | works for | workplace | place of work
        | arbeitgeber | firma | arbeitet bei | employeur | entreprise | lieu de travail | empleador
        | empresa | lugar de trabajo | datore di lavoro | empregador | 雇主 | 公司 | 工作单位 | 任职公司 | 勤務先
        | 会社
    """,
    JOB: """
        job | job title | occupation | profession | works as | current job | position | career
        | beruf | job titel | berufsbezeichnung | arbeitet als | métier | profession | emploi | poste
        | profesión | ocupación | trabajo | puesto | puesto de trabajo | professione | lavoro
        | profissão | emprego | 职业 | 工作 | 职位 | 岗位 | 職業 | 仕事
    """,
    DIET: """
        diet | dietary preference | eating habits | ernährung | ernährungsweise | régime
        | régime alimentaire | dieta | alimentación | 饮食 | 饮食习惯 | 食生活
    """,
    RELATIONSHIP: """
        relationship | relationship status | marital status | civil status | familienstand
        | beziehungsstatus | état civil | statut marital | estado civil | stato civile | 婚姻状况 | 婚姻
        | 感情状况 | 婚姻状態
    """,
}
_CANONICAL: Final = {name.strip(): known for known, names in _NAMES.items() for name in names.split("|")}

# These words of an attribute say that there may be several: a second dog does not end the first, nor a new hobby
# the old one.
_SEVERAL: Final = re.compile(
    r"\b(?:pets?|dogs?|cats?|animals?|hobb(?:y|ies)|interests?|activit(?:y|ies)|sports?|languages?|friends?"
    r"|child(?:ren)?|kids?|sons?|daughters?|siblings?|brothers?|sisters?|cousins?|grand\w+|nieces?|nephews?|family"
    r"|relatives?|colleagues?|neighbou?rs?|allerg\w+|intoleranc\w+|conditions?|medications?|skills?|instruments?|health|symptoms?|illness\w*|injur\w*"
    r"|likes?|dislikes?|loves?|favou?rites?|preferences?|possessions?|belongings?|owns?|collections?|memberships?"
    r"|certificat\w+|degrees?|awards?|projects?|goals?|habits?|beliefs?|values?|fears?|traits?|accounts?|devices?"
    r"|haustiere?|hunde?|katzen?|hobbys|interessen|sprachen?|freunde?|kind(?:er)?|sohn|söhne|töchter|tochter"
    r"|geschwister|brüder|bruder|schwestern?|allergien?|fähigkeiten|instrumente|vorlieben|animaux|chiens?|chats?"
    r"|loisirs|intérêts|langues?|amie?s?|enfants?|fils|filles?|frères?|s[œo]eurs?|allergies?|compétences"
    r"|mascotas?|perros?|gatos?|aficiones|intereses|idiomas?|lenguas?|amig[oa]s?|hij[oa]s?|herman[oa]s?|alergias?"
    r"|habilidades|gustos)\b"
    r"|宠物|寵物|爱好|愛好|兴趣|興趣|语言|語言|朋友|孩子|子女|儿子|女儿|兄弟|姐妹|过敏|過敏|技能|乐器|喜欢|喜好|偏好|最爱"
    r"|ペット|趣味|言語|友達|友人|子供|子ども|兄弟|姉妹|アレルギー|好き"
)

# What a model calls a state when it has no word for it: the next one of that name is about something else.
_ANY_STATE: Final = re.compile(
    r"(?:(?:state|status|fact|info|information|detail|attribute|property|other|miscellaneous|misc|general|description"
    r"|note|event|situation|experience|feeling|emotion|opinion|thought|plan|update|background"
    r"|personality|characteristic|life|topic|need|want|wish|unknown|none|null|n/a|zustand|eigenschaft|sonstiges"
    r"|estado|état|otros?|autre)s?|properties|personal (?:info|information|details?)|is|has|does"
    r"|状态|狀態|其他|情况|信息|状態|その他)"
)

# The values that exclude each other, by what they are called (in normal form); other words say nothing of it: one
# may eat without gluten and no meat, and be happy and married. A value whose words are all among another's goes
# with it: vegans eat no meat.
_VALUES: Final = {
    DIET: {
        "meatless vegan": r"vegan\w*|végan\w*|végétalien\w*|纯素|全素|ヴィーガン|ビーガン",
        "meatless vegetarian": r"vegetarian\w*|vegetarier\w*|vegetarisch\w*|végétarien\w*|吃素|是素|素食"
        r"|ベジタリアン|菜食",
        "meatless pescatarian": r"pescatarian\w*|pescetarian\w*|pescetarier\w*|pesco\w*",
        "omnivore": r"omnivor\w*|(?:eats|eating|eat|isst|mange|comes?|come) (?:meat|fleisch|de la viande|carne)"
        r"(?: again| wieder| de nuevo)?|吃肉|食肉",
        "meatless": r"(?:doesn't|don't|does not|do not) eat meat|(?:isst|esse) kein fleisch|no com[eo] carne"
        r"|ne mange (?:pas|plus) de viande|不吃肉",
    },
    RELATIONSHIP: {
        "single": r"single(?!-)|ledig|célibataire|solter[oa]|单身|單身|独身",
        "dating": r"dating|in a relationship|seeing someone|in einer beziehung|en couple|谈恋爱|恋爱中",
        "engaged": r"engaged(?! (?:in|with)\b)|verlobt|fiancée?s?|comprometid[oa]|订婚|訂婚|婚約",
        "married": r"married|verheiratet|mariée?s?|casad[oa]s?|结婚|結婚|已婚",
        "separated": r"separated(?! (?:by\b|from (?!(?:\w+ )?(?:wife|husband|partner|spouse)\b)))"
        r"|getrennt|séparée?s?|separad[oa]s?|分居|別居",
        "divorced": r"divorced|geschieden|divorcée?s?|divorciad[oa]s?|离婚|離婚|离异",
        "widowed": r"widow(?:ed|er)?|verwitwet|veuve?|viud[oa]|丧偶|寡",
    },
}
_VALUE_WORDS: Final = {
    attribute: [
        (value, re.compile(rf"\b(?:{words})\b|(?:{words})(?<=[\u3040-\u9fff])")) for value, words in known.items()
    ]
    for attribute, known in _VALUES.items()
}
# Of these a place or a company is the value; what names none does not tell one from the other.
NAMED: Final = frozenset((HOME, EMPLOYER))


_WHOSE: Final = re.compile(r"^(?:(?:[^\W_]+)?'s |current |the |my |his |her |their |user )+")


@lru_cache(maxsize=1024)
def canonical_attribute(attribute: str) -> str:
    """The one name of an attribute in normal form; its own when no other is known."""
    bare = _WHOSE.sub("", attribute.replace("_", " ").strip(" :?"))
    return _CANONICAL.get(bare) or _CANONICAL.get(attribute) or bare


@lru_cache(maxsize=1024)
def holds_several(attribute: str) -> bool:
    """Whether an entity may have several values of an attribute at a time, so that none ends another."""
    known = canonical_attribute(attribute)
    return known not in _NAMES and (
        _SEVERAL.search(attribute) is not None
        or _ANY_STATE.fullmatch(known) is not None
        or not (any(map(str.isalpha, known)) and len(known) <= ATTRIBUTE_CHARS_MAX)
    )


def is_known(attribute: str) -> bool:
    """Whether a canonical attribute is one of those that have lists here."""
    return attribute in _NAMES


def known_values(attribute: str) -> bool:
    """Whether the values of an attribute are a closed list."""
    return attribute in _VALUES


def find_value(attribute: str, folded: str) -> str | None:
    """The value of a closed list that a case-folded text says first; None when it says none of them."""
    found = [
        (match.start(), value)
        for value, pattern in _VALUE_WORDS[attribute]
        if (match := pattern.search(folded)) is not None
    ]
    return min(found)[1] if found else None
