"""Words for days, weeks, months, years and feasts in thirteen languages, as alternatives of regular expressions.

English, German, French, Spanish, Italian, Portuguese, Dutch, Russian, Arabic, Chinese, Japanese, Korean and Thai.
"""

from __future__ import annotations

from typing import Final

#: Phrases by how many days, weeks, months or years after today they are. Those without a unit name no date. The first
#: match counts.
PHRASES: Final = {
    ("", 0): "(?:am|guten|jeden|nächsten|gestern) morgen|(?:la|cada|buena) mañana|اليوم التالي",
    ("day", 2): "übermorgen|après-demain|pasado mañana|dopodomani|depois de amanhã|overmorgen|послезавтра|بعد غد"
    "|后天|明後日|あさって|모레|มะรืนนี้",
    ("day", -2): "vorgestern|avant-hier|anteayer|antes de ayer|l['’]altro ieri|anteontem|eergisteren|позавчера|أول أمس"
    "|前天|一昨日|おととい|그저께|เมื่อวานซืน",
    ("day", -1): "gestern|hier|ayer|ieri|ontem|gisteren|вчера|أمس|昨天|昨日|きのう|어제|เมื่อวาน(?:นี้)?",
    ("day", 0): "heute(?: morgen)?|aujourd['’]hui|hoy|oggi|hoje|vandaag|сегодня|اليوم|今天|今日|きょう|오늘|วันนี้",
    ("day", 1): "morgen|demain|mañana|domani|amanhã|завтра|غد[اًا]+|明天|明日|あした|내일|พรุ่งนี้",
    ("week", -1): "先週", ("week", 0): "今週", ("week", 1): "来週",
    ("month", -1): "先月", ("month", 0): "今月", ("month", 1): "来月",
    ("year", -1): "去年|昨年|작년", ("year", 0): "今年|올해", ("year", 1): "明年|来年|내년",
}  # fmt: skip
#: Words before and after a noun of :data:`NOUNS` that mean the last, this and the next one.
AFFIXES: Final = {
    -1: ("letzte[nrs]?|vergangene[nrs]?|vorige[nrs]?|afgelopen|прошл(?:ый|ую|ое|ой|ом)|上(?:一?个)?|先週の|지난",
         "derni(?:er|ère)|pasad[oa]|passad[oa]|scors[oa]|الماضية?|ที่แล้ว"),
    0: ("diese[nrms]?|deze|dit|ce(?:tte)?|est[ea]|quest[oa]|эт(?:от|у|о|ой|ом)|这(?:一?个)?|本|今週の|이번",
        "الحالية?|هذا|นี้"),
    1: (r"nächste[nrs]?|kommende[nrs]?|volgende?|komende|próxim[oa]|prossim[oa]|следующ\w+|下(?:一?个)?|来週の|다음",
        "prochaine?|próxim[oa]|que viene|que vem|prossim[oa]|القادمة?|المقبلة?|หน้า"),
}  # fmt: skip
NOUNS: Final = {
    "week": "woche|semaine|semana|settimana|week|недел[яюе]|الأسبوع|周|星期|주|สัปดาห์|อาทิตย์",
    "month": "monat|mois|mes|mese|mês|maand|месяце?|الشهر|月|달|เดือน",
    "year": "jahr|an|année|año|anno|ano|jaar|год[у]?|السنة|العام|해|ปี",
    "0": "montag|lundi|lunes|lunedì|segunda(?:-feira)?|maandag"
    "|понедельник|(?:يوم )?الاثنين|(?:周|星期)一|月曜日?|월요일|วันจันทร์",
    "1": "dienstag|mardi|martes|martedì|terça(?:-feira)?|dinsdag"
    "|вторник|(?:يوم )?الثلاثاء|(?:周|星期)二|火曜日?|화요일|วันอังคาร",
    "2": "mittwoch|mercredi|miércoles|mercoledì|quarta(?:-feira)?|woensdag"
    "|сред[ау]|(?:يوم )?الأربعاء|(?:周|星期)三|水曜日?|수요일|วันพุธ",
    "3": "donnerstag|jeudi|jueves|giovedì|quinta(?:-feira)?|donderdag"
    "|четверг|(?:يوم )?الخميس|(?:周|星期)四|木曜日?|목요일|วันพฤหัส(?:บดี)?",
    "4": "freitag|vendredi|viernes|venerdì|sexta(?:-feira)?|vrijdag"
    "|пятниц[ау]|(?:يوم )?الجمعة|(?:周|星期)五|金曜日?|금요일|วันศุกร์",
    "5": "samstag|sonnabend|samedi|sábado|sabato|zaterdag"
    "|суббот[ау]|(?:يوم )?السبت|(?:周|星期)六|土曜日?|토요일|วันเสาร์",
    "6": "sonntag|dimanche|domingo|domenica|zondag"
    "|воскресенье|(?:يوم )?الأحد|(?:周|星期)[日天]|日曜日?|일요일|วันอาทิตย์",
}  # fmt: skip

#: The months in Spanish, French, Italian, Portuguese, Dutch and Russian, January first. German has rules of its own.
MONTHS: Final = (
    "enero|janvier|gennaio|janeiro|januari|январ[ьяе]", "febrero|février|febbraio|fevereiro|februari|феврал[ьяе]",
    "marzo|mars|março|maart|марта?|марте", "abril|avril|aprile|апрел[ьяе]", "mayo|maggio|maio|mei|ма[йяе]",
    "junio|juin|giugno|junho|июн[ьяе]", "julio|juillet|luglio|julho|июл[ьяе]", "agosto|août|augustus|августа?|августе",
    "septiembre|septembre|settembre|setembro|сентябр[ьяе]", "octubre|octobre|ottobre|outubro|октябр[ьяе]",
    "noviembre|novembre|novembro|ноябр[ьяе]", "diciembre|décembre|dicembre|dezembro|декабр[ьяе]",
)  # fmt: skip
#: Feasts that are on the same day each year, by month and day, and the number of days.
FEASTS: Final = {
    (12, 31, 1): r"new year['’]?s['’]? eve|silvester|nochevieja|ultimo dell['’]anno|oudejaarsavond|大晦日|除夕夜",
    (1, 1, 1): r"new year['’]?s['’]? day|neujahr|año nuevo|nouvel an|capodanno|ano novo|nieuwjaar|元旦|元日",
    (12, 31, 2): r"new year['’]?s?",
    (12, 24, 1): "christmas eve|heiligabend|heiligen abend|nochebuena|平安夜",
    (12, 25, 1): "christmas day|圣诞节",
    (12, 24, 3): "christmas|xmas|weihnachten|navidad|noël|natale|natal|kerst(?:mis)?|クリスマス",
    (10, 31, 1): "halloween|万圣节",
    (2, 14, 1): r"valentine['’]?s day|valentinstag|san valentín|saint-valentin|情人节|バレンタイン",
}  # fmt: skip
