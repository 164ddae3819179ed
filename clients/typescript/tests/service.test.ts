import assert from "node:assert/strict";
import { test } from "node:test";
import { Memory, MemoryError } from "../src/index.js";
import { all, newMemory, readingToken, token, url } from "./service.js";

const has = (kind: string, status?: number) => (error: unknown) => {
  assert.ok(error instanceof MemoryError);
  assert.equal(error.kind, kind, error.message);
  if (status !== undefined) assert.equal(error.status, status);
  return true;
};

test("what is added is found, by its user alone", async () => {
  const anna = newMemory({ userId: "Ánna 😀" });
  const receipt = await anna.add("I moved to Porto.");
  assert.equal(receipt.accepted.length, 1);
  const hits = await anna.search("Where does Anna live?", { limit: 5 });
  assert.match(hits.items[0]?.content ?? "", /Porto/);
  assert.equal((await newMemory().search("Where does Anna live?")).items.length, 0);
});

test("messages of a chat are one conversation", async () => {
  const memory = newMemory();
  const messages = [{ role: "user", content: "My sister is Lea." }, { role: "assistant", content: "Noted." }] as const;
  const { conversation_id } = await memory.add(messages);
  const more = await memory.add("She lives in Faro.", { conversation_id, tags: "family" });
  assert.equal(more.conversation_id, conversation_id);
  const path = { conversation_id };
  const found = await memory.request("GET", "/v1/conversations/{conversation_id}", { path });
  assert.deepEqual(found.items.map((one) => one.content), ["My sister is Lea.", "Noted.", "She lives in Faro."]);
});

test("a call with the same key adds once", async () => {
  const memory = newMemory();
  const first = await memory.add("I am vegan.", {}, { idempotencyKey: "k1" });
  const second = await memory.add("I am vegan.", {}, { idempotencyKey: "k1" });
  assert.equal(second.conversation_id, first.conversation_id);
  assert.equal((await memory.search("vegan")).items.length, 1);
});

test("context is a text for a prompt", async () => {
  const memory = newMemory();
  assert.equal((await memory.context("What do I eat?")).block, "");
  await memory.remember("Anna is vegan.", { kind: "preference" });
  const context = await memory.context(["Hello.", "What does Anna eat?"], { max_tokens: 200 });
  assert.match(context.block, /vegan/);
  assert.ok(context.tokens <= 200);
});

test("all pages are listed", async () => {
  const memory = newMemory();
  for (const name of ["Ada", "Ben", "Cleo"]) await memory.remember(`${name} likes tea.`);
  const found = await all(memory.list({ kind: "memory", limit: 2 }));
  assert.deepEqual(found.map((one) => one.content).sort(), ["Ada likes tea.", "Ben likes tea.", "Cleo likes tea."]);
});

test("a memory is forgotten, and so is a conversation", async () => {
  const memory = newMemory();
  const id = await memory.remember("Anna prefers tea.");
  assert.equal(await memory.forget(id), undefined);
  assert.deepEqual(await all(memory.list({ kind: "memory" })), []);
  const { conversation_id } = await memory.add("My PIN is 4711.");
  const plan = await memory.forget({ conversation_id, dry_run: true });
  assert.ok(plan);
  assert.equal((await memory.search("PIN")).items.length, 1);
  assert.ok(await memory.forget({ conversation_id }));
  assert.equal((await memory.search("PIN")).items.length, 0);
});

test("long work that fails is an error", async () => {
  const memory = newMemory();
  await assert.rejects(memory.forget({}), has("invalid-input", 422));
  await assert.rejects(memory.forget({ conversation_id: "c", dry_run: true, now: "soon" }), has("invalid-input"));
});

test("every route can be asked, with its types", async () => {
  const memory = newMemory();
  await memory.add("Anna knows Ben.");
  const facts = await memory.request("GET", "/v1/graph/facts", { query: { limit: 5 } });
  assert.ok(Array.isArray(facts.items));
  // @ts-expect-error there is no such method
  await assert.rejects(memory.request("PUT", "/v1/graph/facts", {}), has("method-not-allowed", 405));
  // @ts-expect-error there is no such option
  await assert.rejects(memory.search("Anna", { limits: 5 }), has("invalid-input", 422));
});

test("an error tells what is wrong", async () => {
  const memory = newMemory();
  await assert.rejects(memory.search("tea", { limit: 1000 }), (error) => {
    assert.ok(error instanceof MemoryError);
    assert.equal(error.problem?.title, "Unprocessable Content");
    assert.match(error.message, /limit/);
    assert.ok(error.requestId);
    return has("invalid-input", 422)(error);
  });
  await assert.rejects(memory.request("GET", "/v1/memories/{id}", { path: { id: "memory:a/b?c" } }), MemoryError);
  await assert.rejects(new Memory({ url, token: "wrong" }).search("tea"), has("unauthorized", 401));
  await assert.rejects(new Memory({ url, token }).search("tea"), has("no-user", 400));
  const reader = new Memory({ url, token: readingToken });
  assert.equal((await reader.search("tea")).items.length, 0);
  await assert.rejects(reader.add("I like tea."), has("not-allowed", 403));
  await assert.rejects(new Memory({ url, token: readingToken, userId: "ben" }).search("tea"), has("access-denied", 403));
});
