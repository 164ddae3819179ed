"""WhatsApp: the formats of regions, the order of dates, time zones, media and notices."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline_tests.importers.exports import Read, imported, written

#: Two messages of the afternoon of 5 and 25 March 2024 in the format of a region. Of 5 March alone, it is not clear.
REGIONS = {
    "United States, Android": ("3/5/24, 3:04 PM - ", "3/25/24, 3:04 PM - "),
    "United States, iOS": ("[3/5/24, 3:04:00\u202fPM] ", "[3/25/24, 3:04:00\u202fPM] "),
    "Great Britain": ("05/03/2024, 15:04 - ", "25/03/2024, 15:04 - "),
    "India": ("05/03/24, 3:04 pm - ", "25/03/24, 3:04 pm - "),
    "Germany, Android": ("05.03.24, 15:04 - ", "25.03.24, 15:04 - "),
    "Germany, iOS": ("[05.03.24, 15:04:00] ", "[25.03.24, 15:04:00] "),
    "Spain": ("5/3/24, 15:04 - ", "25/3/24, 15:04 - "),
    "Mexico": ("5/3/24, 3:04 p.\xa0m. - ", "25/3/24, 3:04 p.\xa0m. - "),
    "Brazil": ("05/03/2024 15:04 - ", "25/03/2024 15:04 - "),
    "France": ("05/03/2024 à 15:04 - ", "25/03/2024 à 15:04 - "),
    "Netherlands": ("05-03-2024 15:04 - ", "25-03-2024 15:04 - "),
    "Sweden": ("2024-03-05 15:04 - ", "2024-03-25 15:04 - "),
    "Finland": ("[5.3.2024 klo 15.04.00] ", "[25.3.2024 klo 15.04.00] "),
    "Korea": ("2024. 3. 5. 오후 3:04 - ", "2024. 3. 25. 오후 3:04 - "),
    "Japan": ("2024/03/05 15:04 - ", "2024/03/25 15:04 - "),
    "China": ("2024/3/5 下午3:04 - ", "2024/3/25 下午3:04 - "),
    "Arabic digits": ("٥/٣/٢٠٢٤, ٣:٠٤ م - ", "٢٥/٣/٢٠٢٤, ٣:٠٤ م - "),
    "Thailand": ("5/3/2567 15:04 - ", "25/3/2567 15:04 - "),
}


@pytest.mark.parametrize("region", REGIONS)
def test_the_formats_of_regions(tmp_path: Path, region: str) -> None:
    first, second = REGIONS[region]
    text = f"{first}Anna: Hello: there\nsecond line\n{second}Ben: Hi.\n"
    found = Read(written(tmp_path / "WhatsApp Chat with Ben.txt", text), timezone="Europe/Lisbon")
    assert found.said == [("user", "Anna", "Hello: there\nsecond line"), ("user", "Ben", "Hi.")]
    assert found.times == ["2024-03-05T15:04:00+00:00", "2024-03-25T15:04:00+00:00"]
    assert found.conversations == ["whatsapp:Ben"]


def test_the_order_of_dates_is_that_in_which_time_goes_forward(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--date-order"):
        Read(written(tmp_path / "a.txt", "3/4/24, 10:00 - Anna: Hello.\n" * 2), timezone="UTC")
    assert Read(tmp_path / "a.txt", timezone="UTC", date_order="mdy").times[0].startswith("2024-03-04")
    same = Read(written(tmp_path / "same.txt", "1/1/24, 10:00 - Anna: Hello.\n" * 2), timezone="UTC")
    assert same.times == ["2024-01-01T10:00:00+00:00"] * 2  # either order means the same day
    text = "".join(f"{date}/24, 10:00 - Anna: {date}\n" for date in ("3/4", "4/4", "10/4", "1/5", "2/5"))
    assert Read(written(tmp_path / "b.txt", text), timezone="UTC").times[0].startswith("2024-04-03")


def test_a_zone_is_asked_for_before_anything_is_written(tmp_path: Path, root: str) -> None:
    written(tmp_path / "folder" / "chat.txt", "25.03.24, 15:04 - Anna: Hello.\n" * 2)
    written(
        tmp_path / "folder" / "a.jsonl", '{"role": "user", "content": "Hi.", "timestamp": "2024-01-01T10:00Z"}\n' * 2
    )
    with pytest.raises(InputError, match="--timezone"):
        imported(Lake(root), tmp_path / "folder")
    assert not Path(root).exists()


def test_the_hour_that_clocks_repeat_is_resolved_by_the_order(tmp_path: Path) -> None:
    lines = [f"27.10.24, {time} - Anna: {number}" for number, time in enumerate(("02:50", "02:10", "02:40", "03:05"))]
    found = Read(written(tmp_path / "chat.txt", "\n".join(lines)), timezone="Europe/Berlin")
    assert [one.utc_offset for one in found.messages] == [120, 60, 60, 60]
    assert [one[11:16] for one in found.times] == ["00:50", "01:10", "01:40", "02:05"]
    assert sum(found.report.checks.values()) == 1  # the first one may be of either hour


IOS = """\
[05.03.24, 15:04:00] Family: \u200eMessages and calls are end-to-end encrypted.
\u200e[05.03.24, 15:04:01] ~\u202fAnna: \u200eimage omitted
\u200e[05.03.24, 15:04:02] Anna: \u200e<attached: 00000012-AUDIO-2024.opus>
\u200e[05.03.24, 15:04:03] Anna: plan.pdf • \u200e3 pages \u200edocument omitted
[05.03.24, 15:04:04] \u202a+351 900\u202c: Text \u200e<This message was edited>
\u200e[05.03.24, 15:04:05] Anna: \u200eThis message was deleted.
[05.03.24, 15:04:06] Anna:
"""
ANDROID = """\
05/03/2024, 15:04 - Messages and calls are end-to-end encrypted. Tap to learn more.
05/03/2024, 15:05 - Anna added Ben
05/03/2024, 15:06 - Anna: <Media omitted>
05/03/2024, 15:07 - Anna: IMG-2024.jpg (file attached)
A caption
05/03/2024, 15:08 - Anna: This message was deleted
05/03/2024, 15:09 - Anna: ok
05/03/2024, 15:09 - Anna: ok
25/03/2024, 15:09 - Anna: <b> is bold
"""


def test_media_and_notices(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "WhatsApp Chat - Family.zip", "w") as archive:
        archive.writestr("_chat.txt", IOS.replace("\n", "\r\n"))
        archive.writestr("00000012-AUDIO-2024.opus", b"x")
    found = Read(tmp_path / "WhatsApp Chat - Family.zip", timezone="UTC")
    assert found.said == [
        ("user", "Anna", "[image]"),
        ("user", "Anna", "[audio]"),
        ("user", "Anna", "plan.pdf • \u200e3 pages \u200edocument omitted"),
        ("user", "+351 900", "Text"),
    ]
    assert found.conversations == ["whatsapp:Family"]
    android = Read(written(tmp_path / "WhatsApp Chat with Ben (1).txt", ANDROID), timezone="UTC")
    assert [text for *_, text in android.said] == ["[file]", "[image]\nA caption", "ok", "ok", "<b> is bold"]
    assert android.conversations == ["whatsapp:Ben"]
    assert android.report.skipped == {"notices of the service": 2, "messages that were deleted": 1}


def test_a_longer_export_adds_what_is_new(tmp_path: Path, root: str) -> None:
    path = written(tmp_path / "WhatsApp Chat with Ben.txt", ANDROID)
    assert imported(Lake(root), path, timezone="UTC").ingestion.accepted == 5
    longer = ANDROID.replace("Anna:", "Anna Alm:") + "26/03/2024, 15:09 - Anna Alm: New.\n"
    after = imported(Lake(root), written(path, longer), timezone="UTC").ingestion
    assert (after.accepted, after.repeated, after.set_aside) == (1, 5, 0)
