package program_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

func exampleCore() verify.ReceiptCore {
	return verify.ReceiptCore{
		Version: 1, Flags: verify.ReceiptFinal, Units: 2, RankEpoch: 3, Lease: market.LeaseID(hash(4)), Seq: 5, Prev: hash(6), Provider: key(7),
		Buyer: key(8), UnitsRoot: hash(9), Supervision: 10, From: 11, To: 12, CPUMillis: 13, Amount: 14, Cumulative: 15, Output: hash(16),
	}
}

// evidence is one of each kind of account of evidence, and its reader.
func evidence() []accounttest.Example {
	return []accounttest.Example{
		{Name: "attested", Of: program.Attested{Bump: 253, Network: key(1), Reporter: key(2), Core: exampleCore(), Slot: 3},
			Size: program.AttestedSize,
			Read: func(b []byte) (marshaler, error) { return program.UnmarshalAttested(b) }},
		{Name: "stated", Of: program.Stated{Bump: 250, What: program.StatementShown, Network: key(1), Reporter: key(2),
			Signer: key(3), Slot: 4, Layout: bytes.Repeat([]byte{5}, 72)}, Size: program.StatedSize(program.StatementShown),
			Read: func(b []byte) (marshaler, error) { return program.UnmarshalStated(b) }},
	}
}

// TestEvidenceReadsBack: what is written is read as it was, and no other bytes are an account of the kind.
func TestEvidenceReadsBack(t *testing.T) {
	t.Parallel()
	for _, a := range evidence() {
		b := a.Of.Marshal()
		if len(b) != a.Size {
			t.Errorf("%s: %d bytes, want %d", a.Name, len(b), a.Size)
		}
		got, err := a.Read(b)
		if err != nil || !bytes.Equal(got.Marshal(), b) {
			t.Errorf("%s: %+v, %v", a.Name, got, err)
		}
		refused := func(name string, b []byte) {
			t.Helper()
			if _, err := a.Read(b); !errors.Is(err, account.ErrAccount) {
				t.Errorf("%s with %s: %v", a.Name, name, err)
			}
		}
		for cut := range b {
			refused("bytes cut off", b[:cut])
		}
		refused("a byte more", append(bytes.Clone(b), 0))
		for _, at := range []int{0, 1, 7} { // kind, version, reserved
			other := bytes.Clone(b)
			other[at] ^= 0x80
			refused("another head", other)
		}
		for _, other := range append(accounttest.Examples(), evidence()...) {
			if other.Name != a.Name {
				refused("the bytes of "+other.Name, other.Of.Marshal())
				if _, err := other.Read(b); !errors.Is(err, account.ErrAccount) {
					t.Errorf("%s reads as %s: %v", a.Name, other.Name, err)
				}
			}
		}
	}
}

func fuzzEvidence(f *testing.F, name string) {
	for _, a := range evidence() {
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

func FuzzAttested(f *testing.F) { fuzzEvidence(f, "attested") }
func FuzzStated(f *testing.F)   { fuzzEvidence(f, "stated") }
