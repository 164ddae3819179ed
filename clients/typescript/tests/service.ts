import { randomUUID } from "node:crypto";
import { Memory, type MemoryOptions } from "../src/index.js";

/** The service that the tests ask, with a token of the level admin for many users. */
function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`set ${name}; memory_pipeline_tests/clients/test_typescript.py starts a service and sets it`);
  return value;
}

export const url = given("MEMORY_URL");
export const token = given("MEMORY_TOKEN");
/** A token of the level read, for the user `reader` alone. */
export const readingToken = given("MEMORY_READING_TOKEN");

/** The memory of a new user. */
export function newMemory(options: MemoryOptions = {}): Memory {
  return new Memory({ url, token, userId: `user-${randomUUID()}`, ...options });
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}
