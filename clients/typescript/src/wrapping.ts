import type { AddOptions, Memory } from "./memory.js";

/** How a language model uses memory. */
export interface WrapOptions extends Pick<AddOptions, "conversation_id" | "tags" | "source"> {
  /** Size of the context that is added to one prompt, by default 1,000 tokens. */
  max_tokens?: number;
  /** Milliseconds that memory may take before and after an answer, by default 10,000. */
  timeout?: number;
  /** Told of errors of memory, which do not stop the model. By default they are warnings on the console. */
  onError?: (error: unknown) => void;
}

interface Part {
  readonly type: string;
  readonly text?: unknown;
}

interface Message {
  readonly role: string;
  readonly content: string | readonly Part[];
}

interface CallOptions {
  readonly prompt: readonly Message[];
}

interface Generated {
  content: readonly Part[];
}

interface Streamed {
  stream: ReadableStream<{ type: string }>;
}

/** A language model of the AI SDK: what its specifications v2, v3 and v4 have in common. */
export interface LanguageModel {
  doGenerate(options: never): PromiseLike<Generated>;
  doStream(options: never): PromiseLike<Streamed>;
}

/** A middleware for language models, as the AI SDK 6 (`v3`) and 7 (`v4`) accept it. */
export interface MemoryMiddleware<V extends "v3" | "v4" = "v4"> {
  readonly specificationVersion: V;
  wrapGenerate<R extends Generated>(call: {
    params: CallOptions;
    model: { doGenerate(options: never): PromiseLike<R> };
  }): Promise<R>;
  wrapStream<R extends Streamed>(call: {
    params: CallOptions;
    model: { doStream(options: never): PromiseLike<R> };
  }): Promise<R>;
}

interface Said {
  role: "user" | "assistant";
  content: string;
}

/** Conversations and messages that a wrapper remembers. */
const MOST = 1_000;

export function wrapped<M extends LanguageModel>(memory: Memory, model: M, options: WrapOptions): M {
  const given: unknown = model;
  if (typeof given !== "object" || given === null || typeof model.doGenerate !== "function") {
    throw new TypeError(`expected a language model, such as openai("gpt-5"), not ${JSON.stringify(given)}`);
  }
  const { wrapGenerate, wrapStream } = middlewareOf(memory, options);
  const calls: Partial<Record<PropertyKey, unknown>> = {
    doGenerate: (params: CallOptions) => wrapGenerate({ params, model }),
    doStream: (params: CallOptions) => wrapStream({ params, model }),
  };
  return new Proxy(model, { get: (target, name) => calls[name] ?? Reflect.get(target, name, target) });
}

export function middlewareOf<V extends "v3" | "v4">(memory: Memory, options: WrapOptions): MemoryMiddleware<V> {
  const recorder = new Recorder(memory, options);
  return {
    specificationVersion: "v4" as V, // both are the same, but for this name
    async wrapGenerate({ params, model }) {
      const answer = await model.doGenerate((await recorder.withContext(params)) as never);
      await recorder.store(params.prompt, textOf(answer.content));
      return answer;
    },
    async wrapStream({ params, model }) {
      const answer = await model.doStream((await recorder.withContext(params)) as never);
      return { ...answer, stream: heard(answer.stream, (text) => recorder.store(params.prompt, text)) };
    },
  };
}

/** Passes a stream on, and stores its text when it ends: also if it fails, or nobody reads the rest. */
function heard<P extends { type: string; delta?: unknown }>(
  stream: ReadableStream<P>,
  store: (text: string) => Promise<void>,
): ReadableStream<P> {
  const reader = stream.getReader();
  let text = "";
  return new ReadableStream<P>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          await store(text.trim());
          controller.close();
          return;
        }
        if (value.type === "text-delta" && typeof value.delta === "string") text += value.delta;
        if (value.type === "text-end") text += "\n";
        controller.enqueue(value);
      } catch (error) {
        await store(text.trim());
        controller.error(error);
      }
    },
    async cancel(reason) {
      await Promise.all([store(text.trim()), reader.cancel(reason)]);
    },
  });
}

/** Adds context to the prompts of a model, and stores what is said. */
class Recorder {
  readonly #memory: Memory;
  readonly #options: WrapOptions;
  /** Context that was added, by the message: later calls repeat it in its place, and a provider's cache stays valid. */
  readonly #blocks = new Map<string, string>();
  /** Ids of conversations, by what was said in them. */
  readonly #conversations = new Map<string, string>();

  constructor(memory: Memory, options: WrapOptions) {
    this.#memory = memory;
    this.#options = options;
  }

  async withContext<P extends CallOptions>(params: P): Promise<P> {
    const last = params.prompt.at(-1);
    const asked = last?.role === "user" ? textOf(last.content) : "";
    const { max_tokens = 1_000, conversation_id, tags, source } = this.#options;
    if (last && asked && !this.#blocks.has(keyOf([last]))) {
      await this.#guarded(async (request) => {
        const about = { conversation_id: conversation_id ?? this.#conversationOf(params.prompt), tags, source };
        const found = await this.#memory.context(asked, { max_tokens, conversation: defined(about) }, request);
        if (found.block) remember(this.#blocks, keyOf([last]), found.block);
      });
    }
    const prompt = params.prompt.map((message) => {
      const block = message.role === "user" && this.#blocks.get(keyOf([message]));
      return block ? { ...message, content: [{ type: "text", text: block }, ...partsOf(message.content)] } : message;
    });
    return { ...params, prompt };
  }

  async store(prompt: readonly Message[], answer: string): Promise<void> {
    const { conversation_id, tags, source } = this.#options;
    const messages = [...saidIn(prompt), ...(answer ? [{ role: "assistant", content: answer } as const] : [])];
    if (!messages.length) return;
    await this.#guarded(async (request) => {
      const known = conversation_id ?? this.#conversationOf(prompt);
      const receipt = await this.#memory.add(messages, defined({ conversation_id: known, tags, source }), request);
      remember(this.#conversations, keyOf(messages), receipt.conversation_id);
    });
  }

  /** The conversation that a prompt continues: one whose messages are the beginning of it. */
  #conversationOf(prompt: readonly Message[]): string | undefined {
    const messages = saidIn(prompt);
    const isNew = prompt.at(-1)?.role === "user"; // otherwise a model goes on after a call of a tool
    for (let length = messages.length - (isNew ? 1 : 0); length > 0; length--) {
      const found = this.#conversations.get(keyOf(messages.slice(0, length)));
      if (found) return found;
    }
    return undefined;
  }

  async #guarded(work: (request: { signal: AbortSignal }) => Promise<void>): Promise<void> {
    try {
      await work({ signal: AbortSignal.timeout(this.#options.timeout ?? 10_000) });
    } catch (error) {
      if (this.#options.onError) this.#options.onError(error);
      else console.warn("memory failed:", error);
    }
  }
}

/** What people and the model said in a prompt. */
function saidIn(prompt: readonly Message[]): Said[] {
  const said: Said[] = [];
  for (const { role, content } of prompt) {
    const text = textOf(content);
    if (text && (role === "user" || role === "assistant")) said.push({ role, content: text });
  }
  return said;
}

function partsOf(content: string | readonly Part[]): readonly Part[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

function textOf(content: string | readonly Part[]): string {
  const texts = partsOf(content).map((part) => (part.type === "text" && typeof part.text === "string" ? part.text : ""));
  return texts.filter(Boolean).join("\n").trim();
}

/** Without what is not set. */
function defined<T extends object>(record: T): { [K in keyof T]: NonNullable<T[K]> } {
  const found = Object.entries(record).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(found) as { [K in keyof T]: NonNullable<T[K]> };
}

/** The texts of messages as one key, of 53 bits and the length. */
function keyOf(messages: readonly Message[]): string {
  const text = JSON.stringify(messages.map(({ role, content }) => [role, textOf(content)]));
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at++) {
    high = Math.imul(high ^ text.charCodeAt(at), 2654435761);
    low = Math.imul(low ^ text.charCodeAt(at), 1597334677);
  }
  return `${text.length}-${(high >>> 0).toString(36)}-${(low >>> 0).toString(36)}`;
}

/** Keeps an entry, and the latest others. */
function remember(map: Map<string, string>, key: string, value: string): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next();
  if (map.size > MOST && !oldest.done) map.delete(oldest.value);
}
