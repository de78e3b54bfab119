"""Names of places that have towns in them, and other names of towns, in several languages.

"Lives in Germany" and "lives in Berlin" may both be so, so neither ends the other, and neither does a move from
"NYC" to "New York". Names of states that are as often a town (New York, Washington, Luxembourg, Singapore, Mexico)
are missing among the states.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from projections.facts.labels import labels_in, normalise_label


class Width(IntEnum):
    """How wide a place is: each may be in one that is wider. The numbers are kept in snapshots."""

    DISTRICT = 0
    TOWN = 1
    STATE = 2
    AREA = 3  # several states
    COUNTRY = 4
    CONTINENT = 5


# In normal form, without an article; "=" stands between the names of one place.
_CONTINENTS: Final = """
    europe = europa = 欧洲 = ヨーロッパ | asia = asien = asie = 亚洲 | africa = afrika = afrique = áfrica
    | south america = südamerika | north america = nordamerika
"""
_COUNTRIES: Final = """
    usa = us = u.s = u.s.a = united states = united states of america = america = states = amerika
    = vereinigte staaten = états-unis = estados unidos = eeuu = 美国 = 美國 = アメリカ
    | canada = kanada = canadá = 加拿大 = カナダ | brazil = brasilien = brésil = brasil | argentina | chile
    | colombia | peru | venezuela | ecuador | cuba | ireland = irland = irlande = irlanda
    | uk = united kingdom = britain = great britain = großbritannien = grossbritannien = royaume-uni = reino unido
    = 英国 = イギリス
    | germany = deutschland = allemagne = alemania = 德国 = ドイツ
    | france = frankreich = francia = 法国 = フランス | spain = spanien = espagne = españa = 西班牙 = スペイン
    | italy = italien = italie = italia = 意大利 = イタリア | portugal
    | netherlands = holland = niederlande = pays-bas = países bajos
    | belgium = belgien = belgique = bélgica | switzerland = schweiz = suisse = suiza
    | austria = österreich = autriche | poland = polen = pologne = polonia | czechia = czech republic | slovakia
    | hungary | romania | bulgaria | greece = griechenland = grèce = grecia | turkey = türkei = turquie = turquía
    | sweden = schweden = suède = suecia | norway = norwegen = norvège = noruega | denmark = dänemark | finland
    | iceland | ukraine | russia = russland = russie = rusia = 俄罗斯 | belarus | serbia | croatia | slovenia
    | bosnia | albania | estonia | latvia | lithuania | georgia | armenia | israel | lebanon | jordan | egypt
    | morocco = maroc = marruecos | tunisia | algeria | nigeria | kenya | ghana | ethiopia | tanzania | uganda
    | south africa | saudi arabia | uae = united arab emirates | qatar | iran | iraq | syria | afghanistan
    | pakistan | india = indien = inde = 印度 | nepal | bangladesh | sri lanka
    | china = chine = 中国 | japan = japon = 日本 | korea = south korea = 韩国
    | taiwan | vietnam | thailand | malaysia | indonesia | philippines
    | australia = australien = 澳大利亚 | new zealand
"""
_STATES: Final = """
    california | texas | florida | illinois | pennsylvania | ohio | michigan | north carolina
    | south carolina | virginia | west virginia | washington state | arizona | massachusetts
    | tennessee | indiana | missouri | maryland | wisconsin | colorado | minnesota | alabama
    | louisiana | kentucky | oregon | oklahoma | connecticut | utah | iowa | nevada | arkansas
    | mississippi | kansas | new mexico | nebraska | idaho | hawaii | new hampshire | maine | montana
    | rhode island | delaware | south dakota | north dakota | alaska | vermont | wyoming | new jersey
    | upstate new york | ontario | quebec | england = angleterre = inglaterra | scotland = schottland | wales
    | northern ireland
    | british columbia | alberta | bavaria = bayern | hessen | sachsen | nordrhein-westfalen | bretagne
    | provence | normandie | catalonia = cataluña | andalucía = andalusia | toscana = tuscany
    | queensland | new south wales | victoria state | guangdong = 广东 | 浙江 | 江苏 | 四川 | 北海道
"""
_TOWNS: Final = """
    new york = new york city = nyc = 纽约 | los angeles = la = l.a = 洛杉矶 | san francisco = sf = 旧金山
    | washington = washington dc = dc = d.c = washington d.c | philadelphia = philly | las vegas = vegas
    | munich = münchen | cologne = köln | vienna = wien = viena | zurich = zürich | geneva = genf = genève
    | rome = roma = rom = 罗马 | milan = milano = mailand | venice = venezia = venedig
    | florence = firenze = florenz | naples = napoli | lisbon = lisboa = lissabon | prague = praha = prag
    | warsaw = warszawa = warschau | copenhagen = københavn = kopenhagen | brussels = bruxelles = brüssel
    | athens = athen | moscow = moskau = moscou | london = londres = 伦敦 = ロンドン
    | paris = parís = 巴黎 = パリ | berlin = berlín = 柏林 = ベルリン
    | seville = sevilla | beijing = peking = 北京 | shanghai = 上海 | hong kong = 香港 | tokyo = tokio = 东京
    = 東京 | osaka = 大阪 | kyoto = 京都 | seoul = 首尔
    | singapore = singapur = 新加坡 | boston = 波士顿 = ボストン
    | bangalore = bengaluru | mumbai = bombay
"""
_AREAS: Final = "new england | midwest | west coast | east coast | bay area | silicon valley"
_DISTRICTS: Final = """
    brooklyn | manhattan | queens | bronx | staten island | harlem | williamsburg | hollywood | kreuzberg
    | neukölln
    | prenzlauer berg | montmartre | soho | camden | hackney | shibuya = 渋谷 | shinjuku = 新宿 | 浦东
"""
_WIDTHS: Final = {
    Width.DISTRICT: _DISTRICTS,
    Width.AREA: _AREAS,
    Width.TOWN: _TOWNS,
    Width.STATE: _STATES,
    Width.COUNTRY: _COUNTRIES,
    Width.CONTINENT: _CONTINENTS,
}
# Each name's one name, and how wide the place is.
_PLACES: Final[dict[str, tuple[str, Width]]] = {
    " ".join(name.split()): (" ".join(place.split("=")[0].split()), width)
    for width, places in _WIDTHS.items()
    for place in places.split("|")
    for name in place.split("=")
}
_LONG_NAMES: Final = frozenset(name for name in _PLACES if len(name) > 2 or not name.isascii())
_LENGTHS: Final = frozenset(map(len, _LONG_NAMES))


def places_in(text: str) -> list[str]:
    """The one names of the known places that a text names; abbreviations of two letters are words, too."""
    named = labels_in(normalise_label(text), _LONG_NAMES, _LENGTHS)
    return list(dict.fromkeys(_PLACES[name][0] for name in named))


def find_place(label: str) -> tuple[str, Width]:
    """The one name of a place in normal form, and how wide it is; an unknown one is a town."""
    bare = label.removeprefix("the ").removesuffix("市")
    return _PLACES.get(bare) or (bare, Width.DISTRICT if label.endswith("区") else Width.TOWN)
