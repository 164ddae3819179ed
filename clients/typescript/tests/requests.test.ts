import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, test } from "node:test";
import { Memory, MemoryError, type MemoryOptions } from "../src/index.js";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const servers: ReturnType<typeof createServer>[] = [];
afterEach(() => servers.splice(0).forEach((one) => (one.closeAllConnections(), one.close())));

/** A memory at a server that gives these answers in turn, the last one again and again; and the requests it got. */
async function memoryAt(answers: Answer[], options: MemoryOptions = {}): Promise<[Memory, IncomingMessage[]]> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    request.resume().on("end", () => answers[Math.min(requests.length, answers.length) - 1]?.(request, response));
  });
  servers.push(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return [new Memory({ url, token: "t", ...options }), requests];
}

const refused = (status: number, after?: string): Answer => (_, response) => {
  const problem = { type: "urn:memory-pipeline:problem:busy", title: "Busy", status, detail: "wait" };
  response.writeHead(status, { "content-type": "application/problem+json", ...(after ? { "retry-after": after } : {}) });
  response.end(JSON.stringify(problem));
};
const cut: Answer = (request) => request.socket.destroy();
const found: Answer = (_, response) => response.end('{"items": [], "total": 0, "offset": 0, "older": 0}');

test("a refused request is sent again when the service asks for it", async () => {
  const [memory, requests] = await memoryAt([refused(429, "1"), found]);
  const began = performance.now();
  assert.equal((await memory.search("tea")).total, 0);
  assert.ok(performance.now() - began >= 990);
  assert.equal(requests.length, 2);
});

test("the attempts of an add have one key", async () => {
  const [memory, requests] = await memoryAt([refused(503, "0"), cut, found]);
  await memory.add("I moved to Porto.");
  const keys = requests.map((one) => one.headers["idempotency-key"]);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  await memory.add("I moved to Porto.");
  assert.notEqual(requests.at(-1)?.headers["idempotency-key"], keys[0]);
});

test("what may have been done is not done again", async () => {
  for (const answer of [refused(503, "0"), cut]) {
    const [memory, requests] = await memoryAt([answer]);
    await assert.rejects(memory.remember("Anna is vegan."), MemoryError);
    assert.equal(requests.length, 1);
  }
  const [memory, requests] = await memoryAt([refused(429, "0"), refused(429, "0"), found]);
  await memory.remember("Anna is vegan.");
  assert.equal(requests.length, 3);
});

test("other errors are final, and so is the last attempt", async () => {
  const [memory, requests] = await memoryAt([refused(500)]);
  await assert.rejects(memory.search("tea"), { kind: "busy", status: 500, message: "wait" });
  assert.equal(requests.length, 1);
  const [patient, more] = await memoryAt([refused(503, "0")], { retries: 2 });
  await assert.rejects(patient.search("tea"), { status: 503 });
  assert.equal(more.length, 3);
  await assert.rejects(patient.search("tea", {}, { retries: 0 }), { status: 503 });
  assert.equal(more.length, 4);
});

test("a time-out and a signal end a request", async () => {
  const [memory] = await memoryAt([() => undefined], { timeout: 50 });
  await assert.rejects(memory.search("tea"), { name: "MemoryError", kind: "timeout", status: undefined });
  const reason = new Error("the user left");
  const stop = new AbortController();
  setTimeout(() => stop.abort(reason), 20);
  await assert.rejects(memory.search("tea", {}, { signal: stop.signal, timeout: 10_000 }), (error) => error === reason);
  const other = new AbortController();
  const [waiting, requests] = await memoryAt([(request, response) => {
    refused(429, "20")(request, response);
    setTimeout(() => other.abort(reason), 50);
  }]);
  await assert.rejects(waiting.search("tea", {}, { signal: other.signal }), (error) => error === reason);
  assert.equal(requests.length, 1);
});

test("a service that cannot be reached, and a proxy that answers in its place, are errors with a reason", async () => {
  const away = new Memory({ url: "http://127.0.0.1:9", retries: 0 });
  await assert.rejects(away.search("tea"), { kind: "unreachable", message: /127\.0\.0\.1:9 cannot be reached: / });
  const [memory] = await memoryAt([(_, response) => response.writeHead(502).end("<h1>Bad Gateway</h1>")]);
  await assert.rejects(memory.search("tea"), { kind: "about:blank".split(":")[1], status: 502, message: /502 Bad Gateway/ });
});

test("parts of an address are escaped", async () => {
  const [memory, requests] = await memoryAt([found]);
  await memory.request("GET", "/v1/memories/{id}", { path: { id: "a/b?c d" } });
  await memory.request("GET", "/v1/memories", { query: { kind: "memory", limit: 2, since: null } });
  assert.deepEqual(requests.map((one) => one.url), ["/v1/memories/a%2Fb%3Fc%20d", "/v1/memories?kind=memory&limit=2"]);
  await assert.rejects(memory.request("GET", "/v1/memories/{id}", { path: { id: "" } }), TypeError);
});
