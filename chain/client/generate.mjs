// Writes src/generated from the program's interface: node generate.mjs [FILE]
import { readFileSync } from "node:fs";
import { renderVisitor } from "@codama/renderers-js";
import { visit } from "@codama/visitors-core";

const file = process.argv[2] ?? new URL("../program/starling.json", import.meta.url);
await visit(JSON.parse(readFileSync(file, "utf8")), renderVisitor(".", { syncPackageJson: false }));
