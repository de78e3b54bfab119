"""The same kinds of stories in German, French, Spanish, Chinese and Japanese."""

from __future__ import annotations

from tests.daemon.time_story import Case, Said, Story

GERMAN = Story(
    "deutsch",
    (
        Said("2022-03-01", "Ich wohne in Boston.", "Jonas"),
        Said("2022-04-01", "Ich arbeite bei Siemens.", "Jonas"),
        Said("2023-05-20", "Ich bin nach Davis gezogen.", "Jonas"),
        Said("2023-08-08", "Ich wohne in Köln.", "Lena"),
        Said("2023-09-09", "Ich arbeite bei Bosch.", "Jonas"),
        Said("2024-07-01", "Ich lebe jetzt in Miami.", "Jonas"),
    ),
    (
        Case("Wo wohnte Jonas, bevor er nach Miami zog?", "Davis", ("Boston", "Miami")),
        Case("Wo wohnte Jonas vor Miami?", "Davis", ("Boston", "Miami")),
        Case("Wo wohnt Jonas jetzt?", "Miami", ("Boston", "Davis", "Köln")),
        Case("Wo hat Jonas zuerst gewohnt?", "Boston", ("Davis", "Miami")),
        Case("Wo hat Jonas nach Boston gewohnt?", "Davis", ("Boston", "Miami")),
        Case("Wann ist Jonas nach Davis gezogen?", "Davis", ("Boston", "Miami")),
        Case("Wo wohnte Jonas im Januar 2024?", "Davis", ("Boston", "Miami")),
        Case("Wo wohnte Jonas vor zwei Jahren?", "Boston", ("Davis", "Miami"), on="2024-08-15"),
        Case("Wo arbeitete Jonas vor Bosch?", "Siemens", ("Bosch",)),
        Case("Wie lange wohnte Jonas in Davis?", "Davis", ("Boston", "Miami")),
    ),
)

FRENCH = Story(
    "français",
    (
        Said("2022-03-01", "J'habite à Boston.", "Luc"),
        Said("2023-05-20", "J'ai déménagé à Davis.", "Luc"),
        Said("2023-08-08", "J'habite à Lille.", "Marie"),
        Said("2024-07-01", "Je vis maintenant à Miami.", "Luc"),
    ),
    (
        Case("Où habitait Luc avant de déménager à Miami ?", "Davis", ("Boston", "Miami")),
        Case("Où habite Luc maintenant ?", "Miami", ("Boston", "Davis", "Lille")),
        Case("Où Luc a-t-il habité en premier ?", "Boston", ("Davis", "Miami")),
        Case("Où habitait Luc en janvier 2024 ?", "Davis", ("Boston", "Miami")),
        Case("Où habitait Luc après Boston ?", "Davis", ("Boston", "Miami")),
        Case("Quand Luc a-t-il déménagé à Davis ?", "Davis", ("Boston", "Miami")),
    ),
)

SPANISH = Story(
    "español",
    (
        Said("2022-03-01", "Vivo en Boston.", "Pablo"),
        Said("2023-05-20", "Me mudé a Davis.", "Pablo"),
        Said("2023-08-08", "Vivo en Sevilla.", "Sofía"),
        Said("2024-07-01", "Ahora vivo en Miami.", "Pablo"),
    ),
    (
        Case("¿Dónde vivía Pablo antes de mudarse a Miami?", "Davis", ("Boston", "Miami")),
        Case("¿Dónde vive Pablo ahora?", "Miami", ("Boston", "Davis", "Sevilla")),
        Case("¿Dónde vivió Pablo primero?", "Boston", ("Davis", "Miami")),
        Case("¿Dónde vivía Pablo en enero de 2024?", "Davis", ("Boston", "Miami")),
        Case("¿Cuándo se mudó Pablo a Davis?", "Davis", ("Boston", "Miami")),
        Case("¿Dónde vivió Pablo después de Boston?", "Davis", ("Boston", "Miami")),
    ),
)

CHINESE = Story(
    "中文",
    (
        Said("2022-03-01", "我住在波士顿。", "小明"),
        Said("2023-05-20", "我搬到戴维斯了。", "小明"),
        Said("2023-08-08", "我住在上海。", "小红"),
        Said("2024-07-01", "我现在住在迈阿密。", "小明"),
    ),
    (
        Case("小明搬到迈阿密之前住在哪里？", "戴维斯", ("波士顿", "迈阿密")),
        Case("小明现在住在哪里？", "迈阿密", ("波士顿", "戴维斯", "上海")),
        Case("小明最早住在哪里？", "波士顿", ("戴维斯", "迈阿密")),
        Case("2024年1月小明住在哪里？", "戴维斯", ("波士顿", "迈阿密")),
        Case("小明离开波士顿之后住在哪里？", "戴维斯", ("波士顿", "迈阿密")),
        Case("小明去年住在哪里？", "戴维斯", ("波士顿", "迈阿密"), on="2024-08-15"),
    ),
)

JAPANESE = Story(
    "日本語",
    (
        Said("2022-03-01", "私はボストンに住んでいます。", "健太"),
        Said("2023-05-20", "デイビスに引っ越しました。", "健太"),
        Said("2023-08-08", "私は大阪に住んでいます。", "花子"),
        Said("2024-07-01", "今はマイアミに住んでいます。", "健太"),
    ),
    (
        Case("健太はマイアミに引っ越す前にどこに住んでいましたか？", "デイビス", ("ボストン", "マイアミ")),
        Case("健太は今どこに住んでいますか？", "マイアミ", ("ボストン", "デイビス", "大阪")),
        Case("健太は最初どこに住んでいましたか？", "ボストン", ("デイビス", "マイアミ")),
        Case("健太は2024年1月にどこに住んでいましたか？", "デイビス", ("ボストン", "マイアミ")),
    ),
)

MORE_LANGUAGES = Story(
    "work and dates in more languages",
    (
        Said("2021-03-03", "我在华为工作。", "小明"),
        Said("2023-04-04", "我现在在腾讯工作。", "小明"),
        Said("2024-08-07", "我和同事去爬山了。", "小明"),
        Said("2024-08-12", "我买了一台相机。", "小明"),
        Said("2022-01-01", "トヨタで働いています。", "健太"),
        Said("2024-01-01", "今はソニーで働いています。", "健太"),
        Said("2024-08-08", "海で泳ぎました。", "健太"),
        Said("2020-01-01", "Meine Freundin heißt Anna.", "Jonas"),
        Said("2023-01-01", "Meine neue Freundin heißt Julia.", "Jonas"),
        Said("2021-01-01", "Trabajo en Telefónica.", "Pablo"),
        Said("2023-02-02", "Ahora trabajo en Iberia.", "Pablo"),
        Said("2021-01-01", "Je travaille chez Renault.", "Luc"),
        Said("2023-02-02", "Je travaille maintenant chez Airbus.", "Luc"),
        Said("2024-08-06", "Ich habe mir ein Klavier gekauft.", "Jonas"),
    ),
    (
        Case("小明去腾讯之前在哪里工作？", "华为", ("腾讯",)),
        Case("小明现在在哪里工作？", "腾讯", ("华为",)),
        Case("小明上周做了什么？", "爬山", ("相机",), on="2024-08-15"),
        Case("小明三天前买了什么？", "相机", ("爬山",), on="2024-08-15"),
        Case("健太はソニーの前にどこで働いていましたか？", "トヨタ", ("ソニー",)),
        Case("健太は今どこで働いていますか？", "ソニー", ("トヨタ",)),
        Case("健太は先週何をしましたか？", "海で泳ぎ", ("ソニー",), on="2024-08-15"),
        Case("Wie hieß Jonas' Freundin vor Julia?", "Anna", ("Julia",)),
        Case("Wie heißt die Freundin von Jonas jetzt?", "Julia", ("Anna",)),
        Case("¿Dónde trabajaba Pablo antes de Iberia?", "Telefónica", ("Iberia",)),
        Case("Où travaillait Luc avant Airbus ?", "Renault", ("Airbus",)),
        Case("Was hat Jonas letzte Woche gekauft?", "Klavier", (), on="2024-08-15"),
    ),
)
