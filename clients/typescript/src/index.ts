export { MemoryError, type Problem } from "./errors.js";
export type { Arguments, Method, Path, RequestOptions, Result } from "./http.js";
export {
  Memory,
  type AddOptions,
  type Added,
  type Context,
  type ContextOptions,
  type ForgetOptions,
  type Forgotten,
  type Hit,
  type Hits,
  type ListOptions,
  type MemoryOptions,
  type Messages,
  type Operation,
  type Query,
  type RememberOptions,
  type SearchOptions,
} from "./memory.js";
export type { components, operations, paths } from "./openapi.js";
export type { LanguageModel, MemoryMiddleware, WrapOptions } from "./wrapping.js";
