import { MemoryError, type Problem } from "./errors.js";
import { pause, send, type Arguments, type Connection, type Method, type Path, type RequestOptions, type Result } from "./http.js";
import type { components } from "./openapi.js";
import { middlewareOf, wrapped, type LanguageModel, type MemoryMiddleware, type WrapOptions } from "./wrapping.js";

type Schemas = components["schemas"];

/** Whose memory, and where it is. */
export interface MemoryOptions {
  /** The address of the service, by default `http://127.0.0.1:8765`. */
  url?: string;
  /** A token of `memory-pipeline tokens create`. A service on this machine may need none. */
  token?: string;
  /** The user, if the token is for many users. */
  userId?: string;
  /** Milliseconds that one attempt of a request may take, by default 30,000. */
  timeout?: number;
  /** How often a request that may be repeated is sent again, by default 3 times. */
  retries?: number;
  /** Sends requests in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** What is added: a text that the user said, a message of a chat client, or a list of both, oldest first. */
export type Messages = string | object | readonly (string | object)[];

type AddArguments = Schemas["AddArguments"];

export type AddOptions = Omit<AddArguments, "messages">;
export type SearchOptions = Omit<Schemas["SearchArguments"], "query">;
/** A prompt, or the last messages of a conversation, oldest first. */
export type Query = NonNullable<Schemas["ContextArguments"]["query"]>;
export type ContextOptions = Omit<Schemas["ContextArguments"], "query">;
export type RememberOptions = Omit<Schemas["RememberArguments"], "text">;
export type ListOptions = NonNullable<Arguments<"/v1/memories", "GET">["query"]>;
export type ForgetOptions = Schemas["ForgetArguments"];
export type Added = Schemas["AddedReceipt"];
export type Hit = Schemas["Hit"];
export type Hits = Result<"/v1/search", "POST">;
export type Context = Schemas["InjectedContext"];
export type Forgotten = Exclude<Result<"/v1/forget", "POST">, Operation | null>;
export type Operation = Schemas["BackgroundWork"];

/** Milliseconds between two questions whether long work has ended: at first, and at most. */
const FIRST_LOOK = 100;
const LONGEST_LOOK = 2_000;

/**
 * The long-term memory of a user or an agent, behind memory_pipeline's service.
 *
 * The arguments and results of each method are those of the service's OpenAPI document. Methods throw MemoryError.
 */
export class Memory {
  readonly #connection: Connection;

  constructor(options: MemoryOptions = {}) {
    const { url = "http://127.0.0.1:8765", token, userId, timeout = 30_000, retries = 3 } = options;
    const headers: Record<string, string> = {};
    if (token) headers["Authorization"] = `Bearer ${token}`;
    if (userId) headers["X-Memory-User"] = asHeader(userId);
    // The global fetch refuses to be called as the method of another object.
    const { fetch: given = (...sent: Parameters<typeof fetch>) => fetch(...sent) } = options;
    this.#connection = { url: url.replace(/\/+$/, ""), headers, timeout, retries, fetch: given };
  }

  /** Add what was said. It is durable when the promise is fulfilled. */
  add(messages: Messages, options: AddOptions = {}, request: RequestOptions = {}): Promise<Added> {
    const sent = { idempotencyKey: crypto.randomUUID(), ...request };
    return this.request("POST", "/v1/memories", { body: { ...options, messages: messages as AddArguments["messages"] } }, sent);
  }

  /** Return what was said and durable memories, best matches first. */
  search(query: string, options: SearchOptions = {}, request: RequestOptions = {}): Promise<Hits> {
    return this.request("POST", "/v1/search", { body: { ...options, query } }, request);
  }

  /** Return what memory holds about a prompt; `block` is the text for the prompt. */
  context(query: Query = "", options: ContextOptions = {}, request: RequestOptions = {}): Promise<Context> {
    return this.request("POST", "/v1/context", { body: { ...options, query } }, request);
  }

  /** Yield everything, newest first; pages are fetched as they are needed. */
  async *list(options: ListOptions = {}, request: RequestOptions = {}): AsyncGenerator<Hit, void, undefined> {
    let query = options;
    for (;;) {
      const page = await this.request("GET", "/v1/memories", { query }, request);
      yield* page.items;
      if (page.cursor === null) return;
      query = { ...options, cursor: page.cursor };
    }
  }

  /** Write a durable memory; return its id. */
  async remember(text: string, options: RememberOptions = {}, request: RequestOptions = {}): Promise<string> {
    return (await this.request("POST", "/v1/remember", { body: { ...options, text } }, request)).id;
  }

  /**
   * Forget a durable memory by its id; or erase a conversation, or everything, from all files, and return what was
   * erased. An erasure needs a token of the level admin, and may take minutes.
   */
  forget(id: string, request?: RequestOptions): Promise<void>;
  forget(what: ForgetOptions, request?: RequestOptions): Promise<Forgotten>;
  async forget(what: string | ForgetOptions, request: RequestOptions = {}): Promise<Forgotten | void> {
    if (typeof what === "string") {
      await this.request("DELETE", "/v1/memories/{id}", { path: { id: what } }, request);
      return undefined;
    }
    const found = await this.request("POST", "/v1/forget", { body: what }, request);
    return found && isOperation(found) ? ((await this.ended(found, request)) as Forgotten) : (found ?? undefined);
  }

  /** Return the result of long work, such as that of `/v1/correct`, once it has ended. */
  async ended(operation: Operation, request: RequestOptions = {}): Promise<unknown> {
    const path = { id: operation.id };
    for (let wait = FIRST_LOOK; operation.status === "running"; wait = Math.min(2 * wait, LONGEST_LOOK)) {
      await pause(wait, request.signal);
      operation = await this.request("GET", "/v1/operations/{id}", { path }, request);
    }
    if (operation.status === "failed") throw MemoryError.of(operation.problem as unknown as Problem);
    return operation.result;
  }

  /**
   * Return a language model of the Vercel AI SDK with memory: it adds context to prompts, and stores what is said.
   *
   * Errors of memory do not stop the model; see `onError`.
   */
  wrap<M extends LanguageModel>(model: M, options: WrapOptions = {}): M {
    return wrapped(this, model, options);
  }

  /** Return what `wrap` does as a middleware, for `wrapLanguageModel` and `wrapProvider` of the AI SDK 6 and 7. */
  middleware<V extends "v3" | "v4" = "v4">(options: WrapOptions = {}): MemoryMiddleware<V> {
    return middlewareOf<V>(this, options);
  }

  /** Send a request to any route of the service: `request("GET", "/v1/graph/facts", { query: { limit: 5 } })`. */
  request<P extends Path, M extends Method<P>>(
    method: M,
    path: P,
    given: Arguments<P, M>,
    request: RequestOptions = {},
  ): Promise<Result<P, M>> {
    return send(this.#connection, method, path, { ...request, ...given }) as Promise<Result<P, M>>;
  }
}

function isOperation(found: Forgotten | Operation): found is Operation {
  return "started_at" in found && "status" in found;
}

/** A header holds bytes. The service reads those of other characters as UTF-8. */
function asHeader(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
