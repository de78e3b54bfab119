"""Which car, phone and partner somebody says they have; by pattern, as `fact_roles` reads other states.

Made for precision: of what one buys only what a known make names is a car or a phone.
"""

from __future__ import annotations

import re
from typing import Final

from daemon.offline.sentences import word_set

CAR: Final = "car"
PHONE: Final = "phone"
PARTNER: Final = "partner"

_CARS: Final = (
    "Toyota|Honda|Ford|Tesla|BMW|Audi|Volkswagen|VW|Mercedes|Subaru|Mazda|Nissan|Kia|Hyundai|Volvo|Renault"
    "|Peugeot"
    "|Citroën|Citroen|Fiat|Seat|Skoda|Opel|Jeep|Chevrolet|Chevy|Dodge|Lexus|Acura|Porsche|Mini|Smart|Dacia"
    "|Suzuki"
    "|Mitsubishi|Polestar|Rivian|Prius|Corolla|Camry|Civic|Golf|Polo|Passat|Twingo|Clio|Corsa"
)
_PHONES: Final = (
    "iPhone|Pixel|Galaxy|Samsung|Nokia|Huawei|Xiaomi|OnePlus|Motorola|BlackBerry|Fairphone|Google Pixel|Redmi"
)
# Behind a make a model or the sentence goes on: not a brochure, and no dealer.
_ENDS: Final = (
    r"\b(?=(?:[ -][A-Z\d]|\s*[.,;:!?)]|$"
    r"| (?:for|last|this|today|yesterday|and|but|from|in|now|because|so|that|to|on|with|which|instead|again"
    r"|seit|und|aber|für|et|mais|depuis|y|pero|desde)\b))"
)
# What stands between "a" and a make.
_KIND: Final = (
    r"(?:(?:old|new|used|second-hand|red|blue|white|black|green|grey|gray|silver|little|trusty|\d{4}) ){0,2}"
)
_I: Final = r"\bI(?:'ve|'m| am| have)?(?: (?:just|now|currently|finally|recently|still|also))?"
_GOT: Final = r"(?:bought|got|gotten|purchased|leased|own|have|switched to|upgraded to|picked up)"
_NAMED: Final = r"(?=[A-ZÀ-ÖØ-Þ][\w'’-]+)"

OWNED_STATES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        CAR,
        re.compile(
            rf"{_I} (?:drive|driving) (?:an? |my ){_KIND}(?:{_CARS}){_ENDS}"
            rf"|{_I} {_GOT} (?:myself )?(?:an? |my ){_KIND}(?:{_CARS}){_ENDS}"
            rf"|{_I} traded (?:in )?(?:it|(?:my"
            rf"|the) [\w ]{{1,24}}) (?:in )?for (?:an? ){_KIND}(?:{_CARS}){_ENDS}"
            rf"|\b[Mm]y (?:new |first )?car is (?:now )?(?:an? ){_KIND}(?:{_CARS}){_ENDS}"
            rf"|\b[Ii]ch (?:fahre|habe mir|habe) (?:jetzt |nun |aktuell |gerade )?(?:einen?|ein) (?:neuen? "
            rf"|alten? )?(?:{_CARS}){_ENDS}"
            rf"|\b[Jj](?:e conduis|'ai acheté) (?:maintenant )?une? (?:nouvelle |vieille )?(?:{_CARS}){_ENDS}"
            rf"|\b(?:[Cc]onduzco|[Mm]anejo|[Cc]ompré|[Mm]e compré) (?:ahora )?un (?:nuevo "
            rf"|viejo )?(?:{_CARS}){_ENDS}"
        ),
    ),
    (
        PHONE,
        re.compile(
            rf"{_I} (?:{_GOT}|use|using) (?:myself )?(?:an? |my |the ){_KIND}(?:{_PHONES}){_ENDS}"
            rf"|\b[Mm]y (?:new )?(?:phone|mobile|cell) is (?:now )?(?:an? |the ){_KIND}(?:{_PHONES}){_ENDS}"
            rf"|\b[Ii]ch (?:benutze|nutze|habe(?: mir)?) (?:jetzt |nun |aktuell )?(?:ein|das) (?:neues? "
            rf"|altes? )?(?:{_PHONES}){_ENDS}"
            rf"|\b[Jj](?:'utilise|'ai acheté|'ai) (?:maintenant )?un (?:nouvel |vieux )?(?:{_PHONES}){_ENDS}"
            rf"|\b(?:[Uu]so|[Tt]engo|[Cc]ompré|[Mm]e compré) (?:ahora )?un (?:nuevo "
            rf"|viejo )?(?:{_PHONES}){_ENDS}"
        ),
    ),
    (
        PARTNER,
        re.compile(
            rf"{_I}(?: been)? (?:dating|seeing|going out with|started dating|started seeing|engaged to"
            rf"|married to) {_NAMED}"
            rf"|\bI (?:started dating|started seeing|got engaged to|got married to|married) {_NAMED}"
            rf"|\b[Mm]y (?:new |current )?(?:girlfriend|boyfriend|partner|wife|husband|fiancée?)"
            rf"(?:'s name is| is called| is named| is|,)? {_NAMED}"
            rf"|\b[Mm]eine? (?:neue[rn]? )?(?:Freundin|Partnerin|Ehefrau|Frau|Partner|Mann) (?:heißt "
            rf"|ist )?(?:[A-Z]\w+)(?= |\.|$)"
            rf"|\b[Jj]e sors avec {_NAMED}|\b[Mm](?:on|a) (?:nouve(?:au|lle) )?(?:copine|copain|compagne"
            rf"|compagnon|femme|mari)"
            rf" (?:s'appelle |est )?{_NAMED}"
            rf"|\b(?:[Ee]stoy saliendo|[Ss]algo) con {_NAMED}|\b[Mm]i (?:nuev[oa] )?(?:novi[oa]|pareja"
            rf"|espos[oa]|marido)"
            rf" (?:se llama |es )?{_NAMED}"
        ),
    ),
)
# A state that its speaker says is over.
OWNED_STATES_LEFT: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        PARTNER,
        re.compile(
            rf"\bI(?:'ve)?(?: just)? (?:broke up|broken up|split up) with {_NAMED}"
            rf"|\b{_NAMED}\w+ and I(?:'ve)?(?: just| have)? (?:broke up|broken up|split up|divorced)\b"
        ),
    ),
)
# One of these words stands in every sentence that says such a state.
OWNED_HINTS: Final = word_set(
    "drive driving bought got gotten purchased leased own have switched upgraded picked traded car fahre habe"
    " conduis"
    " j'ai conduzco manejo compré use using phone mobile cell benutze nutze j'utilise uso tengo dating seeing"
    " going"
    " started engaged married girlfriend boyfriend partner wife husband fiancé fiancée freundin partnerin"
    " ehefrau frau"
    " mann sors copine copain compagne compagnon femme mari saliendo salgo novio novia pareja esposo esposa"
    " marido"
    " broke broken split divorced"
)
