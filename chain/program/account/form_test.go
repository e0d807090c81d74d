package account_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// TestEachByteCounts: with any one byte changed an account is another, or none.
func TestEachByteCounts(t *testing.T) {
	t.Parallel()
	for _, a := range accounttest.Examples() {
		b, taken := a.Of.Marshal(), 0
		for i := range b {
			for _, flip := range []byte{1, 0x80, 0xff} {
				other := bytes.Clone(b)
				other[i] ^= flip
				got, err := a.Read(other)
				switch {
				case err != nil && !errors.Is(err, account.ErrAccount):
					t.Errorf("%s, byte %d: %v", a.Name, i, err)
				case err == nil && !bytes.Equal(got.Marshal(), other):
					t.Errorf("%s, byte %d changed to %d is read and not kept", a.Name, i, other[i])
				case err == nil:
					taken++
				}
			}
		}
		if taken < len(b) { // at least the keys and amounts can be any others
			t.Errorf("%s: of %d bytes only %d changes are taken: the test shows little", a.Name, len(b), taken)
		}
	}
}

// refuses checks that bytes are no account of the kind.
func refuses[A accounttest.Account](t *testing.T, name string, read func([]byte) (A, error), of A) {
	t.Helper()
	if got, err := read(of.Marshal()); !errors.Is(err, account.ErrAccount) {
		t.Errorf("%s: %+v, %v", name, got, err)
	}
}

// TestEscrowRefuses: states and key sets that the program never writes.
func TestEscrowRefuses(t *testing.T) {
	t.Parallel()
	k := accounttest.Key
	for name, change := range map[string]func(*account.Escrow){
		"no state":       func(e *account.Escrow) { e.State = 0 },
		"state 3":        func(e *account.Escrow) { e.State = 3 },
		"no keys":        func(e *account.Escrow) { e.Keys = market.KeySet{Threshold: 1} },
		"no threshold":   func(e *account.Escrow) { e.Keys.Threshold = 0 },
		"threshold of 4": func(e *account.Escrow) { e.Keys.Threshold = 4 },
		"a key twice":    func(e *account.Escrow) { e.Keys.Keys = []sign.Key{k(1), k(2), k(2)} },
		"descending":     func(e *account.Escrow) { e.Keys.Keys = []sign.Key{k(1), k(3), k(2)} },
		"six keys": func(e *account.Escrow) {
			e.Keys.Keys = []sign.Key{k(1), k(2), k(3), k(4), k(5), k(6)}
		},
		"nine standbys": func(e *account.Escrow) { e.Standbys = make([]account.Standby, account.MaxStandbys+1) },
	} {
		e := accounttest.Escrow()
		change(&e)
		refuses(t, name, account.UnmarshalEscrow, e)
	}
	for keys := 1; keys <= account.MaxVoucherKeys; keys++ {
		e := accounttest.Escrow()
		e.Keys = market.KeySet{Threshold: uint8(keys)}
		for i := range keys {
			e.Keys.Keys = append(e.Keys.Keys, k(byte(i)))
		}
		for standbys := range account.MaxStandbys + 1 {
			e.Standbys = make([]account.Standby, standbys)
			b := e.Marshal()
			if _, err := account.UnmarshalEscrow(b); err != nil || len(b) != account.EscrowSize(keys, standbys) {
				t.Errorf("%d keys, %d standbys: %d bytes, %v", keys, standbys, len(b), err)
			}
			if rent := account.EscrowRent(keys, standbys); rent != svm.Rent(len(b))+svm.Rent(svm.TokenSize) {
				t.Errorf("%d keys, %d standbys: %d lamports", keys, standbys, rent)
			}
		}
	}
}

// TestTrancheRefuses: numbers of leaves and openers that the program never writes.
func TestTrancheRefuses(t *testing.T) {
	t.Parallel()
	if account.MaxLeaves != tranche.MaxLeaves {
		t.Errorf("%d leaves, verify/tranche has %d", account.MaxLeaves, tranche.MaxLeaves)
	}
	x := accounttest.Tranche()
	for name, leaves := range map[string]int{"no leaves": 0, "257 leaves": account.MaxLeaves + 1} {
		x.Leaves = make([]account.LeafState, leaves)
		refuses(t, name, account.UnmarshalTranche, x)
	}
	for _, leaves := range []int{1, 2, account.MaxLeaves} {
		x.Leaves = make([]account.LeafState, leaves)
		b := x.Marshal()
		if _, err := account.UnmarshalTranche(b); err != nil || len(b) != account.TrancheSize(leaves) ||
			account.TrancheRent(leaves) != svm.Rent(len(b)) {
			t.Errorf("%d leaves: %d bytes, %v", leaves, len(b), err)
		}
	}
	x = accounttest.Tranche()
	x.By = 2
	refuses(t, "opened by 2", account.UnmarshalTranche, x)
	b := accounttest.Tranche().Marshal()
	b[42]++ // the number of leaves, of which one is missing then
	if _, err := account.UnmarshalTranche(b); !errors.Is(err, account.ErrAccount) {
		t.Errorf("a leaf less than counted: %v", err)
	}
}

// TestPayoutRefuses: numbers of payees that the program never writes.
func TestPayoutRefuses(t *testing.T) {
	t.Parallel()
	for _, count := range []uint32{1, 7, 8, 9, 100, account.MaxPayees} {
		p := accounttest.Payout()
		p.Count, p.Claimed = count, make([]byte, (count+7)/8)
		b := p.Marshal()
		if _, err := account.UnmarshalPayout(b); err != nil || len(b) != account.PayoutSize(count) {
			t.Errorf("%d payees: %d bytes, %v", count, len(b), err)
		}
		p.Claimed = p.Claimed[1:]
		refuses(t, "a byte of claims less", account.UnmarshalPayout, p)
	}
	for _, count := range []uint32{0, account.MaxPayees + 1, 1<<32 - 1} {
		p := accounttest.Payout()
		p.Count, p.Claimed = count, make([]byte, account.MaxPayees/8+1)
		refuses(t, "too many payees", account.UnmarshalPayout, p)
	}
}

// TestWasPaid reads the bits of payees in their order, and none after the last.
func TestWasPaid(t *testing.T) {
	t.Parallel()
	p := account.Payout{Count: 11, Claimed: []byte{0b1000_0010, 0b1111_1100}}
	for i := range uint32(20) {
		if want := i == 1 || i == 7 || i == 10; p.WasPaid(i) != want {
			t.Errorf("payee %d: %v, want %v", i, p.WasPaid(i), want)
		}
	}
}

// TestBallotsOfRules: rules of any number of mints come back; the number is not stored.
func TestBallotsOfRules(t *testing.T) {
	t.Parallel()
	for mints := range account.MaxMints + 1 {
		b := accounttest.Ballot(account.SubjectRules)
		b.Rules.Fees = nil
		for i := range mints {
			b.Rules.Fees = append(b.Rules.Fees, account.Fees{FeeBps: uint16(10 + i), BurnBps: 10_000})
		}
		got, err := account.UnmarshalBallot(b.Marshal())
		if err != nil || len(got.Rules.Fees) != mints || !bytes.Equal(got.Marshal(), b.Marshal()) {
			t.Errorf("%d mints come back as %+v, %v", mints, got.Rules, err)
		}
	}
	for _, subject := range []account.Subject{0, 3} {
		b := accounttest.Ballot(account.SubjectRewards)
		b.Subject = subject
		refuses(t, "another subject", account.UnmarshalBallot, b)
	}
	gap := accounttest.Ballot(account.SubjectRules)
	gap.Rules.Fees = []account.Fees{{}, {FeeBps: 10, BurnBps: 10_000}}
	refuses(t, "a mint after none", account.UnmarshalBallot, gap)
}

// TestNetworkRefuses: a network has lawful parameters, and rules that they allow.
func TestNetworkRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*account.Network){
		"unlawful parameters": func(n *account.Network) { n.Params.ResponseSlots = 0 },
		"rules not allowed":   func(n *account.Network) { n.Rules.ResponseSlots = n.Params.ResponseSlots - 1 },
		"fees of three mints": func(n *account.Network) { n.Rules.Fees = append(n.Rules.Fees, n.Rules.Fees[0]) },
		"fees of one mint":    func(n *account.Network) { n.Rules.Fees = n.Rules.Fees[:1] },
	} {
		n := accounttest.Network()
		change(&n)
		refuses(t, name, account.UnmarshalNetwork, n)
	}
}
