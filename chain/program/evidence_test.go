package program_test

import (
	"bytes"
	"testing"

	"github.com/starling-network/starling/chain/program"
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
	accounttest.ReadBack(t, evidence(), append(accounttest.Examples(), evidence()...))
}

func fuzzEvidence(f *testing.F, name string) { accounttest.Fuzz(f, evidence(), name) }

func FuzzAttested(f *testing.F) { fuzzEvidence(f, "attested") }
func FuzzStated(f *testing.F)   { fuzzEvidence(f, "stated") }
