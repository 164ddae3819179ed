import { MemoryError, type Problem } from "./errors.js";
import type { paths } from "./openapi.js";

type Verb = "get" | "post" | "put" | "patch" | "delete";

/** A path of the service, as its OpenAPI document has it: `/v1/memories/{id}`. */
export type Path = keyof paths;

/** The methods of a path. */
export type Method<P extends Path> = {
  [V in Verb]: paths[P][V] extends { responses: unknown } ? Uppercase<V> : never;
}[Verb];

type Operation<P extends Path, M extends Method<P>> = paths[P][Lowercase<M> & keyof paths[P]];

type InPath<O> = O extends { parameters: { path: infer Given } } ? { path: Given } : { path?: never };

type InQuery<O> = O extends { parameters: { query?: infer Given } }
  ? [Given] extends [undefined] ? { query?: never } : { query?: NonNullable<Given> }
  : { query?: never };

type InBody<O> = O extends { requestBody: { content: { "application/json": infer Given } } }
  ? { body: Given }
  : O extends { requestBody?: { content: { "application/json": infer Given } } } ? { body?: Given } : { body?: never };

/** The arguments of an operation: parameters of the path, the query, and the body. */
export type Arguments<P extends Path, M extends Method<P>> =
  InPath<Operation<P, M>> & InQuery<Operation<P, M>> & InBody<Operation<P, M>>;

type Content<Answer> = Answer extends { content: { "application/json": infer Found } } ? Found : undefined;

/** What an operation returns. */
export type Result<P extends Path, M extends Method<P>> = Operation<P, M> extends { responses: infer Answers }
  ? { [Status in keyof Answers & (200 | 201 | 202 | 204)]: Content<Answers[Status]> }[keyof Answers & (200 | 201 | 202 | 204)]
  : never;

/** How a request is sent. */
export interface RequestOptions {
  /** Ends the request, and the waiting between its attempts. */
  signal?: AbortSignal | undefined;
  /** Milliseconds that one attempt may take. */
  timeout?: number | undefined;
  /** How often a failed request is sent again. */
  retries?: number | undefined;
  /** Identifies a call of `add`: a call with the key of an earlier one adds nothing. By default a new key. */
  idempotencyKey?: string | undefined;
}

/** Where requests are sent. */
export interface Connection {
  url: string;
  headers: Record<string, string>;
  timeout: number;
  retries: number;
  fetch: typeof fetch;
}

interface Sent extends RequestOptions {
  path?: Record<string, unknown> | undefined;
  query?: Record<string, unknown> | undefined;
  body?: unknown;
}

/** Statuses of requests that may be sent again. The service did nothing for a request that it answers with 429. */
const TOO_MANY = 429;
const UNAVAILABLE = 503;
/** Requests by POST that change nothing. */
const READS: ReadonlySet<string> = new Set(["/v1/search", "/v1/context", "/v1/recall", "/v1/graph/search"]);
/** Milliseconds to wait before the second attempt, if the service does not say; then twice as many, and so on. */
const FIRST_WAIT = 250;
const LONGEST_WAIT = 30_000;

/** Sends a request until it succeeds or may not be repeated; returns the JSON of the answer. */
export async function send(connection: Connection, method: string, path: string, sent: Sent): Promise<unknown> {
  const isSafe = method !== "POST" && method !== "PATCH" || READS.has(path) || sent.idempotencyKey !== undefined;
  const retries = sent.retries ?? connection.retries;
  for (let attempt = 0; ; attempt++) {
    try {
      return await once(connection, method, path, sent);
    } catch (error) {
      if (!(error instanceof MemoryError) || attempt >= retries || !mayRepeat(error, isSafe)) throw error;
      const wait = waits.get(error) ?? FIRST_WAIT * 2 ** attempt * (0.5 + Math.random());
      await pause(Math.min(wait, LONGEST_WAIT), sent.signal);
    }
  }
}

/** Milliseconds to wait, as the service asked for, by the error. */
const waits = new WeakMap<MemoryError, number>();

function mayRepeat(error: MemoryError, isSafe: boolean): boolean {
  if (error.status === TOO_MANY) return true;
  return isSafe && (error.status === UNAVAILABLE || error.kind === "unreachable");
}

async function once(connection: Connection, method: string, path: string, sent: Sent): Promise<unknown> {
  const address = addressOf(connection.url, path, sent);
  const timeout = AbortSignal.timeout(sent.timeout ?? connection.timeout);
  const signal = sent.signal ? AbortSignal.any([sent.signal, timeout]) : timeout;
  const headers: Record<string, string> = { ...connection.headers, Accept: "application/json" };
  const init: RequestInit = { method, headers, signal };
  if (sent.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(sent.body);
  }
  if (sent.idempotencyKey !== undefined) headers["Idempotency-Key"] = sent.idempotencyKey;
  try {
    const response = await connection.fetch(address, init);
    const text = await response.text();
    if (!response.ok) throw failure(response, text);
    return text ? JSON.parse(text) : undefined;
  } catch (error) {
    if (error instanceof MemoryError) throw error;
    sent.signal?.throwIfAborted();
    if (timeout.aborted) {
      const seconds = (sent.timeout ?? connection.timeout) / 1_000;
      throw new MemoryError(`the service did not answer within ${seconds} s`, { kind: "timeout", cause: error });
    }
    const why = error instanceof Error ? (error.cause instanceof Error ? error.cause : error).message : String(error);
    throw new MemoryError(`the service at ${connection.url} cannot be reached: ${why}`, { kind: "unreachable", cause: error });
  }
}

function failure(response: Response, text: string): MemoryError {
  const requestId = response.headers.get("x-request-id") ?? undefined;
  const error = MemoryError.of(problemIn(response, text), requestId);
  const after = response.headers.get("retry-after");
  if (after) {
    const seconds = Number(after);
    const wait = Number.isNaN(seconds) ? Date.parse(after) - Date.now() : seconds * 1_000;
    if (!Number.isNaN(wait)) waits.set(error, Math.max(0, wait));
  }
  return error;
}

/** The problem in an answer. A proxy may have answered in place of the service. */
function problemIn(response: Response, text: string): Problem {
  try {
    const found = JSON.parse(text) as Partial<Problem> | null;
    if (found && typeof found.type === "string" && typeof found.detail === "string") {
      return { title: response.statusText, ...found, type: found.type, detail: found.detail, status: response.status };
    }
  } catch {
    // It is no JSON.
  }
  const detail = `status ${response.status} ${response.statusText}: ${text.slice(0, 200)}`;
  return { type: "about:blank", title: response.statusText, status: response.status, detail };
}

function addressOf(url: string, path: string, sent: Sent): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = sent.path?.[name];
    if (value === undefined || value === "") throw new TypeError(`${path} needs ${name}`);
    return encodeURIComponent(String(value));
  });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(sent.query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) query.append(name, String(one));
    }
  }
  return url + filled + (query.size ? `?${query}` : "");
}

/** Waits. Throws the reason of the signal if it is aborted. */
export async function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stopped = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stopped);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stopped, { once: true });
  });
}
