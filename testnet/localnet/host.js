// Hosts one Surfpool Solana runtime for its parent: says where it is in one line of JSON, ends when its standard input does.
const { Surfnet } = require("@solana/surfpool-linux-x64-gnu");
const [slotTimeMs] = process.argv.slice(1).map(Number);
const net = Surfnet.startWithConfig({ offline: true, blockProductionMode: "clock", slotTimeMs, airdropSol: 1e14 });
console.log(JSON.stringify({ rpc: net.rpcUrl, secret: Array.from(net.payerSecretKey) }));
setInterval(() => net.drainEvents(), 200); // or they pile up
process.stdin.on("end", () => process.exit(0)).resume();
