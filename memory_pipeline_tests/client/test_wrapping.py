"""A chat client with memory, against a real server: context once, turns stored, answers unchanged."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import litellm
import openai
import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline_tests.openai_answers import message_reply, message_stream
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "gpt-test"
CALLS = [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Porto"}'}}]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = lambda body: "Noted."
        yield server


@pytest.fixture
def client(server: OpenAIServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def say(client: Any, *texts: Any, **options: Any) -> Any:
    messages = [user(text) if isinstance(text, str) else text for text in texts]
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def stored(memory: Memory) -> list[str]:
    return [hit.content for hit in reversed(memory.list("fact"))]


def prompts(server: OpenAIServer) -> list[list[str]]:
    """Return the contents of the messages of each request."""
    return [[message["content"] for message in request.body["messages"]] for request in server.requests]


def test_a_chat_that_never_mentions_memory_knows_the_day_before(
    root: str, server: OpenAIServer, client: openai.OpenAI
) -> None:
    first = Memory(root, user_id="anna").wrap(client)
    say(first, {"role": "system", "content": "Be brief."}, "I moved to Porto.")
    second = Memory(root, user_id="anna").wrap(client)
    answer = say(second, "Where do I live?")
    assert answer.choices[0].message.content == "Noted."
    assert "Porto" in prompts(server)[1][0]
    assert prompts(server)[1][0].endswith("\n\nWhere do I live?")
    memory = Memory(root, user_id="anna")
    assert stored(memory) == ["User: I moved to Porto.", "Agent: Noted.", "User: Where do I live?", "Agent: Noted."]
    assert len({hit.conversation_id for hit in memory.list("fact")}) == 2
    say(Memory(root, user_id="ben").wrap(client), "Where does Anna live?")
    assert prompts(server)[2] == ["Where does Anna live?"]


def test_nothing_is_told_twice_in_a_conversation(memory: Memory, server: OpenAIServer, client: openai.OpenAI) -> None:
    memory.add(["I moved to Porto.", "My sister is called Ines."])
    chat = memory.wrap(client)
    talk: list[Any] = []
    for text in ("Where do I live?", "Tell me again where I live: Porto?", "What is my sister called?"):
        talk.append(user(text))
        talk.append(say(chat, *talk).choices[0].message)
    last = prompts(server)[-1]
    assert [text.splitlines()[-1] for text in last if text != "Noted."] == [one["content"] for one in talk[::2]]
    lines = [line for text in last for line in text.splitlines() if line.startswith("⁍ [")]
    assert len(lines) == len(set(lines))
    assert "Porto" in last[0]
    assert "I moved to Porto" not in "".join(last[1:])
    # What was added before stands at the same place, so that a prompt cache stays valid.
    assert [prompt[0] for prompt in prompts(server)] == [last[0]] * 3
    assert stored(memory)[2:] == [
        line for text in talk[::2] for line in (f"User: {text['content']}", "Agent: Noted.")
    ]  # fmt: skip


def test_nothing_is_told_twice_in_a_conversation_that_another_object_continues(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI
) -> None:
    memory.add(["I moved to Porto.", "My sister is called Ines."])
    talk: list[Any] = []
    for text in ("Where do I live? I like figs.", "Where do I live: Porto? And who likes figs?"):
        talk.append(user(text))
        chat = Memory(memory.lake.storage.uri, user_id="anna").wrap(client, conversation_id="chat")
        say(chat, *talk)
        talk.append({"role": "assistant", "content": "Noted."})
    first, second = prompts(server)
    assert "I moved to Porto" in first[0]
    assert second[0] == first[0]
    assert "I moved to Porto" not in second[2]
    assert "figs" not in second[2].replace(talk[2]["content"], "")


def test_what_the_model_reads_anyway_is_not_added(memory: Memory, server: OpenAIServer, client: openai.OpenAI) -> None:
    memory.add("My sister likes figs.")
    chat = memory.wrap(client)
    talk = [user("I like figs."), {"role": "assistant", "content": "Noted."}, user("Who likes figs?")]
    say(chat, talk[0])
    say(chat, *talk)
    _, prompt = prompts(server)
    assert "".join(prompt).count("I like figs.") == 1
    assert "My sister likes figs." in "".join(prompt)
    say(chat, talk[2], "And what do I like?")  # the model no longer gets the first message
    assert "I like figs." in prompts(server)[-1][-1]


def test_two_chats_at_once_stay_apart_and_a_named_one_continues(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI
) -> None:
    chat = memory.wrap(client)
    for word in ("figs", "kites"):
        one = [user("Hi."), {"role": "assistant", "content": f"Hello, {word}."}]
        server.answer = lambda body, word=word: f"Hello, {word}."
        say(chat, "Hi.")
        say(chat, *one, f"I like {word}.")
    talks = {hit.conversation_id for hit in memory.list("fact")}
    assert len(talks) == 2
    named = memory.wrap(client, conversation_id="c1")
    say(named, "I fly tomorrow.")
    say(named, {"role": "assistant", "content": "Hello, kites."}, "To Oslo.")  # the window has moved
    assert [hit.conversation_id for hit in memory.list("fact")[:3]] == ["c1", "c1", "c1"]


@pytest.mark.parametrize("first", [None, {"role": "system", "content": "Summary: Riga."}, user("Summary: Riga.")])
def test_a_chat_whose_beginning_is_cut_stays_one_conversation(memory: Memory, first: dict[str, Any] | None) -> None:
    chat: Any = memory.wrap(
        lambda messages: {"message": {"role": "assistant", "content": f"To {messages[-1]['content']}"}}
    )
    talk: list[Any] = []
    for number in range(6):
        talk.append(user(f"Question {number}"))
        window = talk if first is None or len(talk) < 6 else [first, *talk[-5:]]
        talk.append(chat(window if first else talk[-5:])["message"])
    assert len({hit.conversation_id for hit in memory.list("fact")}) == 1
    assert len([line for line in stored(memory) if "Summary" not in line]) == 12


def test_answers_and_streams_are_those_of_the_client(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI
) -> None:
    server.answer = lambda body: "Porto is rainy today."
    chat = memory.wrap(client)

    def contents(stream: Any) -> list[Any]:
        return [chunk.model_dump(exclude={"created", "id"}) for chunk in stream]

    assert say(chat, "A.").model_dump(exclude={"created", "id", "usage"}) == say(client, "A.").model_dump(
        exclude={"created", "id", "usage"}
    )
    assert contents(say(chat, "B.", stream=True)) == contents(say(client, "B.", stream=True))
    with say(chat, "C.", stream=True) as stream:
        assert stream.response.status_code == 200
        next(stream)
    server.answer = lambda body: {"tool_calls": CALLS}
    assert contents(say(chat, "D.", stream=True)) == contents(say(client, "D.", stream=True))
    assert say(chat, "E.").choices[0].message.tool_calls[0].function.name == "get_weather"
    copy = chat.with_options(timeout=10)
    say(copy, "F.")
    assert type(chat.models) is type(client.models)
    said = [hit.content for hit in memory.list("fact")]
    assert {f"User: {letter}." for letter in "ABCDEF"} <= set(said)
    assert said.count("Agent: Porto is rainy today.") == 2
    journal = b"".join(memory.lake.storage.read(file.path) or b"" for file in memory.lake.journal.pending())
    assert journal.count(b'get_weather({\\"city\\": \\"Porto\\"})') == 3


def test_an_abandoned_stream_is_stored_as_far_as_it_was_heard(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI
) -> None:
    server.answer = lambda body: "One two three."
    chat = memory.wrap(client)
    stream = say(chat, "Count.", stream=True)
    for _ in range(3):
        next(stream)
    stream.close()
    assert stored(memory) == ["User: Count.", "Agent: One two"]
    stream = say(chat, "Again.", stream=True)
    next(stream)
    del stream  # forgotten without an end
    gc.collect()
    say(chat, "Bye.")
    assert stored(memory)[2:] == ["User: Again.", "User: Bye.", "Agent: One two three."]


def test_what_is_said_last_is_stored_before_the_process_ends(memory: Memory, server: OpenAIServer) -> None:
    script = (
        "import sys, openai; from memory_pipeline import Memory; root, url = sys.argv[1:]\n"
        "chat = Memory(root, user_id='anna').wrap(openai.OpenAI(base_url=url, api_key='k'))\n"
        "messages = [{'role': 'user', 'content': 'Goodbye.'}]\n"
        "chat.chat.completions.create(model='m', messages=messages)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, memory.lake.storage.uri, server.base_url],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert stored(memory) == ["User: Goodbye.", "Agent: Noted."]


def test_an_async_client_and_litellm(memory: Memory, server: OpenAIServer) -> None:
    server.answer = lambda body: "Porto."

    async def talk() -> None:
        async with memory.wrap(openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0)) as chat:
            answer = await say(chat, "I moved to Porto.")
            assert answer.choices[0].message.content == "Porto."
            stream = await say(chat, "Where do I live?", stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Porto."
        options: Any = {"model": f"openai/{MODEL}", "api_base": server.base_url, "api_key": "k"}
        acompletion = memory.wrap(litellm.acompletion)
        assert (await acompletion(messages=[user("My cat is Ada.")], **options)).choices[0].message.content == "Porto."
        completion = memory.wrap(litellm.completion)
        assert completion(messages=[user("Ada is grey.")], **options).choices[0].message.content == "Porto."
        chunks = completion(options.pop("model"), [user("Ada sleeps.")], stream=True, **options)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Porto."

    asyncio.run(talk())
    assert "moved to Porto" in prompts(server)[1][0]
    assert {line for line in stored(memory) if line.startswith("User")} == {
        "User: I moved to Porto.", "User: Where do I live?", "User: My cat is Ada.", "User: Ada is grey.",
        "User: Ada sleeps.",
    }  # fmt: skip


def test_memory_never_raises_and_errors_of_the_client_pass(
    memory: Memory, root: str, server: OpenAIServer, client: openai.OpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    chat = memory.wrap(client)
    say(chat, "I moved to Porto.")
    with caplog.at_level(logging.WARNING, "memory_pipeline.client.wrapping"):
        for odd in ([{"role": "user"}], [{"role": "nobody", "content": "Hi."}], [{"role": "user", "content": [3]}]):
            assert say(chat, *odd).choices[0].message.content == "Noted."
        shutil.rmtree(root)
        Path(root).write_text("a file where the lake was")
        assert say(chat, "Where do I live?").choices[0].message.content == "Noted."
    assert "memory failed: InputError" in caplog.text
    assert caplog.text.count("memory failed") > 3
    server.faults = [Fault("500", times=1)]
    with pytest.raises(openai.InternalServerError):
        say(chat, "Are you there?")
    with pytest.raises(TypeError):
        chat.chat.completions.create(nonsense=1)  # type: ignore[call-overload]  # that is the point


def test_a_conversation_that_may_only_read_is_not_stored(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI
) -> None:
    memory.add("I moved to Porto.")
    memory.lake.storage.write(
        CONFIGURATION,
        b"defaults:\n  capture:\n    - {source: cron, mode: read}\n    - {source: trial, mode: none}\n",
    )
    again = Memory(memory.lake.storage.uri, user_id="anna")
    for source in ("cron", "trial"):
        chat = again.wrap(client, source=source)
        say(chat, "Where do I live?")
    assert ["moved to Porto" in prompt[0] for prompt in prompts(server)] == [True, False]
    assert stored(again) == ["User: I moved to Porto."]


def respond(client: Any, text: str, **options: Any) -> Any:
    return client.responses.create(model=MODEL, input=text, **options)


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_all_calls_of_openai_are_recorded(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI, kind: str
) -> None:
    texts = iter(range(100))
    server.answer = lambda body: f"Noted {next(texts)}."
    chat = memory.wrap(client)
    assert isinstance(chat, openai.OpenAI)

    def calls(chat: Any) -> Any:
        return chat.chat.completions if kind == "chat" else chat.responses

    def given(text: str) -> dict[str, Any]:
        return {"model": MODEL, **({"messages": [user(text)]} if kind == "chat" else {"input": text})}

    calls(chat).create(**given("Plain."))
    list(calls(chat).create(**given("Stream."), stream=True))
    with calls(chat).stream(**given("Managed stream.")) as stream:
        list(stream)
    raw = calls(chat).with_raw_response.create(**given("Raw."))
    assert raw.headers["content-type"] == "application/json"
    assert type(raw.parse()) is type(calls(client).create(**given("x")))
    list(calls(chat).with_raw_response.create(**given("Raw stream."), stream=True).parse())
    calls(chat.with_raw_response).create(**given("Raw client."))
    calls(chat.with_options(timeout=10)).create(**given("With options."))

    async def talk() -> None:
        chat = memory.wrap(openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0))
        await calls(chat).create(**given("Async."))
        async with calls(chat).stream(**given("Async managed stream.")) as stream:
            [event async for event in stream]
        await calls(chat).with_raw_response.create(**given("Async raw."))

    asyncio.run(talk())
    said = stored(memory)
    asked = ["Plain.", "Stream.", "Managed stream.", "Raw.", "Raw stream.", "Raw client.", "With options.", "Async.",
             "Async managed stream.", "Async raw."]  # fmt: skip
    assert said[::2] == [f"User: {text}" for text in asked]
    assert said[1::2] == [f"Agent: Noted {number}." for number in range(11) if number != 4]
    assert "Said before" in json.dumps(server.requests[1].body, ensure_ascii=False)


def test_the_responses_api_continues_a_conversation_by_its_id(
    memory: Memory, server: OpenAIServer, client: openai.OpenAI
) -> None:
    texts = iter(range(100))
    server.answer = lambda body: f"Noted {next(texts)}."
    chat = memory.wrap(client)
    first = respond(chat, "I moved to Porto.")
    second = respond(chat, "It rains.", previous_response_id=first.id)
    *_, last = respond(chat, "Still.", previous_response_id=second.id, stream=True)
    respond(chat, "Bye.", previous_response_id=last.response.id)
    respond(chat, "Hello.")
    talks = [hit.conversation_id for hit in reversed(memory.list("fact"))]
    assert len(set(talks[:8])) == 1
    assert len(set(talks)) == 2
    items = [user("Look."), {"type": "mcp_call", "id": "c", "name": "look", "arguments": "{}"}, user("And?")]
    chat.responses.create(model=MODEL, input=items)  # type: ignore[arg-type]  # it has not all fields
    journal = b"".join(memory.lake.storage.read(file.path) or b"" for file in memory.lake.journal.pending())
    assert journal.count(b"[tool call] look({})") == 1
    assert b"[web_search_call]" in journal


def anthropic_events(text: str) -> Iterator[dict[str, Any]]:
    for line in message_stream(message_reply(text)).decode().splitlines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


class Anthropic:
    """A client with the calls and the answers of Anthropic's, as mappings."""

    def __init__(self) -> None:
        self.messages = self
        self.sent: list[Any] = []

    def create(self, *, model: str, messages: list[Any], stream: bool = False) -> Any:
        self.sent.append(messages)
        text = f"Noted {len(self.sent)}."
        return anthropic_events(text) if stream else {**message_reply(text), "id": "always the same"}

    @contextmanager
    def stream(self, *, model: str, messages: list[Any]) -> Iterator[Any]:
        yield SimpleNamespace(current_message_snapshot=self.create(model=model, messages=messages))


def test_a_client_of_anthropics_shape_is_recorded(memory: Memory) -> None:
    client = Anthropic()
    chat = memory.wrap(client)
    talk: list[Any] = [user("I moved to Porto.")]
    talk.append({"role": "assistant", "content": chat.messages.create(model="m", messages=talk)["content"]})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "7"}
    talk.append(user([result, {"type": "text", "text": "Where do I live?"}]))  # type: ignore[arg-type]  # parts
    chat.messages.create(model="m", messages=talk)
    list(chat.messages.create(model="m", messages=[user("Stream.")], stream=True))
    with chat.messages.stream(model="m", messages=[user("Managed.")]) as stream:
        assert stream.current_message_snapshot["role"] == "assistant"
    memory.wrap(client.create)(model="m", messages=[user("A function.")])
    assert stored(memory) == [
        "User: I moved to Porto.", "Agent: Noted 1.", "User: Where do I live?", "Agent: Noted 2.",
        *(line for n, text in ((3, "Stream."), (4, "Managed."), (5, "A function.")) for line in
          (f"User: {text}", f"Agent: Noted {n}.")),
    ]  # fmt: skip
    journal = b"".join(memory.lake.storage.read(file.path) or b"" for file in memory.lake.journal.pending())
    assert journal.count(b'[tool call] f({\\"x\\": 1})') == 5
    # Anthropic wants the results of tools first.
    assert client.sent[1][2]["content"][0] == result


def test_a_router_and_functions_are_recorded(memory: Memory, server: OpenAIServer) -> None:
    model = {"model": f"openai/{MODEL}", "api_base": server.base_url, "api_key": "k"}
    models = [{"model_name": "m", "litellm_params": model}]
    router: Any = memory.wrap(litellm.Router(model_list=models))  # type: ignore[attr-defined]  # it is there
    router.completion("m", [user("Sync.")])
    asyncio.run(router.acompletion(model="m", messages=[user("Async.")]))

    def later(**options: Any) -> Any:
        return asyncio.sleep(0, {"message": {"role": "assistant", "content": "As of Ollama."}})

    asyncio.run(memory.wrap(later)(messages=[user("By keyword.")]))
    memory.wrap(lambda messages: "unknown")([user("No answer.")])
    memory.wrap(lambda messages: {"choices": [{"message": {"content": 5}}]})([user("A bad answer.")])
    assert stored(memory) == [
        "User: Sync.", "Agent: Noted.", "User: Async.", "Agent: Noted.", "User: By keyword.", "Agent: As of Ollama.",
        "User: No answer.", "User: A bad answer.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    ["gpt", 3, None, print, dict, litellm, openai, litellm.embedding, lambda text: text,
     FakeListChatModel(responses=["Hello."])],
)  # fmt: skip
def test_what_cannot_be_recorded_is_refused(memory: Memory, other: object) -> None:
    with pytest.raises(InputError, match=r"client .* cannot be wrapped.*memory.add"):
        memory.wrap(other)
