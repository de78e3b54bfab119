"""The words by which questions ask for time, in the languages that dates are read in.

Alternations of words alone, which read any text in linear time. In lower case, as the text that they read has to
be: told to take any case they are half as fast.
"""

from __future__ import annotations

import re
from typing import Final

from projections.facts.attributes import DIET, EMPLOYER, HOME, JOB, RELATIONSHIP

# --- what is asked for, the first that matches

HOW_OFTEN: Final = re.compile(
    r"\bhow (?:often|many times|frequently|regularly)\b|\bwie (?:oft|häufig|viele male|regelmäßig)\b"
    r"|\bcombien de fois\b|\bà quelle fréquence\b|\bcu[áa]ntas veces\b|\bcon qu[ée] frecuencia\b"
    r"|[几幾]次|多少次|多久.{0,12}一次|何回|何度|どのくらいの頻度"
)
AGO: Final = re.compile(
    r"\bhow (?:long|many (?:days|weeks|months|years)) ago\b|\bvor wie (?:langer zeit|vielen (?:tagen|wochen"
    r"|monaten|jahren))\b"
    r"|\bil y a combien\b|\bhace cu[áa]nto\b|多久(?:以前|之前)|どのくらい前"
)
HOW_LONG: Final = re.compile(
    # "How long is her hair?" asks of no time.
    r"\bhow long\b(?! (?:is|are|was|were) (?:the|an?|this|that|these|those|his|her|my|your|their|our|its|\w+'s)"
    r"(?: [\w'-]+){1,3}\W*$)"
    r"|\bhow many (?:days|weeks|months|years)\b|\bsince when\b"
    r"|\bwie (?:lange?|viele (?:tage|wochen|monate|jahre))\b|\bseit wann\b"
    r"|\bcombien (?:de temps|de jours|de semaines|de mois|d'années|d'ans)\b|\bdepuis (?:quand|combien)\b"
    r"|\bcu[áa]nto tiempo\b|\bcu[áa]nt[oa]s (?:días|semanas|meses|años)\b|\bdesde cu[áa]ndo\b"
    r"|多久|多长时间|多長時間|[几幾]年(?!级)|多少年|何年間|何ヶ月|どのくらい(?:の間|長く|住|働|続|付き合)"
    r"|どれくらい|いつから"
)
WHEN: Final = re.compile(
    r"\bwhen(?:'s|’s)? (?:did|does|do|was|were|is|are|will|has|have|had|would|can|could)\b"
    r"|^\W*when\b(?![^?]*,)"
    r"|\b(?:what|which) (?:day|date|year|month|week|weekday|season|time of)\b"
    r"|\bwann\b|\b(?:in welche[mr]|welche[sr]) (?:jahr|monat|woche|datum)\b|\ban welchem (?:tag|datum)\b"
    r"|^\W*quand\b(?![^?]*,)|\bquand est-ce\b|\bquel(?:le)? (?:jour|date|année|mois)\b"
    r"|\bcuándo\b|^\W*cuando\b(?![^?]*,)|\b(?:en )?qu[ée] (?:año|mes|fecha|día)\b"
    r"|什么时候|什麼時候|何时|何時|哪一?[年天]|几月|いつ(?!も|まで)|何年|何月"
)

# A question that asks for several things, by how its first and its other parts begin.
_ASKS: Final = (
    r"(?:when (?:did|does|do|was|were|is|are|will|has|have|had)|where|who|whom|whose|what|which|how|why"
    r"|wann|wo|wer|was|welche[nrms]?|wie|warum|quand|où|qui|que|quel(?:le)?s?|combien|comment"
    r"|cuándo|dónde|quién|qué|cuál|cuánt[oa]s?|cómo)\b"
)
ASKS_FIRST: Final = re.compile(rf"[\W]*{_ASKS}")
ASKS_MORE: Final = re.compile(rf"(?:[,;]|\b(?:and|und|et|y)\b)\s*(?:(?:and|und|et|y|also) )?{_ASKS}")

# Who quotes a word asks about it.
_UNQUOTED: Final = r"""(?<!["“„«])"""

# --- beside what: words in front of a time or of something that happened ...

BEFORE: Final = re.compile(
    rf"{_UNQUOTED}\b(?:before(?! long\b)|prior to|previous to|until|till|bevor|ehe"
    # Of place, of fear, and "above all".
    r"|(?<!angst )(?<!furcht )(?<!schutz )(?<!respekt )vor(?! (?:allem|ort|sich)\b"
    r"| (?:de[mrn]|einem|einer) (?:\w*haus|\w*tür|\w*fenster|gericht|spiegel|fernseher|computer|bildschirm)\b)"
    r"|avant (?:de |que |d')|avant(?! tout\b)|antes (?:de que|del?))\b(?!-\w)"
)
AFTER: Final = re.compile(
    rf"{_UNQUOTED}\b(?:(?<!named )(?<!name )(?<!look )(?<!looks )(?<!looked )(?<!looking )(?<!sought )"
    r"(?<!modeled )(?<!modelled )after(?! all\b)"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )(?<!been )(?<!the )(?<!'s )(?<!'m )(?<!'re )(?<!start )(?<!started )"
    r"following(?! (?:orders|instructions|directions|rules|up)\b)"
    r"|nachdem|nach|après (?:avoir|être)|(?<!d')après(?! tout\b)|después (?:de que|del?)|luego de|tras)\b(?!-\w)"
)
SINCE: Final = re.compile(
    rf"{_UNQUOTED}\b(?:since|ever since|seitdem|seit|depuis (?:que|qu')|depuis|desde (?:que)?)\b"
    r"|\bdesde\b(?! luego\b)"
)
BETWEEN: Final = re.compile(r"\b(?:between|zwischen|entre)\b")
WHILE: Final = re.compile(
    r"\b(?:when|while|during|während|als|pendant que|pendant|quand|lorsque|lorsqu'|mientras|cuando|durante)\b"
)
# German "nach" is "to" beside a verb of going, unless an article follows.
GOING: Final = re.compile(
    r"\b(?:\w{0,3}gezogen|\w{0,3}ziehen|z[oi]e?g(?:en|t|st)?|gefahren|fahren|fährt|fuhr|gereist|reis\w+"
    r"|geflogen|fliegt|flog"
    r"|gegangen|ging|geht|gekommen|kam|kommt|gewandert)\b"
)
ARTICLE: Final = re.compile(r"\s*(?:de[mrn]|seine[mrn]?|ihre[mrn]?|meine[mrn]?|unsere[mrn]?|diese[mrn]?)\b")
# And it is neither of these: looking for, smelling of, named after.
TOWARDS: Final = re.compile(
    r"\b(?:benannt|(?:ge)?such(?:e|st|t|te|ten|en)|(?:ge)?fragt?e?n?|riech(?:e|t|en)|roch(?:en)?"
    r"|schmeck(?:e|t|te|en)|duftet?e?|kling(?:t|en)|klang|sehnt?e?)\b"
)
# ... and, where a script puts them there, behind it.
BEFORE_BEHIND: Final = re.compile(
    r"之前|以前|の前|前に|(?<=[\u3040-\u9fff])前(?=[，、,]|住|在|的|做|是|开|養|养|用|に|は|の)"
)
AFTER_BEHIND: Final = re.compile(
    r"之后|以后|之後|以後|(?<!そ)の後|後に|てから|(?<=[\u3040-\u9fff])[后後](?=[，、,]|住|在|的|搬|做|に|は)"
)
SINCE_BEHIND: Final = re.compile(r"以来|以來|から(?!ない)")
WHILE_BEHIND: Final = re.compile(r"的?时候|的?時候|の時|のとき|とき|期间|期間|の間|间(?=[，,])")

# --- which one of several

LATEST: Final = re.compile(
    r"\b(?:now|currently|current|nowadays|these days|at the moment|at present|presently|right now|latest|newest"
    r"|jetzt|derzeit|aktuell\w*|momentan|gerade|zurzeit|zur zeit|heutzutage|inzwischen|mittlerweile"
    r"|neueste[nrsm]?"
    r"|maintenant|actuellement|actuel(?:le)?s?|en ce moment|désormais|de nos jours"
    r"|ahora|actualmente|actual(?:es)?|hoy en día|en este momento)\b"
    r"|现在|現在|目前|如今|当前|當前|最新|今は|今[、,どの]|いま"
)
TODAY: Final = re.compile(r"\b(?:today|heute|aujourd'hui|hoy)\b|今天|今日")
FIRST: Final = re.compile(
    r"\b(?:first(?!\s+(?:name|aid|place|grade|half|class|floor|lady|dance|amendment|responders?|cousins?|base"
    r"|degree|gear|hand|impressions?|world)\b|-)|earliest|initially|originally"
    r"|zuerst|zunächst|ursprünglich|anfangs|als erstes|erste[nrsm]?"
    r"|d'abord|au début|à l'origine|premi(?:er|ère)s?|primero|primera|primer|al principio|originalmente"
    r"|inicialmente)\b"
    r"|最早|最初|起初|首先|一开始|第一[次个個份家只部辆輛台]|初めて|はじめ"
)
LAST: Final = re.compile(
    r"\b(?:last(?!\s+name)|most recent(?:ly)?|zuletzt|letzte[nrsm]?|das letzte mal|derni(?:er|ère)s?(?: fois)?"
    r"|dernièrement|últim[oa]s?|por última vez)\b|最后|最後|最近|上一?次|前回"
)
PREVIOUS: Final = re.compile(
    r"\b(?:previous(?:ly)?|former(?:ly)?|used? to (?=live|work|drive|have|own|be|date|eat)|ex-?(?=girlfriend"
    r"|boyfriend"
    r"|wife|husband|partner|boss|employer)|before(?: that| then| this)?(?=\W*$)|earlier(?=\W*$)"
    r"|früher\w*|vorher\w*|davor|zuvor|vorige[nrsm]?|ehemalige[nrsm]?|damals|précédent\w*|auparavant"
    r"|ancien(?:ne)?s?|autrefois"
    r"|avant(?: (?:ça|cela))?(?=\W*$)|anterior(?:es|mente)?|antigu[oa]s?|antes(?: de eso)?(?=\W*$)"
    r"|antes(?! de))\b"
    r"|上一?[个個份家任部辆輛台](?!月|星期|礼拜)|前一?[个個份家任部辆輛台]|原来|原先|曾经|前は|前の|元の|かつて"
)
NEXT: Final = re.compile(
    r"\b(?:next(?! (?:to|door)\b|-)|afterwards?|after(?: that| then| this)?(?=\W*$)|subsequent(?:ly)?"
    r"|danach|nachher|anschließend"
    r"|als nächstes"
    r"|ensuite|par la suite|après(?: (?:ça|cela))?(?=\W*$)|luego|después(?: de eso)?(?=\W*$))\b"
    r"|后来|後來|接着|下一?[个個份家任部辆輛台](?!月|星期|礼拜)|その後|次の|次に"
)
# Whoever asks speaks of a past that need not last.
PAST: Final = re.compile(
    r"\b(?:did|was|were|had|used to|lived|worked|wohnte\w*|lebte\w*|arbeitete\w*|war|waren|hatte\w*|fuhr\w*"
    r"|gewohnt|gelebt"
    r"|gearbeitet|habitai\w+|viva?i[st]\w*|travaillai\w+|était|étais|avai[st]|habité|vécu|travaillé|vivía\w*"
    r"|trabajaba\w*"
    r"|era|eran|eras|estaba\w*|tenía\w*|vivi(?:ó|ste|do)|trabaj(?:ó|aste|ado)|manejaba|conducía)\b"
    r"|[过過曾了]|当时|當時|でした|ました|(?:て|で)いた|だった|った"
)
OWN: Final = re.compile(
    r"\b(?:i|i'm|i've|me|my|mine|we|our|us|ich|mich|mir|meine?[nrsm]?|wir|unsere?[nrsm]?|je|j'\w*|moi|mon|ma"
    r"|mes|nous|notre|nos"
    r"|yo|mí?|mis|nosotros)\b|\bj'|[我俺僕私]|わたし|ぼく"
)
# Spanish leaves the pronoun to the verb.
OWN_VERB: Final = re.compile(
    r"\b(?:vivo|vivía|viví|trabajo|trabajaba|trabajé|tengo|tenía|conduzco|conducía|manejo|uso|usaba)\b"
)

# --- the states that are asked for: canonical attribute to the words of questions
CAR: Final = "car"
PHONE: Final = "phone"
PARTNER: Final = "partner"
PET: Final = "pet"
STATES: Final = (
    (
        JOB,
        re.compile(
            r"\b(?:jobs?|profession|occupation|do(?:es|ing)? (?:\w+ ){0,2}for (?:a|his|her|my|their) living"
            r"|work(?:ed|ing)? as|start(?:ed)? (?:working )?as|become|career|job title"
            r"|beruf\w*|von beruf|métier|profession|emploi|travaill\w+ comme|profesión|oficio|puesto"
            r"|ocupación|trabaj\w+ (?:de|como))\b"
            r"|职业|職業|什么工作|什麼工作|(?<!在哪)工作是|做什么的|仕事"
        ),
    ),
    (
        EMPLOYER,
        re.compile(
            r"\b(?:where\b.{0,40}\bwork(?:ed|ing|s)?(?! out\b)"
            r"|(?:who|which company|what company)\b.{0,40}\bwork\w*"
            r"|work(?:ed|ing)? (?:for|at)|start(?:ed)? (?:working )?at|join(?:ed)?|employers?"
            r"|company|firm|workplace|wo\b.{0,40}\b(?:arbeit\w+|gearbeitet)|bei welcher firma|arbeitgeber\w*"
            r"|firma"
            r"|où\b.{0,40}\btravaill\w+|pour qui\b.{0,40}\btravaill\w+|chez qui|employeurs?|entreprise"
            r"|dónde\b.{0,40}\btrabaj\w+|para quién|empresa|empleador)\b"
            r"|在?哪[里裡儿兒]?(?:工作|上班)|哪家公司|公司|雇主|どこで働|勤め|会社|勤務"
        ),
    ),
    (
        HOME,
        re.compile(
            r"\b(?:where\b.{0,40}\b(?:liv(?:e|es|ed|ing)|resid\w+|based|home|mov(?:e|ed|ing)|settled?)"
            r"|(?:which|what) (?:city|town|place|country|state)\b"
            r".{0,40}\b(?:liv\w+|in|mov\w+|from)|liv(?:e|ed|ing) in|mov(?:e|ed) to|moved?(?: house"
            r"| home)?(?=\W*$)|home ?town|residence"
            r"|wo\b.{0,40}\b(?:wohn\w+|leb\w+|gewohnt|gelebt|zuhause)"
            r"|wohin\b.{0,40}\b\w*(?:gezogen|zieh\w*|zog)|(?:welche[rn]? )(?:stadt|ort)\b.{0,40}\b(?:wohn\w+"
            r"|leb\w+|gewohnt|gelebt)|wohnort\w*"
            r"|gewohnt|wohnt|wohnte|nach \w+ (?:um)?(?:gezogen|zog)|où\b.{0,40}\b(?:habit\w+|viva?i?[ts]?\w*"
            r"|vécu|déménag\w+|vit|vis)|habit(?:e|ait|ais|é)|déménagé|résidence"
            r"|(?:a?dónde|ciudad)\b.{0,40}\b(?:viv\w+|mud\w+|resid\w+)|mud(?:ó|é|aste) a|domicilio|residencia)\b"
            r"|住在?[哪什]|住哪|住在|住过|住了|搬到[了]?哪|搬去哪|哪[里裡儿兒座个個]?.{0,4}住"
            r"|どこに.{0,8}(?:住|引っ越)|どこへ引っ越|引っ越し|住んで|搬到|搬去"
        ),
    ),
    (
        CAR,
        re.compile(
            r"\b(?:cars?(?! (?:accident|crash|wash|insurance|keys?|seats?|ride|rental|loan|race|park|payments?"
            r"|trouble|repairs?|show|alarm)\b)|vehicles?|driv(?:e|es|ing)|drove|autos?|wagen|fahr(?:e|t|ren)|fährt|fuhr"
            r"|voitures?|condui\w+|coches?|carros?|conduc\w+|manej\w+)\b|[汽轿]车|开(?:什么|哪|的)?.{0,6}车"
            r"|什么车|車"
            r"|クルマ"
        ),
    ),
    (
        PHONE,
        re.compile(
            r"\b(?:(?:cell ?|mobile |smart ?)?phones?(?! (?:numbers?|calls?|cases?|bills?|company|interview"
            r"|conversations?)\b)|mobiles?|handys?|telefone?|smartphones?"
            r"|téléphones?|portables?|teléfonos?|celulares?|móvil(?:es)?)\b|手机|手機|电话|スマホ|携帯|電話"
        ),
    ),
    (
        PARTNER,
        re.compile(
            r"\b(?:partners?|girlfriends?|boyfriends?|wife|husband|dating(?! apps?\b)|dated"
            r"|who(?:m|'s)?\b.{0,40}\bdates?|going out with|freundin"
            r"|partnerin|ehefrau|ehemann"
            r"|(?:[mds]eine?[nmr]?|ihre?[nmr]?|unsere?[nmr]?|eure?[nmr]?|\w+s) (?:mann|frau)|(?:mann|frau) von"
            r"|copine|copain|petite amie|petit ami|compagn(?:e|on)|épouse|mari|novi[oa]s?|pareja|espos[oa]"
            r"|marido)\b"
            r"|女朋友|男朋友|对象|妻子|丈夫|老婆|老公|彼女|彼氏|恋人"
        ),
    ),
    (
        RELATIONSHIP,
        re.compile(
            r"\b(?:relationship status|marital status|married|single|divorced|engaged|familienstand"
            r"|verheiratet|ledig|geschieden"
            r"|état civil|mariée?|célibataire|divorcée?|estado civil|casad[oa]|solter[oa]|divorciad[oa])\b"
            r"|婚姻|结婚|離婚|离婚|单身|結婚"
        ),
    ),
    (
        DIET,
        re.compile(
            r"\b(?:diet|vegan|vegetarian|pescatarian|ernähr\w+|régime|végétarien\w*|dieta"
            r"|vegetarian[oa]|vegan[oa])\b|饮食|吃素|素食|食生活"
        ),
    ),
    (
        PET,
        re.compile(
            r"\b(?:pets?(?! (?:food|store|shop|sitter)\b)|(?:(?<!hot )dogs?|cats?)(?! (?:food|litter|park|shows?"
            r"|shelter|walkers?|toys?|treats?|beds?|lovers?|person|cafés?|cafes?)\b)|hamster|parrot|rabbit|haustiere?|hund\w*|katzen?"
            r"|animal de compagnie|chiens?|chats?|mascotas?|perros?|gatos?)\b|宠物|养.{0,4}(?:狗|猫)|ペット"
            r"|[犬猫]"
        ),
    ),
)
