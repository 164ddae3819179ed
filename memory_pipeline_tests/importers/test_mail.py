"""E-mail: threads, what was said before, signatures, and mails that nobody wrote."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest

from memory_pipeline.importers.mail import own_words
from memory_pipeline_tests.importers.exports import Read, written


def mail(identity: str, sender: str, text: str, minute: int, subject: str = "Plan", **headers: str) -> EmailMessage:
    message = EmailMessage()
    message["Message-ID"], message["From"], message["Subject"] = f"<{identity}>", sender, subject
    message["Date"] = f"Mon, 1 Jan 2024 10:{minute:02}:00 +0100"
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message


FROM = "From x@y Mon Jan  1 10:00:00 2024\n"


def box(*mails: EmailMessage) -> str:
    return "".join(f"{FROM}{one.as_string()}\n" for one in mails)


def test_an_mbox(tmp_path: Path) -> None:
    first = mail("1@x", "Anna Alm <anna@x.org>", "Shall we meet?\n\nFrom here it is near.\n-- \nAnna Alm, Porto", 1)
    first.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="plan.pdf")
    answer = mail("2@x", "ben@x.org", "Yes.\n\nOn Mon, Anna Alm wrote:\n> Shall we meet?\n> -- ", 2, "Re: Plan",
                  In_Reply_To="<1@x>", References="<1@x>")  # fmt: skip
    page = EmailMessage()
    page["Message-ID"], page["From"], page["References"] = "<3@x>", "Anna Alm <anna@x.org>", "<1@x> <2@x>"
    page["Date"], page["Subject"] = "Mon, 1 Jan 2024 10:03:00 +0100", "Re: Plan"
    page.set_content(
        "<html><head><style>b {}</style></head><body><div>Good &amp; fine.</div><div class='gmail_quote'>Ben wrote:"
        "<blockquote>Yes.</blockquote></div></body></html>",
        subtype="html",
    )
    news = mail("4@x", "news@x.org", "Buy now.", 4, "News", List_Unsubscribe="<mailto:x@y>")
    spam = mail("5@x", "spam@x.org", "Win.", 5, "Win", X_Gmail_Labels="Spam")
    found = Read(written(tmp_path / "all.mbox", box(first, answer, page, news, spam, answer)))
    assert found.said == [
        ("user", "Anna Alm", "Plan\nShall we meet?\n\nFrom here it is near.\n[file: plan.pdf]"),
        ("user", "ben@x.org", "Yes."),
        ("user", "Anna Alm", "Good & fine."),
        ("tool", "news@x.org", "News\nBuy now."),
    ]
    assert found.conversations == ["mail:<1@x>", "mail:<4@x>"]
    assert found.times[0] == "2024-01-01T09:01:00+00:00"
    assert found.report.skipped["mails that the export repeats"] == 1


def test_a_single_mail_a_damaged_one_and_odd_character_sets(tmp_path: Path) -> None:
    one = Read(written(tmp_path / "one.eml", mail("1@x", "anna@x.org", "Hello.", 1).as_bytes().replace(b"\n", b"\r\n")))
    assert one.said == [("user", "anna@x.org", "Plan\nHello.")]
    odd = "Message-ID: <2@x>\nFrom: anna@x.org\nDate: {}\nContent-Type: text/plain; charset={}\n\nOlá.\n"
    bad = f"{FROM}{odd.format('never', 'utf-8')}\n{FROM}{odd.format('Mon, 1 Jan 2024 10:00:00 +0000', 'x-unknown')}"
    found = Read(written(tmp_path / "b" / "bad.mbox", bad))
    assert [text for *_, text in found.said] == ["Olá."]
    assert found.report.ingestion.set_aside == 1


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("Ja.\n\nAm Mo., 1. Jan. 2024 um 10:00 Uhr schrieb Anna\n<anna@x.org>:\n\n> Kommst du?\n", "Ja."),
        ("Oui.\n\nLe lun. 1 janv. 2024 à 10:00, Anna a écrit :\n> Viens-tu ?\n", "Oui."),
        ("Yes.\n\n-----Original Message-----\nFrom: Anna\nSent: Monday\n\nComing?", "Yes."),
        ("Ja.\n\nVon: Anna\nGesendet: Montag\nAn: Ben\n\nKommst du?", "Ja."),
        ("Sí.\n________________________________\nDe: Anna\nEnviado: lunes\n", "Sí."),
        ("Fine.\n\nSent from my iPhone", "Fine."),
        ("> Coming?\nYes.\n> When?\nAt ten: sharp.\n", "Yes.\nAt ten: sharp."),
        (
            "Note: this stays.\n\nFrom: here to there it is far.\n",
            "Note: this stays.\n\nFrom: here to there it is far.",
        ),
    ],
)
def test_own_words(text: str, own: str) -> None:
    assert own_words(text) == own
