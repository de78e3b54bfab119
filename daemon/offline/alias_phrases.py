"""Phrases that make one name another's, by language, as patterns of text; and words that are no names."""

from __future__ import annotations

from typing import Final

from daemon.offline.sentences import word_set

# Who one is to somebody, in normal form; nobody's name though they have capitals now and then.
ROLE_WORDS: Final = word_set(
    "mom mum mommy mummy mama mother dad daddy papa father pa ma sis sister bro brother grandma grandpa"
    " granny grandmother grandfather nana aunt auntie uncle cousin niece nephew son daughter kid baby wife"
    " husband hubby partner girlfriend boyfriend fiancé fiancée friend bestie buddy boss manager ceo coach"
    " teacher professor doctor dr mr mrs ms sir madam miss captain chief coworker colleague neighbor"
    " neighbour roommate landlord honey darling dear babe mutter vater mutti vati opa oma schwester bruder"
    " tante onkel sohn tochter frau mann freund freundin chef chefin maman mère père frère sœur soeur"
    " oncle fils fille mari femme ami amie patron mamá mami papá madre padre hermana hermano tía tío hijo"
    " hija esposa esposo marido amigo amiga jefe jefa abuela abuelo 妈妈 爸爸 妈 爸 母亲 父亲 姐姐 妹妹"
    " 哥哥 弟弟 奶奶 爷爷 老婆 老公 朋友 同事 老板 老师 同学 医生 お母さん お父さん 兄 姉 弟 妹 母 父 友達"
    " 先生 上司 me him her it them us you myself i we he she they"
)
# Full names, and their usual short forms.
SHORT_FORMS: Final = {
    full: word_set(short)
    for full, short in (
        ("robert", "bob rob bobby robbie bert"),
        ("william", "bill will billy willy liam"),
        ("richard", "dick rick rich ricky"),
        ("elizabeth", "liz beth lizzie lizzy betty eliza lisa libby"),
        ("margaret", "peggy maggie meg marge greta"),
        ("james", "jim jimmy jamie"),
        ("john", "jack johnny"),
        ("edward", "ed ted eddie teddy ned"),
        ("henry", "harry hank"),
        ("charles", "charlie chuck"),
        ("katherine", "kate katie kathy kit kitty"),
        ("catherine", "kate cathy katie"),
        ("alexander", "alex sasha xander"),
        ("alexandra", "alex sasha sandra"),
        ("michael", "mike mick mickey"),
        ("david", "dave"),
        ("thomas", "tom tommy"),
        ("anthony", "tony"),
        ("joseph", "joe joey"),
        ("francis", "frank"),
        ("theodore", "ted theo"),
        ("lawrence", "larry"),
        ("mary", "molly polly"),
        ("susan", "sue"),
        ("deborah", "deb debbie"),
        ("rebecca", "becky"),
        ("jennifer", "jen jenny"),
        ("matthew", "matt"),
        ("andrew", "andy drew"),
        ("christopher", "chris kit topher"),
        ("johannes", "hans hannes"),
        ("friedrich", "fritz"),
        ("heinrich", "heinz"),
        ("josé", "pepe"),
        ("francisco", "paco pancho"),
        ("dolores", "lola"),
        ("ignacio", "nacho"),
        ("александр", "саша"),
        ("мария", "маша"),
        ("дмитрий", "дима"),
        ("екатерина", "катя"),
    )
}

_WHO = (
    r"(?:everyone|everybody|people|most people|folks|we|we all|they|i|you|friends"
    r"|the (?:kids|family|team|others|locals)|(?:all )?(?:his|her|our|my|their)(?: \w+)? (?:friends?|family"
    r"|colleagues|coworkers|classmates|team|teammates|kids|children|parents|fans|students|mom|mum|dad|mother"
    r"|father|brother|sister|wife|husband|grandma|grandpa))"
)
_OFTEN = (
    r"(?:(?:also|often|usually|commonly|sometimes|affectionately|better|otherwise|simply|just|generally|widely) )"
)
_KNOWN = rf"{_OFTEN}?(?:known (?:simply |just )?(?:as|by)|nicknamed|dubbed|referred to as)"
_BE = r"(?:is|was|'s|gets|got|has been|am|'m)"
# Between a name and its other name.
THEN_ALIAS: Final = "|".join(
    (
        rf",? (?:who|whom|which|that) {_WHO} (?:all )?(?:calls?|called|knows? as|nicknamed)(?: just)?",
        rf",? (?:but|and|though|although) {_WHO} (?:all )?(?:just )?calls? (?:him|her|them|it|me)(?: just)?",
        r",? (?:but|and) (?:(?:please|just|you can|you may|feel free to) ){0,2}call me(?: just)?",
        r",? but (?:he|she|they|i) (?:goes|go) by",
        rf"(?:,? (?:who )?{_BE}|,)? ?{_KNOWN}",
        rf"(?:,? who)? ?(?:is|was|'s|gets) {_OFTEN}?called",
        rf", {_OFTEN}called",
        r"(?:,? who)? goes by(?: the (?:nick)?name(?: of)?)?",
        r"(?:,? who)? (?:prefers|likes|wants|asked) (?:to be called|to go by)",
        r"'s (?:nickname|pet name|stage name|pen name|code ?name) (?:is|was)",
        r",? ?\(?(?:a\.?k\.?a\.?|alias)(?=\W)",
        r" ?={1,2}",
        # German, French, Spanish
        r",? (?:auch |besser |allgemein )?(?:bekannt als|genannt|bekannt unter dem namen)",
        r",? (?:aber|und|doch) (?:alle|jeder|meine freunde|freunde|die meisten) nenn(?:en|t) (?:mich|ihn|sie|es)",
        r",? (?:aber|und) nennt? mich(?: doch| bitte| einfach)?",
        r",? (?:aussi |plus |mieux )?(?:surnommée?|connue? sous le nom de|appelée?)",
        r",? que tout le monde (?:appelle|surnomme)",
        r",? mais (?:tout le monde|on) (?:m'|l')appelle",
        r",? mais (?:appelle|appelez)-moi",
        r",? (?:también |más |mejor )?(?:conocid[oa] como|apodad[oa]|llamad[oa])",
        r",? (?:a quien|al que|a la que) todos (?:llaman|le dicen|dicen)",
        r",? pero (?:todos |mis amigos )?(?:me (?:llaman|dicen)|llámame|dime)",
    )
)
# Between the other name and the name.
THEN_LABEL: Final = "|".join(
    (
        r"(?:,| is| was|'s)? ?\(?(?:just |simply )?short for",
        (
            r"(?: is| was|'s)? (?:a |the |an |my |his |her )?(?:nickname|short form|abbreviation|acronym"
            r"|diminutive|stage name|pen name|pseudonym|code ?name) (?:for|of)"
        ),
        r" stands for",
        r"'s (?:real|full|actual|legal|given|birth) name (?:is|was)",
        r"(?:,| ist| \()? ?kurz für|,? ?(?:ist )?(?:die|eine) (?:kurzform|abkürzung) (?:für|von)| steht für",
        r" heißt (?:eigentlich|in wirklichkeit)",
        r",?(?: c'est| est)? (?:le |un )?diminutif de",
        r",?(?: es)? (?:el |un )?diminutivo de",
    )
)
# Between two names of which the longer one says which is the alias.
SAME: Final = r",? ?\(?(?:i\.e\.,?|that is to say,?|d\. ?h\.|c'est-à-dire|es decir,?)"
# Before the alias of whoever speaks, or of whom they have just named as themselves.
MYSELF: Final = "|".join(
    (
        rf"\b(?:{_WHO}|just|please|you can|you may|feel free to|so|but|and) (?:all |just )?calls? me(?: just)?",
        r"^(?:just )?call me",
        r"\bi (?:usually |mostly |just )?go by",
        r"\bmy nickname(?: is|'s)",
        r"\bi(?: am|'m) (?:better |also )?(?:known as|nicknamed|called)",
        r"\b(?:alle|meine freunde|freunde) nennen mich|\bnennt? mich(?: doch| bitte)?|\bmein spitzname ist",
        r"\b(?:tout le monde|on) m'appelle|\b(?:appelle|appelez)-moi|\bmon surnom est",
        r"\b(?:todos|mis amigos) me (?:llaman|dicen)|\bllámame|\bmi apodo es",
    )
)
MY_NAME: Final = (
    r"\bmy (?:full |real |actual |given |first )?name(?: is|'s)|\bich heiße|\bmein name ist|\bje m'appelle"
    r"|\bmi nombre es|\bme llamo"
)
# A name, an alias, and only behind it what makes it one.
OR: Final = (
    r"(?:,? \(?or(?: just| simply)?|,? oder(?: einfach| kurz)?|,? (?:den|die|das) (?:alle|wir|viele)|,? auch|,"
    r"| \()"
)
OR_TAIL: Final = rf"['\"”’)]?,? (?:for short|as {_WHO} (?:calls?|knows?) |genannt|nennen)"
