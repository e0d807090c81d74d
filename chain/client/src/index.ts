import { type Address, type Instruction, address, getAddressEncoder, type ReadonlyUint8Array } from "@solana/kit";
import { findNetworkPda, getParamsEncoder, type ParamsArgs } from "./generated";

export * from "./generated";

const ed25519Program = address("Ed25519SigVerify111111111111111111111111111");
const tag = (text: string) => new TextEncoder().encode(text);

async function sha256(...parts: ReadonlyUint8Array[]): Promise<Uint8Array> {
  const whole = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    whole.set(p as Uint8Array, at);
    at += p.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

/** networkAddress is the account of the network with these parameters: PROTOCOL.md, section 1. */
export async function networkAddress(params: ParamsArgs, programAddress: Address): Promise<Address> {
  const paramsHash = await sha256(tag("starling/params/v1"), getParamsEncoder().encode(params));
  return (await findNetworkPda({ paramsHash }, { programAddress }))[0];
}

/** statementHash is the seed of a statement's account: what is 1 for an answer, 2 for shown openings, 3 for a verdict. */
export function statementHash(what: number, signer: Address, statement: ReadonlyUint8Array): Promise<Uint8Array> {
  return sha256(tag("starling/stated/v1"), Uint8Array.of(what), getAddressEncoder().encode(signer), statement);
}

/**
 * signatures shows the program that a message is signed: PROTOCOL.md, section 3. A call that needs it names its number in the
 * transaction, from 0, as `ed`. The keys of a voucher stand in ascending order.
 */
export function signatures(message: ReadonlyUint8Array, signed: { key: Address; signature: ReadonlyUint8Array }[]): Instruction {
  const n = signed.length;
  const keys = 2 + 14 * n;
  const sigs = keys + 32 * n;
  const text = sigs + 64 * n;
  const data = new Uint8Array(text + message.length);
  const view = new DataView(data.buffer);
  data[0] = n;
  signed.forEach(({ key, signature }, i) => {
    const entry = [sigs + 64 * i, 0xffff, keys + 32 * i, 0xffff, text, message.length, 0xffff];
    entry.forEach((v, j) => view.setUint16(2 + 14 * i + 2 * j, v, true));
    data.set(getAddressEncoder().encode(key) as Uint8Array, keys + 32 * i);
    data.set(signature as Uint8Array, sigs + 64 * i);
  });
  data.set(message as Uint8Array, text);
  return { programAddress: ed25519Program, accounts: [], data };
}
