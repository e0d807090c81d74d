package escrowtest

import (
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// Lock opens an escrow with one tranche of these leases, finalized immediately. The deposit is the sum of their caps.
func (c *Chain) Lock(t T, keys market.KeySet, deadline market.Slot, cores ...market.LeaseCore) []escrow.Funding {
	t.Helper()
	leaves := make([]tranche.Leaf, len(cores))
	for i, core := range cores {
		leaves[i] = tranche.LeafOf(core, uint16(i))
	}
	tree, err := tranche.Build(leaves)
	if err != nil {
		t.Fatalf("%v", err)
	}
	order, opened := cores[0].Order, c.Root
	at := c.Net.Escrow(Key("buyer"), order, opened)
	vault := account.VaultAddress(c.Net.Program, at)
	c.Inject(t, program.OpenEscrow{Payer: Key("buyer"), Buyer: Key("buyer"), Source: Key("source"),
		Authority: Key("buyer"), Escrow: at, Vault: vault, Mint: c.Net.Mint, Network: c.Net.Address(), Order: order,
		Opened: opened, Deadline: uint64(deadline), Deposit: uint64(tree.Root().Sum), RefundOwner: Key("owner"),
		MintIndex: c.Net.MintIndex(), Keys: keys})
	c.Inject(t, program.AddTranche{Payer: Key("buyer"), Buyer: Key("buyer"), Escrow: at, Vault: vault,
		Tranche: account.TrancheAddress(c.Net.Program, at, 0), Root: tree.Root()})
	out := make([]escrow.Funding, len(cores))
	for i := range cores {
		proof, err := tree.Prove(i)
		if err != nil {
			t.Fatalf("%v", err)
		}
		out[i] = escrow.Funding{Opened: opened, Index: uint16(i), Proof: proof}
	}
	return out
}

// Voucher signs a voucher for a lease with the keys of names.
func Voucher(
	t T, net escrow.Net, core market.LeaseCore, f escrow.Funding, v verify.Voucher, keys market.KeySet, names ...string,
) verify.SignedVoucher {
	t.Helper()
	v.Version, v.Lease, v.Escrow = verify.VoucherVersion, core.ID(), net.EscrowOf(core, f)
	signers := make([]sign.Signer, len(names))
	for i, n := range names {
		signers[i] = Private(n)
	}
	s, err := verify.SignVoucher(net.Domain(), v, keys, signers...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}
