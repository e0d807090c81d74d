package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
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
	params := account.Params{Network: "test", Mints: make([]account.MintTerms, 3)}
	for _, c := range []struct {
		call program.Call
		want uint64
	}{
		{program.InitNetwork{Params: params}, svm.Rent(account.NetworkSize(3))},
		{program.InitPool{}, svm.Rent(svm.TokenSize)},
		{program.OpenEscrow{Keys: keys, Standbys: make([]account.Standby, 4)}, account.EscrowRent(3, 4)},
		{program.AddTranche{Root: tranche.Root{Count: 256}}, account.TrancheRent(256)},
		{program.AddStandbyTranche{Leaves: make([]program.StandbyLeaf, 3), Signers: keys.Keys}, account.TrancheRent(3)},
		{program.Register{}, svm.Rent(account.ProviderSize) + svm.Rent(svm.TokenSize)},
		{program.Attest{}, svm.Rent(program.AttestedSize)},
		{program.Anchor{}, svm.Rent(account.AnchorSize)},
		{program.InitEmission{}, svm.Rent(svm.TokenSize)},
		{program.State{What: program.StatementVerdict}, svm.Rent(112 + 184)},
		{program.ProposeRewards{}, svm.Rent(account.BallotSize)},
		{program.CastVote{}, svm.Rent(account.VoteSize)},
		{program.Accept{}, svm.Rent(account.PayoutSize(8)) + svm.Rent(svm.TokenSize)},
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
	for _, in := range svm.MakeTable(sign.Key{1}, 9, sign.Key{2}, sign.Key{3}) {
		made += program.RentOf(id, in)
		for n := range in.Data {
			program.RentOf(id, svm.Instruction{Program: in.Program, Data: in.Data[:n], Accounts: in.Accounts}) // does not panic
		}
	}
	if made != svm.TableRent(2) || made != svm.Rent(56+64) {
		t.Errorf("a table of two: %d lamports", made)
	}
	if got := program.RentOf(id, program.VoucherSigned(sign.Domain{}, verify.SignedVoucher{}).Instruction()); got != 0 {
		t.Errorf("the precompile: %d lamports", got)
	}
}
