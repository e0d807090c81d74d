// Holds the generated client against ../program/testdata/vectors.json, which Go writes: every call is read, made again and compared byte
// by byte and account by account, every account is read and written again, every address is derived. Names are compared too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AccountRole, type Address, createNoopSigner, getAddressDecoder, getBase58Encoder, isSignerRole } from "@solana/kit";
import * as client from "../src";

const all = client as unknown as Record<string, (...a: any[]) => any>;
const vectors = JSON.parse(readFileSync(process.env.VECTORS ?? "../program/testdata/vectors.json", "utf8"));
const programAddress = vectors.program as Address;
const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, "hex"));
const hex = (b: ArrayLike<number>) => Buffer.from(Uint8Array.from(b)).toString("hex");
const camel = (s: string) => s.replace(/[_ ](\w)/g, (_, c) => c.toUpperCase()).replace(/^\w/, (c) => c.toLowerCase());
const pascal = (s: string) => camel(s).replace(/^\w/, (c) => c.toUpperCase());

/** leaves lists the values in a tree by the last part of their names, in the one form of text that Go's JSON has too. */
function leaves(v: any, name = "", out: Map<string, string[]> = new Map()): Map<string, string[]> {
  if (v instanceof Uint8Array) v = hex(v);
  if (Array.isArray(v)) v.forEach((x) => leaves(x, name, out));
  else if (v !== null && typeof v === "object") Object.entries(v).forEach(([k, x]) => leaves(x, camel(k), out));
  else if (v !== null && v !== undefined) out.set(name, [...(out.get(name) ?? []), String(v)]);
  return out;
}

/** Names that differ, with Go's; "" for what Go's value has not. */
const names: Record<string, string> = {
  "addTranche.root": "hash", "claim.leaf": "index", "retireBegin.leaf": "index", "retireFinish.leaf": "index",
    "retireFinal.leaf": "index",
  discriminator: "", kind: "", version: "", reserved: "", reserved2: "", mode: "", subject: "", evidence: "", fields: "", values: "",
  leafProvider: "provider", leafPayout: "payout", lie: "kind", choice: "for", statement: "", answer: "", none: "",
  count: "", claimed: "",
};

/** same holds what was read against Go's value of the same. */
function same(read: any, go: any, at: string): void {
  const want = leaves(go);
  for (const [name, values] of leaves(read)) {
    const other = names[`${at}.${name}`] ?? names[name] ?? name;
    if (other === "") continue;
    const there = want.get(other);
    if (!there) throw new Error(`${at}: Go has no ${other}`);
    for (const v of values) assert.ok(there.includes(v), `${at}: ${name} is ${v}, Go has ${there}`);
  }
}

/** What the accounts after those with names are called, and Go's calls that have another name here. */
const more: Record<string, string> = { initNetwork: "mints", openEscrow: "voucherKeys", addStandbyTranche: "voucherKeys",
  retireBegin: "signers", claimSigned: "payee" };
const renamed: Record<string, string> = { claimSigned: "claim", vote: "castVote", slashAuditTwo: "slashTwoAnswers", slashAuditOpening: "slashWrongValue" };

for (const [key, v] of Object.entries<any>(vectors.instructions)) {
  const name = renamed[camel(key)] ?? camel(key);
  test(`call ${camel(key)}`, () => {
    const accounts = v.accounts.map((a: any) => ({
      address: a.key,
      role: (a.signer ? AccountRole.READONLY_SIGNER : 0) | (a.writable ? AccountRole.WRITABLE : 0),
    }));
    const instruction = { programAddress, accounts, data: bytes(v.data) };
    assert.equal(all.identifyStarlingInstruction(instruction), (client.StarlingInstruction as any)[pascal(name)]);
    const read = all[`parse${pascal(name)}Instruction`](instruction);
    same(read.data, v.call, name);
    const input: Record<string, unknown> = { ...read.data };
    let named = 0;
    for (const [field, meta] of Object.entries<any>(read.accounts)) {
      named++;
      if (!meta || meta.address === programAddress) continue; // none
      input[field] = isSignerRole(meta.role) ? createNoopSigner(meta.address) : meta.address;
      const go = v.call[Object.keys(v.call).find((k) => camel(k) === field) ?? ""];
      if (go !== undefined) assert.equal(meta.address, go, `${name}: ${field}`);
      else assert.ok(field.endsWith("Program") || field.endsWith("Sysvar") || name === "initNetwork", `${name}: Go has no ${field}`);
    }
    const rest = accounts.slice(named);
    assert.equal(rest.length > 0, camel(key) in more);
    if (rest.length > 0) input[more[camel(key)]] = rest.map((a: any) => (isSignerRole(a.role) ? createNoopSigner(a.address) : a.address));
    const made = all[`get${pascal(name)}Instruction`](input, { programAddress });
    assert.equal(hex(made.data), v.data);
    assert.deepEqual(made.accounts.map((a: any) => ({ address: a.address, role: a.role })), accounts);
  });
}

const accountNames: Record<string, string> = { ballot: "ballotOnRules", anchor: "anchored" };

for (const [key, v] of Object.entries<any>(vectors.accounts)) {
  const name = accountNames[camel(key)] ?? camel(key);
  test(`account ${name}`, () => {
    const data = bytes(v.bytes);
    assert.equal(all.identifyStarlingAccount(data), (client.StarlingAccount as any)[pascal(name)]);
    const read = all[`get${pascal(name)}Decoder`]().decode(data);
    const fees = read.rules?.fees.filter((f: client.Fees) => f.feeBps > 0); // a ballot has room for more mints than the network's
    same(fees ? { ...read, rules: { ...read.rules, fees } } : read, v.account, name);
    assert.equal(hex(all[`get${pascal(name)}Encoder`]().encode(read)), v.bytes);
  });
}

test("calls and accounts are all here", () => {
  const made = new Set(Object.keys(vectors.instructions).map((key) => renamed[camel(key)] ?? camel(key)));
  assert.equal(made.size, Object.keys(client.StarlingInstruction).filter((k) => isNaN(Number(k))).length);
  assert.equal(Object.keys(vectors.accounts).length, Object.keys(client.StarlingAccount).filter((k) => isNaN(Number(k))).length);
});

test("addresses", async () => {
  const a = vectors.addresses;
  const params = client.getParamsDecoder().decode(bytes(vectors.params.bytes));
  assert.equal(await client.networkAddress(params, programAddress), a.network);
  same(params, vectors.params.params, "params");
  const seed = (v: unknown) => (typeof v === "string" && /^[0-9a-f]{64}$/.test(v) ? bytes(v) : v);
  const vaults: Record<string, string> = { stake: "stakeVault", rewards: "rewardsVault" };
  for (const [name, v] of Object.entries<any>(a)) {
    if (name === "network") continue;
    const seeds: Record<string, unknown> = Object.fromEntries(Object.entries(v).map(([k, x]) => [camel(k), seed(x)]));
    if (name === "stated") seeds.statementHash = await client.statementHash(v.what, v.signer, bytes(v.statement));
    const [found] = await all[`find${pascal(vaults[name] ?? name)}Pda`](seeds, { programAddress });
    assert.equal(found, v.address, name);
  }
});

test("signatures", () => {
  const p = vectors.precompile;
  const signed = p.keys.map((key: Address, i: number) => ({ key, signature: getBase58Encoder().encode(p.signatures[i]) }));
  assert.equal(hex(client.signatures(bytes(p.message), signed).data!), p.data);
  assert.equal(getAddressDecoder().decode(bytes(p.data).slice(30)), p.keys[0]);
});
