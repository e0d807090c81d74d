package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// TestFresh: the interface that is committed is that of the source.
func TestFresh(t *testing.T) {
	t.Parallel()
	if err := run("..", true); err != nil {
		t.Error(err)
	}
}

// build makes the TypeScript client in a folder of its own, from the interface, with the packages of its lock file.
func build(t *testing.T) (dir string) {
	t.Helper()
	if os.Getenv("STARLING_LOCALNET") != "1" {
		t.Skip("the TypeScript client is built from npm's packages: set STARLING_LOCALNET=1, as make test does")
	}
	var version int
	out, err := exec.CommandContext(t.Context(), "node", "-p", "parseInt(process.versions.node)").Output()
	if err != nil || json.Unmarshal(bytes.TrimSpace(out), &version) != nil || version < 20 {
		t.Skipf("the TypeScript client's libraries need Node.js 20 or newer, this is %s (%v)", out, err)
	}
	from, dir := filepath.Join("..", "..", "client"), t.TempDir()
	addon := localnet.Addon{Name: "client-1.0.0", File: filepath.Join("node_modules", "typescript", "bin", "tsc")}
	for name, into := range map[string]*[]byte{"package.json": &addon.PackageJSON, "package-lock.json": &addon.PackageLock} {
		if *into, err = os.ReadFile(filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := addon.Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package.json", "tsconfig.json", "generate.mjs", "src/index.ts", "test/vectors.ts", "test/chain.ts"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runNode(t, dir, "", "generate.mjs", absolute(t, filepath.Join("..", file)))
	runNode(t, dir, "", filepath.Join("node_modules", "typescript", "bin", "tsc"))
	return dir
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runNode runs Node.js and returns what it prints.
func runNode(t *testing.T, dir, input string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "VECTORS="+absolute(t, filepath.Join("..", "testdata", "vectors.json")))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %s: %v\n%s%s", args[0], err, out, said.String())
	}
	return out
}

// TestClient: the TypeScript client made from the interface reads and makes every call, account and address of the test vectors; and on
// a local chain it registers a provider, bonds, opens an escrow, and claims, and reads what Go reads.
func TestClient(t *testing.T) {
	t.Parallel()
	dir := build(t)
	t.Run("Vectors", func(t *testing.T) {
		t.Parallel()
		t.Logf("%s", runNode(t, dir, "", "--test", filepath.Join("dist", "test", "vectors.js")))
	})
	t.Run("Chain", func(t *testing.T) {
		t.Parallel()
		testChain(t, dir)
	})
}

func testChain(t *testing.T, dir string) {
	const stake, deposit, due = 20_000_000, 50_000, 4_000
	// The opening slot must be of the last 150 when the client comes to it.
	net := localnettest.Start(t, localnet.Config{SlotMillis: 400})
	g, err := net.EscrowGenesis(t.Context(), "test", 10)
	if err != nil {
		t.Fatal(err)
	}
	owner, peer := sign.NewPrivate(sign.Hash(chaintest.RandomKey())), sign.NewPrivate(sign.Hash(chaintest.RandomKey()))
	if err := net.Fund(t.Context(), localnet.Wallet{Owner: owner, Tokens: stake + deposit, Lamports: 1_000_000_000}); err != nil {
		t.Fatal(err)
	}
	ledger, err := solana.New(solana.ConfigOf([]string{net.URL()}, g, owner))
	if err != nil {
		t.Fatal(err)
	}
	slot, err := ledger.Slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	order, inventory := sign.Hash(chaintest.RandomKey()), sign.Hash(chaintest.RandomKey())
	leaf := tranche.Leaf{Version: 1, Provider: peer.Key(), Lease: market.LeaseID(chaintest.RandomKey()), Payout: owner.Key(), Rate: 1e12,
		Cap: due, Start: slot - 1, End: slot + 1000}
	tree, err := tranche.Build([]tranche.Leaf{leaf})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := market.NewKeySet(1, owner.Key())
	if err != nil {
		t.Fatal(err)
	}
	at := account.EscrowAddress(g.Program, g.Escrow, owner.Key(), order, uint64(slot))
	voucher, err := verify.SignVoucher(g.Domain(), verify.Voucher{Version: verify.VoucherVersion, Lease: leaf.Lease, Escrow: at, Seq: 1,
		Cumulative: due}, keys, owner)
	if err != nil {
		t.Fatal(err)
	}
	signed := program.VoucherSigned(g.Domain(), voucher)
	seed := func(k sign.Private) string { s := k.Seed(); return hex.EncodeToString(s[:]) }
	wallet := svm.TokenAccount(owner.Key(), g.Mint)
	terms, err := json.Marshal(map[string]any{"rpc": net.URL(), "program": g.Program, "network": g.Escrow, "mint": g.Mint,
		"owner": seed(owner), "peer": seed(peer),
		"source": wallet, "destination": wallet, "payout": owner.Key(), "inventory": inventory, "stake": stake, "deposit": deposit,
		"opened": slot, "order": order,
		"root": tree.Root().Hash, "leaf": leaf, "voucher": hex.EncodeToString(signed.Message),
		"signature": hex.EncodeToString(signed.Signatures[0][:])})
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Provider struct {
			Address, Peer, Owner, Payout sign.Key
			Inventory                    sign.Hash
			Stake, Bonded                uint64
		}
		Escrow struct {
			Address, Buyer                sign.Key
			Deposited, Outstanding, Paid  uint64
			Opened, Deadline, Fee, Closed uint64
			Keys                          []sign.Key
		}
		Tranche struct {
			Address     sign.Key
			Root        sign.Hash
			Outstanding uint64
			Leaves      []account.LeafState
		}
		Refused string
		Wanted  program.Code
	}
	out := runNode(t, dir, string(terms), filepath.Join("dist", "test", "chain.js"))
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	p, _, err := ledger.Provider(t.Context(), peer.Key())
	if err != nil {
		t.Fatal(err)
	}
	if p.Stake != stake || p.Bonded != stake || p.Payout != owner.Key() || p.Inventory != inventory {
		t.Errorf("Go reads the registration as %+v", p)
	}
	if r := read.Provider; r.Address != account.ProviderAddress(g.Program, g.Escrow, peer.Key()) || r.Peer != p.Peer || r.Owner != p.Owner ||
		r.Payout != p.Payout ||
		r.Inventory != p.Inventory || r.Stake != p.Stake || r.Bonded != p.Bonded {
		t.Errorf("the client reads the registration as %+v, Go as %+v", r, p)
	}
	v, err := ledger.Look(t.Context(), at, []uint16{0}, escrow.Confirmed)
	if err != nil || v.Escrow == nil {
		t.Fatalf("the escrow: %+v, %v", v, err)
	}
	e := v.Escrow
	if e.Deposited != deposit || e.Paid != due || v.Tranches[0].Leaves[0].Paid != due {
		t.Errorf("Go reads the escrow as %+v, its tranche as %+v", e, v.Tranches[0])
	}
	if r := read.Escrow; r.Address != at || r.Buyer != e.Buyer || r.Deposited != e.Deposited || r.Outstanding != e.Outstanding ||
		r.Paid != e.Paid || r.Fee != e.Fee ||
		r.Opened != e.Opened || r.Deadline != e.Deadline || len(r.Keys) != 1 || r.Keys[0] != owner.Key() {
		t.Errorf("the client reads the escrow as %+v, Go as %+v", r, e)
	}
	if r := read.Tranche; r.Root != tree.Root().Hash || r.Outstanding != 0 || len(r.Leaves) != 1 || r.Leaves[0] != v.Tranches[0].Leaves[0] {
		t.Errorf("the client reads the tranche as %+v, Go as %+v", r, v.Tranches[0])
	}
	if read.Wanted != program.ErrNothingDue || read.Refused != "111" {
		t.Errorf("the second claim is refused with %q, want %d", read.Refused, program.ErrNothingDue)
	}
}
