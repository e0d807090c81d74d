package escrow_test

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// funded is an escrow with one tranche of three leases, as a chain would show it, and the funding of the second.
func funded(t escrowtest.T) (escrow.Net, escrow.View, market.LeaseCore, market.KeySet, escrow.Funding) {
	t.Helper()
	net, keys := escrowtest.Net(t, escrowtest.Params()), escrowtest.KeySet(t, 1, "buyer")
	var leaves []tranche.Leaf
	var cores []market.LeaseCore
	for i := range 3 {
		cores = append(cores, escrowtest.Lease(i, keys, 1000, 1100, 1500))
		leaves = append(leaves, tranche.LeafOf(cores[i], uint16(i)))
	}
	tree, err := tranche.Build(leaves)
	if err != nil {
		t.Fatalf("%v", err)
	}
	proof, err := tree.Prove(1)
	if err != nil {
		t.Fatalf("%v", err)
	}
	f := escrow.Funding{Opened: 990, Tranche: 0, Index: 1, Proof: proof}
	at := net.EscrowOf(cores[1], f)
	view := escrow.View{Slot: 1010, Vault: 15_000, Escrow: &account.Escrow{State: account.EscrowOpen, MintIndex: 1, Network: net.Address(), Buyer: escrowtest.Key("buyer"),
		Order: cores[1].Order, Mint: net.Mint, Vault: account.VaultAddress(net.Program, at), Opened: 990, Deadline: 1540, Deposited: 15_000, Outstanding: 15_000,
		Tranches: 1, Keys: keys}, Tranches: map[uint16]account.Tranche{0: {Escrow: at, Opened: 1005, Sum: 15_000, Root: tree.Root().Hash, Outstanding: 15_000,
		Leaves: make([]account.LeafState, 3)}}}
	return net, view, cores[1], keys, f
}

// all is what a case of TestCheckFunding changes.
type all struct {
	view *escrow.View
	e    *account.Escrow
	n    *account.Tranche
	core *market.LeaseCore
	keys *market.KeySet
	f    *escrow.Funding
}

// other makes the lease one of another buyer and order than the escrow's, alone in its tranche, and the funding say so.
func (a all) other(t escrowtest.T, buyer sign.Key, order market.OrderID) {
	t.Helper()
	a.core.Buyer, a.core.Order = buyer, order
	tree, err := tranche.Build([]tranche.Leaf{tranche.LeafOf(*a.core, 0)})
	if err != nil {
		t.Fatalf("%v", err)
	}
	*a.f = escrow.Funding{Opened: a.f.Opened, Proof: tranche.Proof{}, Buyer: a.e.Buyer, Order: a.e.Order}
	a.n.Root, a.n.Sum, a.n.Leaves = tree.Root().Hash, uint64(tree.Root().Sum), make([]account.LeafState, 1)
}

func TestCheckFunding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(all)
		want   error
	}{
		"good":                 {func(all) {}, nil},
		"a job's key as buyer": {func(a all) { a.other(t, escrowtest.Key("job"), a.core.Order) }, nil},
		"a later order":        {func(a all) { a.other(t, escrowtest.Key("job"), market.OrderID{77}) }, nil},
		"not said so": {func(a all) {
			a.other(t, escrowtest.Key("job"), market.OrderID{77})
			a.f.Buyer, a.f.Order = sign.Key{}, market.OrderID{}
		}, escrow.ErrOtherEscrow},
		"said of another":      {func(a all) { a.f.Buyer, a.f.Order = escrowtest.Key("x"), a.e.Order }, escrow.ErrOtherEscrow},
		"said of other order":  {func(a all) { a.f.Buyer, a.f.Order = a.e.Buyer, market.OrderID{77} }, escrow.ErrOtherEscrow},
		"claimed before":       {func(a all) { a.n.Leaves[1].Paid = 100 }, nil},
		"other leaf retired":   {func(a all) { a.n.Leaves[0].Window = 9 }, nil},
		"landed at the last":   {func(a all) { a.n.Opened = 1100 }, nil},
		"no escrow":            {func(a all) { a.view.Escrow = nil }, escrow.ErrNoEscrow},
		"other network":        {func(a all) { a.e.Network = escrowtest.Key("x") }, escrow.ErrOtherEscrow},
		"other buyer":          {func(a all) { a.e.Buyer = escrowtest.Key("x") }, escrow.ErrOtherEscrow},
		"other order":          {func(a all) { a.e.Order[0]++ }, escrow.ErrOtherEscrow},
		"other opening":        {func(a all) { a.f.Opened++ }, escrow.ErrOtherEscrow},
		"other mint":           {func(a all) { a.e.Mint = escrowtest.Key("other mint") }, escrow.ErrMint},
		"other voucher keys":   {func(a all) { a.e.Keys = escrowtest.KeySet(t, 1, "x") }, escrow.ErrKeys},
		"keys not the lease's": {func(a all) { a.core.VoucherKeys[0]++ }, escrow.ErrKeys},
		"refunded":             {func(a all) { a.e.State = account.EscrowRefunded }, escrow.ErrRefunded},
		"early deadline":       {func(a all) { a.e.Deadline-- }, escrow.ErrDeadline},
		"deadline overflows":   {func(a all) { a.core.End = math.MaxUint64 }, escrow.ErrDeadline},
		"short vault":          {func(a all) { a.view.Vault-- }, escrow.ErrVault},
		"fees in the vault":    {func(a all) { a.e.Fee++ }, escrow.ErrVault},
		"owes more than ever":  {func(a all) { a.e.Fee = math.MaxUint64 }, escrow.ErrVault},
		"no tranche":           {func(a all) { a.f.Tranche++ }, escrow.ErrNoTranche},
		"other's tranche":      {func(a all) { a.n.Escrow = escrowtest.Key("x") }, escrow.ErrOtherEscrow},
		"other place":          {func(a all) { a.f.Index = 0 }, escrow.ErrLeaf},
		"no such place":        {func(a all) { a.f.Index = 3 }, escrow.ErrLeaf},
		"other lease":          {func(a all) { a.core.Rate++ }, escrow.ErrLeaf},
		"short proof":          {func(a all) { a.f.Proof = a.f.Proof[:1] }, escrow.ErrLeaf},
		"being retired":        {func(a all) { a.n.Leaves[1].Window = 1 }, escrow.ErrRetired},
		"given up":             {func(a all) { a.n.Leaves[1].Freed = 1 }, escrow.ErrRetired},
		"too late":             {func(a all) { a.n.Opened = 1101 }, escrow.ErrLate},
		"claims do not fit": {func(a all) {
			*a.keys = escrowtest.KeySet(t, 5, "a", "b", "c", "d", "e")
			a.core.VoucherKeys, a.e.Keys = a.keys.Hash(), *a.keys
			a.n.Leaves = make([]account.LeafState, 9)
		}, escrow.ErrKeys},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, view, core, keys, f := funded(t)
			n := view.Tranches[0]
			c.change(all{&view, view.Escrow, &n, &core, &keys, &f})
			view.Tranches[0] = n
			landed, err := escrow.CheckFunding(net, view, core, keys, f)
			if !errors.Is(err, c.want) || err == nil && landed != market.Slot(n.Opened) {
				t.Errorf("landed %d, %v, want %v", landed, err, c.want)
			}
		})
	}
	if _, err := escrow.NewNet(escrowtest.Key("program"), account.NewNetwork(escrowtest.Params()), escrowtest.Key("x")); !errors.Is(err, escrow.ErrMint) {
		t.Errorf("a network with an unknown mint: %v", err)
	}
}

func FuzzFunding(f *testing.F) {
	_, _, _, _, good := funded(f)
	f.Add(good.Marshal())
	f.Add(escrow.Funding{Index: 255, Proof: make(tranche.Proof, tranche.MaxDepth)}.Marshal())
	f.Add([]byte{})
	good.Buyer, good.Order = escrowtest.Key("buyer"), market.OrderID{9}
	f.Add(good.Marshal())
	good.Order = market.OrderID{}
	f.Add(good.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := escrow.UnmarshalFunding(b)
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		again, err := escrow.UnmarshalFunding(x.Marshal())
		if err != nil || !reflect.DeepEqual(x, again) || string(b) != string(x.Marshal()) {
			t.Errorf("%x reads as %+v, written %x, read again %+v, %v", b, x, x.Marshal(), again, err)
		}
	})
}
