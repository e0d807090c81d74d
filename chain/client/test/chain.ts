// Uses the client on a real chain: registers a provider, bonds its stake, opens an escrow with a tranche, and claims. Terms come as JSON
// on standard input, what the client reads back goes out as JSON; client_test.go in ../program/idl holds that against what Go reads.
import { readFileSync } from "node:fs";
import {
  type Address, appendTransactionMessageInstructions, createKeyPairSignerFromPrivateKeyBytes, createSolanaRpc, createTransactionMessage,
  getBase64EncodedWireTransaction, getSignatureFromTransaction, type Instruction, isSolanaError, pipe,
    setTransactionMessageFeePayerSigner,
  setTransactionMessageLifetimeUsingBlockhash, signTransactionMessageWithSigners,
} from "@solana/kit";
import * as client from "../src";

const t = JSON.parse(readFileSync(0, "utf8"));
const rpc = createSolanaRpc(t.rpc);
const config = { programAddress: t.program as Address };
const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, "hex"));

async function main() {
  const [owner, peer] = await Promise.all([t.owner, t.peer].map((seed) => createKeyPairSignerFromPrivateKeyBytes(bytes(seed))));

  // send lands a transaction, or says why the program refused it.
  async function send(...instructions: Instruction[]) {
    const { value: blockhash } = await rpc.getLatestBlockhash().send();
    const message = pipe(
      createTransactionMessage({ version: 0 }),
      (m) => setTransactionMessageFeePayerSigner(owner, m),
      (m) => setTransactionMessageLifetimeUsingBlockhash(blockhash, m),
      (m) => appendTransactionMessageInstructions(instructions, m),
    );
    const signed = await signTransactionMessageWithSigners(message);
    await rpc.sendTransaction(getBase64EncodedWireTransaction(signed), { encoding: "base64", preflightCommitment: "confirmed" }).send();
    for (;;) {
      const { value } = await rpc.getSignatureStatuses([getSignatureFromTransaction(signed)]).send();
      if (value[0]?.err) throw new Error(JSON.stringify(value[0].err, (_, v) => (typeof v === "bigint" ? Number(v) : v)));
      if (value[0]?.confirmationStatus && value[0].confirmationStatus !== "processed") return;
      await new Promise((r) => setTimeout(r, 20));
    }
  }

  const network = await client.fetchNetwork(rpc, t.network);
  if ((await client.networkAddress(network.data.params, t.program)) !== t.network) throw new Error("the network's address is another");
  const [provider] = await client.findProviderPda({ network: t.network, peer: peer.address }, config);
  const [stakeVault] = await client.findStakeVaultPda({ provider }, config);
  await send(
    client.getRegisterInstruction({ payer: owner, owner, peer, network: t.network, provider, vault: stakeVault, mint: t.mint,
      payout: t.payout,
      inventory: bytes(t.inventory) }, config),
    client.getStakeInstruction({ authority: owner, source: t.source, provider, vault: stakeVault, mint: t.mint,
      amount: BigInt(t.stake) }, config),
    client.getBondInstruction({ owner, network: t.network, provider, amount: BigInt(t.stake) }, config),
  );

  const opened = BigInt(t.opened);
  const order = bytes(t.order);
  const [escrow] = await client.findEscrowPda({ network: t.network, buyer: owner.address, order, opened }, config);
  const [vault] = await client.findVaultPda({ escrow }, config);
  const [tranche] = await client.findTranchePda({ escrow, index: 0 }, config);
  await send(
    client.getOpenEscrowInstruction({ payer: owner, buyer: owner, source: t.source, authority: owner, escrow, vault, mint: t.mint,
      network: t.network, order,
      opened, deadline: opened + 100_000n, deposit: BigInt(t.deposit), referrer: "11111111111111111111111111111111" as Address,
        refundOwner: owner.address,
      mintIndex: 0, threshold: 1, standbys: [], voucherKeys: [owner] }, config),
    client.getAddTrancheInstruction({ payer: owner, buyer: owner, escrow, vault, tranche, index: 0, root: bytes(t.root),
      sum: BigInt(t.leaf.cap), count: 1 }, config),
  );

  // What was claimed once cannot be claimed again: the refusal has the name that it has in Go.
  const claim = [
    client.signatures(bytes(t.voucher), [{ key: owner.address, signature: bytes(t.signature) }]),
    client.getClaimInstruction({ escrow, tranche, vault, destination: t.destination, mint: t.mint, network: t.network, ed: 0, leaf: 0,
      leafProvider: peer.address,
      terms: { rate: BigInt(t.leaf.rate), cap: BigInt(t.leaf.cap), start: BigInt(t.leaf.start), end: BigInt(t.leaf.end) }, path: [] },
        config),
  ];
  await send(...claim);
  let refused = "";
  try {
    await send(...claim);
  } catch (e) {
    const cause = isSolanaError(e) ? e.cause : e;
    refused = String((cause as any)?.context?.code ?? cause);
  }
  const read = { provider: await client.fetchProvider(rpc, provider), escrow: await client.fetchEscrow(rpc, escrow),
    tranche: await client.fetchTranche(rpc, tranche) };
  const out = Object.fromEntries(Object.entries(read).map(([k, v]) => [k, { address: v.address, ...v.data }]));
  console.log(JSON.stringify({ ...out, refused, wanted: client.STARLING_ERROR__NOTHING_DUE },
    (_, v) => (typeof v === "bigint" ? Number(v) : v instanceof Uint8Array ? Buffer.from(v).toString("hex") : v)));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
