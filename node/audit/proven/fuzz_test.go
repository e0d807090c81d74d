package proven

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// A buyer reads what a provider shows of its units: nothing proves a unit but the record that is behind the offer.
func FuzzRecordReply(f *testing.F) {
	r := passing()[0]
	add := func(reply *nodepb.ProofReply) {
		b, err := proto.Marshal(reply)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	honest := bazaarOf(f, []audit.Record{r}, nil)
	list, err := honest.answer(f.Context(), honest.offer.Provider, &nodepb.ProofRequest{Offered: honest.offer.Proof[:]})
	if err != nil {
		f.Fatal(err)
	}
	add(list)
	add(&nodepb.ProofReply{Proof: carried(r.Marshal())})
	add(&nodepb.ProofReply{Proof: carried(r.Marshal()), Anchor: []byte{1}})
	add(&nodepb.ProofReply{Shown: make([]byte, 64)})
	f.Fuzz(func(t *testing.T, b []byte) {
		var reply nodepb.ProofReply
		if proto.Unmarshal(b, &reply) != nil {
			return
		}
		z := bazaarOf(t, []audit.Record{r}, nil)
		z.cfg.Ask = func(_ context.Context, _ sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
			if len(req.Offered) > 0 && len(reply.Shown) == 0 { // the list is as it is, the record is not
				return list, nil
			}
			return &reply, nil
		}
		z.Check(t.Context(), z.offer, 1)
		if n := z.Shown(z.offer).Units; n > 0 && string(reply.Proof) != string(carried(r.Marshal())) {
			t.Fatalf("%d units are proven by something else", n)
		}
		_, _ = proof.ReadAnchor(reply.Anchor, r.Hash())
	})
}
