import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as ai7 from "ai";
import { MockLanguageModelV4 } from "ai/test";
import * as ai6 from "ai-6";
import { MockLanguageModelV3 } from "ai-6/test";
import { Memory, type WrapOptions } from "../src/index.js";
import { newMemory } from "./service.js";

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const finishReason = { unified: "stop", raw: "stop" } as const;
/** The machine may be busy. */
const timeout = 120_000;
type Prompts = { role: string; content: string | { type: string; text?: string }[] }[][];

function textIn(prompts: Prompts, at = -1): string {
  return JSON.stringify(prompts.at(at));
}

function modelOf<T extends typeof MockLanguageModelV3 | typeof MockLanguageModelV4>(kind: T, answers: string[]) {
  const next = (): string => answers.shift() ?? "Fine.";
  const generated = () => ({ content: [{ type: "text" as const, text: next() }], finishReason, usage, warnings: [] });
  const streamed = () => {
    const parts = [
      { type: "stream-start" as const, warnings: [] },
      { type: "text-start" as const, id: "1" },
      ...next().split(/(?<= )/).map((delta) => ({ type: "text-delta" as const, id: "1", delta })),
      { type: "text-end" as const, id: "1" },
      { type: "finish" as const, finishReason, usage },
    ];
    return { stream: ai7.simulateReadableStream({ chunks: parts, initialDelayInMs: null, chunkDelayInMs: null }) };
  };
  return new kind({ doGenerate: async () => generated(), doStream: async () => streamed() }) as InstanceType<T>;
}

/** The two versions of the SDK: how a model is made, called, and wrapped by a middleware. */
const versions = {
  "AI SDK 7": {
    model: (answers: string[] = []) => modelOf(MockLanguageModelV4, answers),
    ask: async (model: MockLanguageModelV4, messages: ai7.ModelMessage[], instructions = "Be kind.") =>
      (await ai7.generateText({ model, messages, instructions })).text,
    useTool: async (model: MockLanguageModelV4, prompt: string) => {
      const weather = ai7.tool({ inputSchema: ai7.jsonSchema({ type: "object" }), execute: async () => "Rain." });
      return (await ai7.generateText({ model, prompt, tools: { weather }, stopWhen: ai7.stepCountIs(3) })).text;
    },
    stream: (model: MockLanguageModelV4, prompt: string) => ai7.streamText({ model, prompt }).textStream,
    wrap: (memory: Memory, model: MockLanguageModelV4, options?: WrapOptions) =>
      ai7.wrapLanguageModel({ model, middleware: memory.middleware(options) }) as MockLanguageModelV4,
  },
  "AI SDK 6": {
    model: (answers: string[] = []) => modelOf(MockLanguageModelV3, answers),
    ask: async (model: MockLanguageModelV3, messages: ai6.ModelMessage[], system = "Be kind.") =>
      (await ai6.generateText({ model, messages, system })).text,
    useTool: async (model: MockLanguageModelV3, prompt: string) => {
      const weather = ai6.tool({ inputSchema: ai6.jsonSchema({ type: "object" }), execute: async () => "Rain." });
      return (await ai6.generateText({ model, prompt, tools: { weather }, stopWhen: ai6.stepCountIs(3) })).text;
    },
    stream: (model: MockLanguageModelV3, prompt: string) => ai6.streamText({ model, prompt }).textStream,
    wrap: (memory: Memory, model: MockLanguageModelV3, options?: WrapOptions) =>
      ai6.wrapLanguageModel({ model, middleware: memory.middleware(options) }) as MockLanguageModelV3,
  },
};
type Version = (typeof versions)["AI SDK 7"];

for (const [name, version] of Object.entries(versions)) {
  const { model: newModel, ask, useTool, stream, wrap } = version as unknown as Version;
  describe(name, () => {
    test("a later conversation gets what was said in an earlier one", async () => {
      const memory = newMemory();
      const inner = newModel(["Noted: Porto."]);
      const model = memory.wrap(inner, { timeout });
      assert.ok(model instanceof inner.constructor);
      assert.equal(await ask(model, [{ role: "user", content: "I moved to Porto." }]), "Noted: Porto.");
      assert.doesNotMatch(textIn(inner.doGenerateCalls.map((one) => one.prompt)), /memory/i);
      await ask(model, [{ role: "user", content: "Where do I live?" }], "Be brief.");
      const prompt = inner.doGenerateCalls.at(-1)?.prompt ?? [];
      assert.deepEqual(prompt.map((one) => one.role), ["system", "user"]);
      assert.match(textIn([prompt]), /Porto.*Where do I live\?/s);
      const said = (await memory.search("", { limit: 100 })).items.map((one) => one.content).join("\n");
      assert.match(said, /I moved to Porto\./);
      assert.match(said, /Noted: Porto\./);
      assert.doesNotMatch(said, /Be brief/);
    });

    test("the calls of a chat are one conversation, and the context of earlier ones stays", async () => {
      const memory = newMemory();
      await memory.add("My sister Lea lives in Faro.");
      const inner = newModel(["She lives in Faro.", "You are welcome."]);
      const model = wrap(memory, inner, { timeout });
      const first = [{ role: "user" as const, content: "Where does my sister Lea live?" }];
      const answer = await ask(model, first);
      assert.match(textIn(inner.doGenerateCalls.map((one) => one.prompt)), /lives in Faro/);
      await ask(model, [...first, { role: "assistant", content: answer }, { role: "user", content: "Thank you." }]);
      const [before, after] = inner.doGenerateCalls.map((one) => one.prompt);
      assert.deepEqual(after?.slice(0, 2), before);
      const { items } = await memory.request("GET", "/v1/conversations", {});
      assert.equal(items.length, 2);
      const path = { conversation_id: items.find((one) => one.content !== "My sister Lea lives in Faro.")?.id ?? "" };
      const chat = await memory.request("GET", "/v1/conversations/{conversation_id}", { path });
      assert.deepEqual(chat.items.map((one) => one.content), [
        "Where does my sister Lea live?", "She lives in Faro.", "Thank you.", "You are welcome.",
      ]);
    });

    test("a stream is passed on and stored when it ends", async () => {
      const memory = newMemory();
      const parts: string[] = [];
      for await (const part of stream(memory.wrap(newModel(["Your bus leaves at noon."]), { tags: "trip", timeout }), "When?")) parts.push(part);
      assert.equal(parts.length, 5);
      const { items } = await memory.search("bus", { tag: "trip" });
      assert.match(items[0]?.content ?? "", /Your bus leaves at noon\./);
    });

    test("what was heard of a stream that nobody reads to its end is stored", async () => {
      const memory = newMemory();
      const model = memory.wrap(newModel(["One two three four five six."]), { conversation_id: "c1", timeout });
      const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "Count." }] }];
      const reader = (await model.doStream({ prompt })).stream.getReader();
      for (let count = 0; count < 4; count++) await reader.read();
      await reader.cancel();
      const said = (await memory.search("", {})).items.map((one) => one.content).join("\n");
      assert.match(said, /Count\./);
      assert.match(said, /One two/);
    });

    test("the steps of an answer with tools are one conversation, without the calls", async () => {
      const memory = newMemory();
      const steps = [
        { content: [{ type: "tool-call" as const, toolCallId: "1", toolName: "weather", input: "{}" }], finishReason: { unified: "tool-calls" as const, raw: undefined }, usage, warnings: [] },
        { content: [{ type: "text" as const, text: "It rains in Porto." }], finishReason, usage, warnings: [] },
      ];
      await memory.add("I live in Porto.");
      const inner = newModel();
      const prompts: unknown[] = [];
      inner.doGenerate = async ({ prompt }) => {
        prompts.push(prompt[0]);
        return steps.shift() ?? assert.fail();
      };
      assert.equal(await useTool(memory.wrap(inner, { timeout }), "How is the weather where I live?"), "It rains in Porto.");
      assert.match(JSON.stringify(prompts[0]), /I live in Porto/);
      assert.deepEqual(prompts[1], prompts[0]);
      const { items } = await memory.request("GET", "/v1/conversations", {});
      const path = { conversation_id: items.find((one) => !one.content.includes("I live in Porto"))?.id ?? "" };
      const { items: said } = await memory.request("GET", "/v1/conversations/{conversation_id}", { path });
      assert.equal(items.length, 2);
      assert.deepEqual(said.map((one) => one.content), ["How is the weather where I live?", "It rains in Porto."]);
    });

    test("errors of memory do not stop the model", async () => {
      const errors: unknown[] = [];
      const away = new Memory({ url: "http://127.0.0.1:9", retries: 0 });
      const model = away.wrap(newModel(["Hello."]), { onError: (error) => errors.push(error) });
      assert.equal(await ask(model, [{ role: "user", content: "Hi." }]), "Hello.");
      assert.equal(errors.length, 2);
    });

    test("errors of the model are those of the model", async () => {
      const memory = newMemory();
      const failing = newModel();
      failing.doGenerate = () => Promise.reject(new Error("no quota"));
      await assert.rejects(async () => await memory.wrap(failing).doGenerate({ prompt: [] }), /no quota/);
    });
  });
}

test("a name of a model is not a model", () => {
  // @ts-expect-error a text has no calls
  assert.throws(() => newMemory().wrap("openai/gpt-5"), /expected a language model/);
});
