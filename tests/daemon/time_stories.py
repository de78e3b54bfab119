"""Stories that people tell over months, and what is asked about when; the first memory of each answer by hand.

Written before they were asked, and not fitted to what is found. `WRONG_STILL` are those that come out wrong.
"""

from __future__ import annotations

from tests.daemon.time_stories_abroad import CHINESE, FRENCH, GERMAN, JAPANESE, MORE_LANGUAGES, SPANISH
from tests.daemon.time_story import Case, Said, Story

RESIDENCE = Story(
    "residence",
    (
        Said("2022-03-01", "I live in Boston."),
        Said("2022-09-10", "Boston has the best clam chowder, even before noon."),
        Said("2023-01-15", "I live in Portland.", "Carol"),
        Said("2023-05-20", "I moved to Davis this week."),
        Said("2023-12-01", "My sister spent her holidays in Miami before her exams."),
        Said("2024-02-11", "I moved to Austin.", "Carol"),
        Said("2024-07-01", "I just moved to Miami!"),
        Said("2024-07-20", "Moving is exhausting, I lived out of boxes for a while."),
    ),
    (
        Case("Where did Bob live before moving to Miami?", "Davis", ("Boston", "Miami")),
        Case("Before moving to Miami, where did Bob live?", "Davis", ("Boston", "Miami")),
        Case("Where did Bob live before he moved to Davis?", "Boston", ("Davis", "Miami")),
        Case("Where did Bob live after Boston?", "Davis", ("Boston", "Miami")),
        Case("Where did Bob move after he lived in Davis?", "Miami", ("Boston", "Davis")),
        Case("Where did Bob go after Davis?", "Miami", ("Boston", "Davis")),
        Case("Where does Bob live now?", "Miami", ("Boston", "Davis")),
        Case("Where does Bob live?", "Miami", ("Boston", "Davis")),
        Case("Which city does Bob currently live in?", "Miami", ("Boston", "Davis")),
        Case("Where did Bob live first?", "Boston", ("Davis", "Miami")),
        Case("Where did Bob originally live?", "Boston", ("Davis", "Miami")),
        Case("Where did Bob previously live?", "Davis", ("Boston", "Miami")),
        Case("Where did Bob live in January 2024?", "Davis", ("Boston", "Miami")),
        Case("Where did Bob live on 3 June 2022?", "Boston", ("Davis", "Miami")),
        Case("Where did Bob live before 2023?", "Boston", ("Davis", "Miami")),
        Case("Where did Bob live between August 2023 and May 2024?", "Davis", ("Boston", "Miami")),
        Case("Where has Bob lived since August 2024?", "Miami", ("Boston", "Davis")),
        Case("Where did Bob live two years ago?", "Boston", ("Davis", "Miami"), on="2024-08-15"),
        Case("Where did Bob live last year?", "Davis", ("Boston", "Miami"), on="2024-08-15"),
        Case("When did Bob move to Davis?", "Davis", ("Boston", "Miami")),
        Case("How long did Bob live in Davis?", "Davis", ("Boston", "Miami")),
        Case("How long has Bob been living in Miami?", "moved to Miami", ("Boston", "Davis")),
        Case("Where did Carol live before Austin?", "Portland", ("Austin", "Davis", "Boston")),
        Case("Where does Carol live now?", "Austin", ("Portland", "Miami")),
    ),
)

OUT_OF_ORDER = Story(
    "residence, told out of order",
    (
        Said("2024-07-01", "I just moved to Miami!"),
        Said("2022-03-01", "I live in Boston."),
        Said("2024-02-11", "I moved to Lyon.", "Carol"),
        Said("2023-05-20", "I moved to Davis this week."),
    ),
    (
        Case("Where did Bob live before moving to Miami?", "Davis", ("Boston", "Miami")),
        Case("Where does Bob live now?", "Miami", ("Boston", "Davis")),
        Case("Where did Bob live first?", "Boston", ("Davis", "Miami")),
        Case("Where did Bob live after Davis?", "Miami", ("Boston", "Davis")),
    ),
)

MYSELF = Story(
    "one's own homes, without a name",
    (
        Said("2021-02-01", "I live in Oslo.", None),
        Said("2022-06-01", "We moved to Bergen.", None),
        Said("2024-03-05", "I moved to Tromsø.", None),
    ),
    (
        Case("Where did I live before Tromsø?", "Bergen", ("Oslo", "Tromsø")),
        Case("where do I live?", "Tromsø", ("Oslo", "Bergen")),
        Case("Where did I live in 2021?", "Oslo", ("Bergen", "Tromsø")),
        Case("What was my first home?", "Oslo", ("Bergen", "Tromsø")),
    ),
)

WORK = Story(
    "work",
    (
        Said("2020-01-10", "I work as a nurse.", "Dana"),
        Said("2020-02-10", "I work at Mercy Hospital.", "Dana"),
        Said("2021-06-01", "I work as a plumber.", "Eli"),
        Said("2022-04-02", "I got promoted to ward manager, so much paper now.", "Dana"),
        Said("2023-03-03", "I started a new job at Siemens.", "Dana"),
        Said("2023-03-04", "I'm a software developer now.", "Dana"),
        Said("2024-09-09", "I work for Bosch.", "Dana"),
        Said("2024-10-01", "My brother asked about jobs at Siemens.", "Dana"),
    ),
    (
        Case("Where did Dana work before Bosch?", "Siemens", ("Mercy", "Bosch")),
        Case("Where did Dana work before Siemens?", "Mercy", ("Siemens", "Bosch")),
        Case("Who does Dana work for now?", "Bosch", ("Mercy", "Siemens")),
        Case("What was Dana's first employer?", "Mercy", ("Bosch",)),
        Case("Where did Dana work after Mercy Hospital?", "Siemens", ("Mercy", "Bosch")),
        Case("Where did Dana work in 2021?", "Mercy", ("Siemens", "Bosch")),
        Case("What was Dana's job before she became a software developer?", "ward manager", ("developer",)),
        Case("What was Dana's first job?", "nurse", ("developer", "manager", "plumber")),
        Case("What does Dana do for a living?", "software developer", ("nurse", "plumber")),
        Case("When did Dana start working at Siemens?", "started a new job at Siemens", ("Bosch",)),
    ),
)

PARTNERS = Story(
    "partners",
    (
        Said("2021-05-05", "I'm dating Anna."),
        Said("2022-02-02", "I broke up with Anna."),
        Said("2022-08-08", "I'm dating Tom.", "Carol"),
        Said("2022-11-11", "I started dating Maria."),
        Said("2024-01-01", "My girlfriend Julia is a great cook."),
    ),
    (
        Case("Who was Bob dating before Julia?", "Maria", ("Anna", "Julia", "Tom")),
        Case("Who was Bob's first girlfriend?", "dating Anna", ("Maria", "Julia")),
        Case("Who is Bob's girlfriend now?", "Julia", ("Anna", "Maria")),
        Case("Who did Bob date after Anna?", "Maria", ("Julia", "Tom")),
        Case("Who was Bob dating in July 2021?", "Anna", ("Maria", "Julia")),
    ),
)

PETS = Story(
    "pets",
    (
        Said("2019-03-03", "I have a hamster.", "Erin"),
        Said("2021-04-04", "I have a dog called Rex.", "Erin"),
        Said("2022-01-01", "I have a parrot.", "Bob"),
        Said("2023-06-06", "I have a cat called Luna.", "Erin"),
    ),
    (
        Case("What was Erin's first pet?", "hamster", ("dog", "cat", "parrot")),
        Case("What pet did Erin have before the cat?", "dog", ("hamster", "parrot")),
        Case("Which pet did Erin get after the hamster?", "dog", ("cat", "parrot")),
        Case("What is Erin's newest pet?", "Luna", ("hamster", "parrot")),
    ),
)

CARS = Story(
    "cars and phones",
    (
        Said("2018-01-01", "I drive a Honda Civic."),
        Said("2019-02-02", "I got an old Nokia."),
        Said("2020-07-07", "I bought a used Subaru."),
        Said("2021-03-03", "I drive a Volvo.", "Carol"),
        Said("2021-09-09", "I switched to a Pixel 5."),
        Said("2023-10-10", "I traded my Subaru for a Tesla."),
        Said("2024-05-05", "I have an iPhone now."),
    ),
    (
        Case("What car did Bob drive before the Tesla?", "used Subaru", ("Honda", "Volvo", "Tesla")),
        Case("What was Bob's first car?", "Honda", ("Subaru", "Tesla", "Volvo")),
        Case("Which car does Bob drive now?", "Tesla", ("Honda", "Volvo")),
        Case("What car did Bob have in 2019?", "Honda", ("Tesla", "Volvo", "Subaru")),
        Case("Which phone did Bob have before his iPhone?", "Pixel", ("Nokia", "iPhone")),
        Case("Which phone did Bob use before the Pixel?", "Nokia", ("Pixel", "iPhone")),
        Case("What phone does Bob have?", "iPhone", ("Nokia", "Pixel")),
        Case("What car does Carol drive?", "Volvo", ("Honda", "Tesla")),
    ),
)

ACROSS = Story(
    "one state by another",
    (
        Said("2020-01-01", "I live in Hamburg.", "Finn"),
        Said("2020-03-01", "I work at Airbus.", "Finn"),
        Said("2022-05-01", "I moved to Munich.", "Finn"),
        Said("2022-06-01", "I work for Allianz.", "Finn"),
        Said("2024-02-01", "I moved to Vienna.", "Finn"),
        Said("2024-03-01", "I work for Wiener Linien.", "Finn"),
    ),
    (
        Case("Where did Finn work when he lived in Hamburg?", "Airbus", ("Allianz", "Wiener")),
        Case("Where did Finn work before he moved to Vienna?", "Allianz", ("Airbus", "Wiener")),
        Case("Where did Finn live when he worked for Allianz?", "Munich", ("Hamburg", "Vienna")),
        Case("Where did Finn work after moving to Vienna?", "Wiener", ("Airbus", "Allianz")),
    ),
)

STATUS = Story(
    "diet and status",
    (
        Said("2020-01-01", "I'm single.", "Gwen"),
        Said("2021-01-01", "I'm vegetarian.", "Gwen"),
        Said("2022-02-02", "I got engaged!", "Gwen"),
        Said("2023-01-01", "I became vegan.", "Gwen"),
        Said("2023-06-06", "I'm married now.", "Gwen"),
    ),
    (
        Case("What was Gwen's diet before she became vegan?", "vegetarian", ("vegan",)),
        Case("What is Gwen's diet now?", "vegan", ("vegetarian",)),
        Case("What was Gwen's relationship status before she got married?", "engaged", ("single",)),
        Case("What is Gwen's relationship status?", "married", ("single", "engaged")),
        Case("What was Gwen's relationship status in 2020?", "single", ("engaged", "married")),
    ),
)

EVENTS = Story(
    "what happened",
    (
        Said("2024-01-09", "I went to the dentist today, no cavities."),
        Said("2024-04-16", "I ran the Boston marathon, my legs hurt."),
        Said("2024-05-02", "I went to the dentist again, one filling."),
        Said("2024-06-12", "I bought a kayak."),
        Said("2024-06-20", "I went to the dentist with my kids.", "Carol"),
        Said("2024-08-06", "I baked sourdough bread with my daughter."),
        Said("2024-08-14", "I planted tomatoes on the balcony."),
        Said("2024-08-15", "I will fly to Rome next week."),
    ),
    (
        Case("What did Bob do last week?", "sourdough", ("tomatoes", "kayak"), on="2024-08-15"),
        Case("What did Bob do yesterday?", "tomatoes", ("sourdough", "kayak"), on="2024-08-15"),
        Case("What did Bob buy two months ago?", "kayak", (), on="2024-08-15"),
        Case("What did Bob do in April 2024?", "marathon", ()),
        Case("When was the last time Bob went to the dentist?", "one filling", ("no cavities", "kids")),
        Case("When did Bob first go to the dentist?", "no cavities", ("filling",)),
        Case("How often did Bob go to the dentist?", "no cavities", ("kids",)),
        Case("What did Bob buy after the marathon?", "kayak", ("marathon",)),
        Case("What will Bob do next week?", "Rome", (), on="2024-08-16"),
        Case("Was hat Bob letzte Woche gemacht?", "sourdough", ("tomatoes",), on="2024-08-15"),
        Case("Qu'est-ce que Bob a fait hier ?", "tomatoes", ("sourdough",), on="2024-08-15"),
    ),
)

BACK_AGAIN = Story(
    "back again, and long ago",
    (
        Said("2018-03-01", "I live in Boston."),
        Said("2020-03-01", "I moved to Davis."),
        Said("2022-03-01", "I moved back to Boston."),
        Said("2023-03-01", "I lived in Rome in 2010."),
        Said("2024-03-01", "I no longer live in Boston."),
        Said("2024-03-02", "I live in Reno now."),
    ),
    (
        Case("Where did Bob live before he moved back to Boston?", "Davis", ("Reno", "Rome")),
        Case("Where did Bob live in 2010?", "Rome", ("Davis", "Reno")),
        Case("Where did Bob live first?", "Rome", ("Davis", "Reno")),
        Case("Where had Bob been living prior to Reno?", "moved back to Boston", ("Davis", "Rome")),
        Case("We are writing his biography. Where did Bob live before Reno?", "moved back to Boston", ("Davis",)),
        Case("In which year did Bob move to Davis?", "Davis", ("Reno", "Rome")),
        Case("Since when has Bob lived in Reno?", "live in Reno", ("Davis", "Rome")),
        Case("Where was Bob's home before Davis?", "Boston", ("Reno", "Davis")),
    ),
)

OTHERS = Story(
    "what no rule knows as a state",
    (
        Said("2021-01-05", "My brother Sam lives in Lima."),
        Said("2021-04-04", "I joined a gym called Iron House."),
        Said("2021-10-10", "I started taking piano lessons."),
        Said("2022-05-06", "My brother Sam moved to Quito."),
        Said("2022-08-08", "I changed to a gym called Planet Fitness."),
        Said("2023-02-03", "I gave up the piano and play the violin now."),
        Said("2023-09-01", "My favourite team is the Tigers."),
        Said("2024-09-01", "My favourite team is the Lions now."),
    ),
    (
        Case("Where did Sam live before Quito?", "Lima", ("Quito",)),
        Case("Which gym did Bob go to before Planet Fitness?", "Iron House", ("Planet",)),
        Case("What was Bob's favourite team before the Lions?", "Tigers", ("Lions",)),
        Case("Which team is Bob's favourite now?", "Lions", ("Tigers",)),
        Case("Which gym did Bob join first?", "Iron House", ("Planet",)),
    ),
)

DAYS = Story(
    "days and weeks",
    (
        Said("2024-02-14", "I had dinner with Grace at the harbour."),
        Said("2024-06-30", "I repaired the roof."),
        Said("2024-07-15", "I hiked up the volcano."),
        Said("2024-08-12", "I met Grace for coffee."),
        Said("2024-08-13", "I painted the fence."),
        Said("2023-07-20", "I sailed around Sardinia."),
        Said("2024-08-14", "Two weeks ago I saw an eclipse."),
    ),
    (
        Case("What did Bob do on Monday?", "coffee", ("fence",), on="2024-08-15"),
        Case("What did Bob do two days ago?", "fence", ("coffee", "roof"), on="2024-08-15"),
        Case("What did Bob do last month?", "volcano", ("roof", "fence"), on="2024-08-15"),
        Case("What did Bob do last summer?", "Sardinia", ("volcano", "roof"), on="2024-04-15"),
        Case("Where did Bob go on 15 July 2024?", "volcano", ("Sardinia",)),
        Case("When did Bob last meet Grace?", "coffee", ("harbour",)),
        Case("What did Bob do between 1 June 2024 and 1 July 2024?", "roof", ("volcano",)),
        Case("What did Bob do after 13 August 2024?", "eclipse", ("coffee", "fence", "Sardinia")),
        Case("What did Bob do before 2024?", "Sardinia", ("roof", "volcano")),
        Case("What did Bob do before the volcano hike?", "roof", ("volcano", "fence")),
    ),
)

# What is named comes neither before nor after itself, though it has most of the question's words.
AFTER_EVENTS = Story(
    "after what happened",
    EVENTS.said,
    (
        Case("What did Bob buy after he ran the Boston marathon?", "kayak", ("marathon",)),
        Case("What did Bob bake after he bought the kayak?", "sourdough", ("kayak",)),
        Case("What did Bob make after buying the kayak?", "sourdough", ("kayak",)),
        Case("What did Bob plant after he baked sourdough bread?", "tomatoes", ("sourdough",)),
        Case("What did Bob plant after the kayak?", "tomatoes", ("kayak",)),
        Case("Did Bob see the dentist after the marathon?", "one filling", ("marathon", "kids", "no cavities")),
        Case("What has Bob planted since he bought a kayak?", "tomatoes", ("kayak",)),
        Case("What did Bob do with his daughter after buying the kayak?", "sourdough", ("kayak",)),
    ),
)

AFTER_DAYS = Story(
    "after what was told later",
    DAYS.said,
    (
        Case("What did Bob repair after dinner with Grace?", "roof", ("harbour",)),
        Case("What did Bob paint after he met Grace for coffee?", "fence", ("coffee",)),
        Case("Whom did Bob meet after he repaired the roof?", "coffee", ("roof",)),
        Case("What did Bob hike after he repaired the roof?", "volcano", ("roof",)),
        Case("What did Bob do after the eclipse?", "coffee", ("eclipse",)),
        Case("What did Bob paint after the eclipse?", "fence", ("eclipse",)),
    ),
)

AFTER_OTHERS = Story(
    "after what no rule knows as a state",
    OTHERS.said,
    (
        Case("Which gym did Bob go to after Iron House?", "Planet Fitness", ("Iron",)),
        Case("What was Bob's favourite team after the Tigers?", "Lions", ("Tigers",)),
        Case("Where did Sam live after Lima?", "Quito", ("Lima",)),
    ),
)

STORIES = (
    RESIDENCE, OUT_OF_ORDER, MYSELF, WORK, PARTNERS, PETS, CARS, ACROSS, STATUS, GERMAN, FRENCH, SPANISH, CHINESE,
    JAPANESE, EVENTS, BACK_AGAIN, OTHERS, MORE_LANGUAGES, DAYS, AFTER_EVENTS, AFTER_DAYS, AFTER_OTHERS,
)  # fmt: skip

# What the rules cannot tell: other words for the same ("lives", "moved"; "dinner with", "meet"; "see", "saw"), a
# state that they do not know and that is said with the one after it, and parts of a month.
WRONG_STILL = (
    Story(
        "of what no rule knows as a state",
        OTHERS.said,
        (
            Case("What instrument did Bob play before the violin?", "piano lessons", ("violin",)),
            Case("Where does Sam live now?", "Quito", ("Lima",)),
        ),
    ),
    Story(
        "of days",
        DAYS.said,
        (
            Case("What did Bob see at the end of July 2024?", "eclipse", ()),
            Case("When did Bob meet Grace for the first time?", "harbour", ("coffee",)),
        ),
    ),
)
