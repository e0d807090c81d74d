package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// TestRentOf: each call that makes an account costs what its account's size costs; the others, and nonsense, nothing.
func TestRentOf(t *testing.T) {
	t.Parallel()
	id := sign.Key{5}
	keys := market.KeySet{Threshold: 2, Keys: []sign.Key{{1}, {2}, {3}}}
	params := program.Params{Network: "test", Mints: make([]program.MintTerms, 3)}
	for _, c := range []struct {
		call program.Call
		want uint64
	}{
		{program.InitNetwork{Params: params}, program.Rent(program.NetworkSize(3))},
		{program.InitPool{}, program.Rent(program.TokenSize)},
		{program.OpenEscrow{Keys: keys, Standbys: make([]program.Standby, 4)}, program.EscrowRent(3, 4)},
		{program.AddTranche{Root: tranche.Root{Count: 256}}, program.TrancheRent(256)},
		{program.AddStandbyTranche{Leaves: make([]program.StandbyLeaf, 3), Signers: keys.Keys}, program.TrancheRent(3)},
		{program.Register{}, program.Rent(program.ProviderSize) + program.Rent(program.TokenSize)},
		{program.Attest{}, program.Rent(program.AttestedSize)},
		{program.Anchor{}, program.Rent(program.AnchorSize)},
		{program.InitEmission{}, program.Rent(program.TokenSize)},
		{program.State{What: program.StatementVerdict}, program.Rent(112 + 184)},
		{program.ProposeRewards{}, program.Rent(program.BallotSize)},
		{program.CastVote{}, program.Rent(program.VoteSize)},
		{program.Accept{}, program.Rent(program.PayoutSize(8)) + program.Rent(program.TokenSize)},
		{program.TopUp{Amount: 1}, 0},
		{program.Claim{}, 0},
		{program.Refund{}, 0},
		{program.Stake{}, 0},
	} {
		in := c.call.Instruction(id)
		if got := program.RentOf(id, in); got != c.want {
			t.Errorf("%T: %d lamports, want %d", c.call, got, c.want)
		}
		if got := program.RentOf(sign.Key{6}, in); got != 0 {
			t.Errorf("%T of another program: %d lamports", c.call, got)
		}
		for n := range in.Data {
			cut := in
			cut.Data = in.Data[:n]
			program.RentOf(id, cut) // does not panic
			cut.Data, cut.Accounts = in.Data, nil
			program.RentOf(id, cut)
		}
	}
	var made uint64
	for _, in := range program.MakeTable(sign.Key{1}, 9, sign.Key{2}, sign.Key{3}) {
		made += program.RentOf(id, in)
		for n := range in.Data {
			program.RentOf(id, program.Instruction{Program: in.Program, Data: in.Data[:n], Accounts: in.Accounts}) // does not panic
		}
	}
	if made != program.TableRent(2) || made != program.Rent(56+64) {
		t.Errorf("a table of two: %d lamports", made)
	}
	if got := program.RentOf(id, program.VoucherSigned(sign.Domain{}, verify.SignedVoucher{}).Instruction()); got != 0 {
		t.Errorf("the precompile: %d lamports", got)
	}
}
