"""The pages as they are sent: complete, escaped, for this machine alone, and changed only on purpose."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from memory_pipeline import Memory
from memory_pipeline.explorer.app import Explorer
from memory_pipeline.lake import Lake
from memory_pipeline_tests.explorer.making import HOSTILE, LATER, make_lake

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import CopiedLake, SharedFolder

OF_ANNA = "workspace=acme&agent=support&user=anna"


@pytest.fixture
def client(shared_folder: SharedFolder) -> TestClient:
    lake = Lake(str(shared_folder("explorer", make_lake)))
    return TestClient(Explorer(lake, now=lambda: LATER).app(), base_url="http://localhost")


def text_of(page: str) -> str:
    """Return what a person reads."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def links_in(page: str, path: str) -> list[str]:
    return [unescape(one) for one in re.findall(rf'href="(/{path}\?[^"]*)"', page)]


def test_the_first_page_lists_agents_and_finds_words_of_all_users(client: TestClient) -> None:
    page = text_of(client.get("/").text)
    assert "acme/support" in page
    assert "anna , ben" in page
    assert "1 file waits in the journal" in page
    found = client.get("/?query=hazelnuts").text
    assert "I am allergic to hazelnuts." in text_of(found)
    assert any("user=anna" in one for one in links_in(found, "calendar"))
    assert "Nothing has all of these words." in client.get("/?query=zzz").text


def test_the_calendar_leads_from_a_year_to_a_message(client: TestClient) -> None:
    years = client.get(f"/calendar?{OF_ANNA}").text
    [year] = [one for one in links_in(years, "calendar") if "grain=yearly" in one]
    quarters = client.get(year).text
    month = next(
        one for one in links_in(client.get(links_in(quarters, "calendar")[-4]).text, "calendar") if "2026-03" in one
    )
    page = client.get(month).text
    assert "I moved to Faro." in text_of(page)
    assert "Weeks" in text_of(page)
    day = next(one for one in links_in(page, "calendar") if "2026-03-09" in one)
    shown = client.get(day).text
    assert "What was said" in text_of(shown)
    source = client.get(links_in(shown, "source")[0]).text
    assert "message" in text_of(source)
    conversation = client.get(links_in(shown, "conversation")[0]).text
    assert "I moved to Faro." in text_of(conversation)
    assert "lives_in Faro" in text_of(conversation)


def test_periods_look_as_they_are(client: TestClient) -> None:
    month = client.get(f"/calendar?{OF_ANNA}&grain=monthly&period=2026-03").text
    states = dict(re.findall(r'<li class="(\w+)"><a [^>]*period=(2026-03-\d\d)"', month))
    assert set(states) == {"summary", "empty"}
    july = client.get(f"/calendar?{OF_ANNA}&grain=monthly&period=2026-07").text
    assert re.search(r'<li class="waiting"><a [^>]*period=2026-07-05"', july)


def test_a_search_shows_reasons_context_and_recall(client: TestClient) -> None:
    page = text_of(client.get(f"/search?{OF_ANNA}&query=Where+do+I+live%3F&budget=300").text)
    assert "I moved to Faro." in page
    assert "Why it was found" in page
    assert "What context hands over" in page
    assert "What recall hands over" in page
    assert "0 of" in text_of(client.get(f"/search?{OF_ANNA}&query=Faro&floor=1").text)


def test_the_graph_shows_what_replaced_an_ended_fact(client: TestClient) -> None:
    page = client.get(f"/graph?{OF_ANNA}&name=User").text
    assert "<circle" in page
    assert "No longer so" in page
    before = text_of(client.get(f"/graph?{OF_ANNA}&name=User&at=2026-02-01").text)
    assert "User lives_in Porto" in before
    assert "lives_in Faro" not in before.partition("No longer so")[0]
    assert "has no entity" in client.get(f"/graph?{OF_ANNA}&name=Nobody").text


def test_memories_with_their_history(client: TestClient) -> None:
    page = client.get(f"/memories?{OF_ANNA}").text
    assert "Answer Anna in Portuguese." in text_of(page)
    identifier = next(one for one in links_in(page, "memory") if "2026-03-11" in one)
    memory = text_of(client.get(identifier).text)
    assert "Answer Anna in Portuguese." in memory
    assert "What happened to it" in memory
    assert "Forget it" not in memory


def test_cost_delays_and_checks(client: TestClient) -> None:
    page = text_of(client.get("/quality?checks=1").text)
    assert "late" in page
    assert "checks passed" in page or "failed" in page
    assert "questions were answered with memory" in page


def test_no_text_of_a_memory_becomes_part_of_a_page(client: TestClient) -> None:
    seen: set[str] = set()
    waiting = ["/", "/?query=remember", f"/calendar?{OF_ANNA}", f"/search?{OF_ANNA}&query=he+sent", f"/graph?{OF_ANNA}",
               f"/memories?{OF_ANNA}&status=any", f"/conversations?{OF_ANNA}", "/quality"]  # fmt: skip
    has_hostile = False
    while waiting and len(seen) < 250:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "script" not in answer.headers["content-security-policy"].replace("default-src 'none'", "")
        assert not re.search(r"<(img|script|b>|iframe)", answer.text), path
        assert "49" not in re.findall(r"script&gt; (\S+)", answer.text)
        has_hostile |= HOSTILE[:20] in unescape(answer.text)
        waiting += [unescape(one) for one in re.findall(r'href="(/[^"]*\?[^"]*)"', answer.text)]
    assert has_hostile


@pytest.mark.parametrize(
    "path",
    [
        "/source?id=%3Cscript%3E", "/memory?id=x", "/calendar?grain=daily&period=2026-99-99", "/conversation?id=none",
        "/search?query=x&since=soon", "/calendar?workspace=%00", "/search?query=x&budget=many",
        "/search?query=x&floor=high",        "/graph?at=soon&name=User",
    ],
)  # fmt: skip
def test_a_bad_address_is_explained(client: TestClient, path: str) -> None:
    answer = client.get(f"{path}&{OF_ANNA.replace('workspace=acme&', '') if 'workspace' in path else OF_ANNA}")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert "<script" not in answer.text


def test_only_this_machine_is_answered(client: TestClient) -> None:
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"Origin": "https://evil.example"}).status_code == 403


def test_nothing_is_changed_unless_it_is_allowed(client: TestClient) -> None:
    for path in ("/correct", "/forget"):
        assert client.post(path, data={"id": "x"}).status_code == 404


def test_a_statement_is_corrected_after_its_plan_was_shown(copied: CopiedLake) -> None:
    lake = copied("explorer", make_lake)
    client = TestClient(Explorer(lake, allows_corrections=True).app(), base_url="http://localhost")
    shown = client.get(f"/calendar?{OF_ANNA}&grain=daily&period=2026-03-09").text
    offer = client.get(links_in(shown, "source")[0]).text
    plan = client.get(next(one for one in links_in(offer, "source") if "correct=1" in one)).text
    assert "Nothing is changed yet" in text_of(plan) or "nothing is changed yet" in text_of(plan)
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', plan))
    form = {name: unescape(value) for name, value in form.items()}
    forged = client.post("/correct", data={**form, "key": "x", "text": "I moved to Lagos."})
    assert forged.status_code == 403
    assert client.post("/correct", data={**form, "text": "I moved to Lagos."}).status_code == 200
    memory = Memory(lake.storage.uri, user_id="anna", agent_id="support", workspace_id="acme")
    assert "Lagos" in str(memory.context("Where do I live?"))
    page = client.get(f"/memories?{OF_ANNA}").text
    identifier = next(one for one in links_in(page, "memory") if "2026-03-11" in one)
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', client.get(identifier).text))
    assert client.post("/forget", data={name: unescape(value) for name, value in form.items()}).status_code == 200
    assert "Answer Anna in Portuguese." not in [one.content for one in memory.list("memory")]


def test_an_empty_lake_says_so(root: str) -> None:
    client = TestClient(Explorer(Lake(root)).app(), base_url="http://localhost")
    assert "There is no agent yet" in text_of(client.get("/").text)
    for page in ("calendar", "search", "graph", "memories", "conversations"):
        assert client.get(f"/{page}?workspace=a&agent=b&user=c").status_code == 200
    assert client.get("/quality").status_code == 200
