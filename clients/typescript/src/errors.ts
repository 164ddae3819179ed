import type { components } from "./openapi.js";

/** An error of the service, by RFC 9457. */
export type Problem = components["schemas"]["Problem"];

/**
 * A request failed.
 *
 * `problem` is what the service answered; without an answer it is undefined, and `kind` is `timeout` or `unreachable`.
 */
export class MemoryError extends Error {
  override readonly name = "MemoryError";
  /** The kind of error, such as `invalid-input`, `unauthorized`, `not-found` or `timeout`. */
  readonly kind: string;
  /** The HTTP status, or undefined without an answer. */
  readonly status: number | undefined;
  /** The problem details. */
  readonly problem: Problem | undefined;
  /** The id of the request in the access log of the service. */
  readonly requestId: string | undefined;

  constructor(
    message: string,
    about: { kind: string; status?: number; problem?: Problem; requestId?: string | undefined; cause?: unknown },
  ) {
    super(message, { cause: about.cause });
    this.kind = about.kind;
    this.status = about.status;
    this.problem = about.problem;
    this.requestId = about.requestId;
  }

  /** @internal */
  static of(problem: Problem, requestId?: string): MemoryError {
    const kind = problem.type.slice(problem.type.lastIndexOf(":") + 1);
    return new MemoryError(problem.detail, { kind, status: problem.status, problem, requestId });
  }
}
