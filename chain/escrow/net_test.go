package escrow_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// The largest path of a claim by the number of keys, without a table and with one.
func TestClaimsFit(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	for n, want := range [][2]int{{256, 256}, {32, 256}, {4, 256}, {0, 32}, {0, 4}} {
		keys := escrowtest.KeySet(t, uint8(n+1), names...)
		if bare, fit := escrow.LeavesFitBare(keys), escrow.LeavesFit(keys); bare != want[0] || fit != want[1] {
			t.Errorf("%d keys: %d leaves, %d with a table, want %d", n+1, bare, fit, want)
		}
	}
}

// ClaimFits agrees with the length of the transaction, for every number of keys and every path. Without a path the
// length of the call's data takes one byte less, which ClaimFits does not count on.
func TestClaimFitsIsExact(t *testing.T) {
	t.Parallel()
	net := escrowtest.Net(t, escrowtest.Params())
	core := escrowtest.Lease(0, escrowtest.KeySet(t, 1, "buyer"), 1000, 1100, 1500)
	at, vault := escrowtest.Key("escrow"), escrowtest.Key("vault")
	for keys := 1; keys <= account.MaxVoucherKeys; keys++ {
		for path := 0; path <= tranche.MaxDepth; path++ {
			call := program.Claim{Escrow: at, Tranche: escrowtest.Key("tranche"), Vault: vault,
				Destination: escrowtest.Key("destination"), Mint: net.Mint, Network: net.Address(),
				Leaf: tranche.LeafOf(core, 0), Proof: make(tranche.Proof, path)}
			voucher := program.VoucherSigned(net.Domain(), verify.SignedVoucher{Signatures: verify.Signatures{
				Set: market.KeySet{Keys: make([]sign.Key, keys)}, Sigs: make([]verify.IndexedSignature, keys)}})
			in := append([]svm.Instruction{voucher.Instruction(), call.Instruction(net.Program)},
				svm.Budget(1, 1)...)
			for _, tables := range [][]svm.Table{nil, {{Address: escrowtest.Key("table"), Holds: []sign.Key{at,
				call.Tranche, vault, call.Destination, net.Mint, net.Address(), svm.TokenProgram,
				svm.InstructionsSysvar}}}} {
				size := chaintest.Size(core.Provider, in, tables...)
				if path == 0 {
					size++
				}
				if fits := escrow.ClaimFits(uint8(keys), path, tables != nil); fits != (size <= chain.MaxRaw) {
					t.Errorf("%d keys, path of %d, %d tables: fits %v, %d bytes", keys, path, len(tables), fits, size)
				}
			}
		}
	}
}

func TestNewNet(t *testing.T) {
	t.Parallel()
	network := account.NewNetwork(escrowtest.Params())
	for i, m := range network.Params.Mints {
		n, err := escrow.NewNet(escrowtest.Key("program"), network, m.Mint)
		if err != nil || int(n.MintIndex()) != i || n.Margin() != escrowtest.Margin ||
			n.Address() != account.NetworkAddress(escrowtest.Key("program"), network.Params) {
			t.Errorf("mint %d: %+v, %v", i, n, err)
		}
	}
	if _, err := escrow.NewNet(escrowtest.Key("program"), network, escrowtest.Key("x")); !errors.Is(err, escrow.ErrMint) {
		t.Errorf("an unknown mint: %v", err)
	}
}

func TestCheckWindows(t *testing.T) {
	t.Parallel()
	for slots, want := range map[uint32]error{escrow.MinResponseSlots - 1: escrow.ErrWindows,
		escrow.MinResponseSlots: nil, 1 << 31: nil, 0: escrow.ErrWindows} {
		if err := escrow.CheckWindows(account.Params{ResponseSlots: slots}); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%d response slots: %v", slots, err)
		}
	}
}

// An escrow's address is of one buyer, order, slot, network and program: vouchers of one escrow are good in no other.
func TestEscrowAddress(t *testing.T) {
	t.Parallel()
	params := escrowtest.Params()
	params.Network = "another"
	nets := []escrow.Net{escrowtest.Net(t, escrowtest.Params()), escrowtest.Net(t, params)}
	elsewhere, err := escrow.NewNet(escrowtest.Key("another program"), account.NewNetwork(params), params.StakeMint)
	if err != nil {
		t.Fatal(err)
	}
	nets = append(nets, elsewhere)
	type name struct {
		net    int
		buyer  sign.Key
		order  market.OrderID
		opened uint64
	}
	seen := map[sign.Key]name{}
	rapid.Check(t, func(t *rapid.T) {
		n := name{rapid.IntRange(0, 2).Draw(t, "net"), escrowtest.Key(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "buyer")),
			market.OrderID{byte(rapid.IntRange(1, 2).Draw(t, "order"))}, rapid.Uint64Range(1, 3).Draw(t, "opened")}
		at := nets[n.net].Escrow(n.buyer, n.order, n.opened)
		if other, there := seen[at]; there && other != n {
			t.Fatalf("%+v and %+v are both %s", n, other, at)
		}
		seen[at] = n
		core := market.LeaseCore{Buyer: n.buyer, Order: n.order}
		named := escrow.Funding{Opened: n.opened, Buyer: n.buyer, Order: n.order}
		if nets[n.net].EscrowOf(core, escrow.Funding{Opened: n.opened}) != at ||
			nets[n.net].EscrowOf(market.LeaseCore{Buyer: escrowtest.Key("job")}, named) != at {
			t.Fatalf("%+v: a lease finds another escrow", n)
		}
	})
}

func TestFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := escrow.View{Vault: market.Amount(rapid.Uint64Range(0, 100).Draw(t, "vault")),
			Escrow: &account.Escrow{Outstanding: rapid.Uint64Range(0, 100).Draw(t, "outstanding"),
				Fee: rapid.Uint64Range(0, 100).Draw(t, "fee")}}
		owed := market.Amount(v.Escrow.Outstanding + v.Escrow.Fee)
		if free := v.Free(); free > v.Vault || free > 0 && free+owed != v.Vault || free == 0 && v.Vault > owed {
			t.Fatalf("%d of %d are free, %d owed", free, v.Vault, owed)
		}
	})
}
