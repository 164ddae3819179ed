// Writes src/openapi.ts, the types of the service, from docs/openapi.json. `make docs` runs it.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import openapi, { astToString } from "openapi-typescript";

const folder = import.meta.dirname;
const document = readFileSync(process.argv[2] ?? join(folder, "../../docs/openapi.json"), "utf8");
const target = process.argv[3] ?? join(folder, "src/openapi.ts");
const types = astToString(await openapi(document, { defaultNonNullable: false }));
const digest = createHash("sha256").update(document).digest("hex");
writeFileSync(target, `// Generated from docs/openapi.json by \`make docs\`; do not edit it by hand.\n// sha256 of that document: ${digest}\n\n${types}`);
