package account_test

import (
	"bytes"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
)

// TestAccountsReadBack: what is written is read as it was, and no other bytes are an account of the kind.
func TestAccountsReadBack(t *testing.T) {
	t.Parallel()
	accounttest.ReadBack(t, accounttest.Examples(), accounttest.Examples())
}

func fuzzAccount(f *testing.F, name string) { accounttest.Fuzz(f, accounttest.Examples(), name) }

func FuzzNetwork(f *testing.F)  { fuzzAccount(f, "network") }
func FuzzEscrow(f *testing.F)   { fuzzAccount(f, "escrow") }
func FuzzTranche(f *testing.F)  { fuzzAccount(f, "tranche") }
func FuzzProvider(f *testing.F) { fuzzAccount(f, "provider") }
func FuzzAnchored(f *testing.F) { fuzzAccount(f, "anchor") }
func FuzzVote(f *testing.F)     { fuzzAccount(f, "vote") }
func FuzzPayout(f *testing.F)   { fuzzAccount(f, "payout") }
func FuzzBallot(f *testing.F) {
	f.Add(accounttest.Ballot(account.SubjectRules).Marshal())
	fuzzAccount(f, "ballot on rewards")
}

func FuzzParams(f *testing.F) {
	f.Add(accounttest.Params().Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := account.UnmarshalParams(b)
		if err == nil && (!bytes.Equal(p.Marshal(), b) || p.Validate() != nil) {
			t.Fatalf("%x comes back as %+v", b, p)
		}
	})
}
