package account_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
)

// TestAccountsReadBack: what is written is read as it was, and no other bytes are an account of the kind.
func TestAccountsReadBack(t *testing.T) {
	t.Parallel()
	for _, a := range accounttest.Examples() {
		b := a.Of.Marshal()
		if len(b) != a.Size {
			t.Errorf("%s: %d bytes, want %d", a.Name, len(b), a.Size)
		}
		got, err := a.Read(b)
		if err != nil || !bytes.Equal(got.Marshal(), b) {
			t.Errorf("%s: %+v, %v", a.Name, got, err)
		}
		for cut := range b {
			if _, err := a.Read(b[:cut]); !errors.Is(err, account.ErrAccount) {
				t.Errorf("%s: %d of %d bytes read: %v", a.Name, cut, len(b), err)
			}
		}
		if _, err := a.Read(append(bytes.Clone(b), 0)); !errors.Is(err, account.ErrAccount) {
			t.Errorf("%s with a byte more: %v", a.Name, err)
		}
		for _, other := range accounttest.Examples() {
			if _, err := other.Read(b); !strings.HasPrefix(a.Name, "ballot") && other.Name != a.Name && !errors.Is(err, account.ErrAccount) {
				t.Errorf("%s reads as %s: %v", a.Name, other.Name, err)
			}
		}
	}
}

func fuzzAccount(f *testing.F, name string) {
	for _, a := range accounttest.Examples() {
		if a.Name != name {
			continue
		}
		f.Add(a.Of.Marshal())
		f.Add([]byte{})
		f.Fuzz(func(t *testing.T, b []byte) {
			got, err := a.Read(b)
			if err != nil {
				if !errors.Is(err, account.ErrAccount) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got.Marshal(), b) {
				t.Fatalf("%x comes back as %x", b, got.Marshal())
			}
		})
	}
}

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
