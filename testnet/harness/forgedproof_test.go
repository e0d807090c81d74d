package harness

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// shower is what an adversary shows for its offer.
type shower struct {
	name  string
	proof sign.Hash
	show  func(ctx context.Context, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) // nil: it does not speak the protocol
	found string                                                                          // what the buyer finds
}

// showers are all that the test plays, given an honest provider's record of a unit.
func showers(t *testing.T, honest market.Shown, record []byte) []shower {
	t.Helper()
	root := func(list ...market.Shown) sign.Hash {
		h, err := market.ProofRoot(list)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	list := func(list ...market.Shown) []byte {
		b, err := market.MarshalShown(list)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	shows := func(shown, record []byte) func(context.Context, *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
		return func(_ context.Context, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
			if len(req.Offered) > 0 {
				return &nodepb.ProofReply{Shown: shown}, nil
			}
			return &nodepb.ProofReply{Proof: record}, nil
		}
	}
	own := market.Shown{Unit: market.UnitID{1}, Record: sign.Hash{2}}
	bent := slices.Clone(record)
	bent[401] ^= 1 // of its provider's signature
	return []shower{
		{"one that shows nothing", root(own), nil, "list of records: not available"},
		{"one that is silent", root(own), func(ctx context.Context, _ *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "checked yet"},
		{"one with another's record", root(honest), shows(list(honest), record), "rule unit: record of unit " + honest.Unit.Short()},
		{"one with a record that it changed", root(honest), shows(list(honest), bent), "got another record"},
		{"one with another list than it signed", root(own), shows(list(honest), record), "the records listed have root"},
		{"one with a list too long", root(own), shows(make([]byte, 64*(market.MaxShown+1)), record), "units shown"},
		{"one with junk", root(own), shows(list(own), []byte("a record")), "record"},
	}
}

// Cheap offers whose proof shows nothing are refused with what is wrong with each, and the honest, dearer one is taken.
func TestForgedProofs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const strangers = 7
		n := New(t, Options{
			Providers: 2, Units: 1, Strangers: strangers, Programs: programs, AuditSlots: 10 * auditSlots, Log: Logger(),
			Configure: func(_ int, c *config.Config) { small(c) },
		})
		passed := audited(t, n.Provider(0), 1)[0]
		audited(t, n.Provider(1), 1)
		b := n.Buyer(0)
		kept, err := b.Proofs().Proof(t.Context(), n.Provider(0).Key.Key(), passed.Record)
		if err != nil {
			t.Fatal(err)
		}
		all := showers(t, market.Shown{Unit: passed.Unit, Record: passed.Record}, raw(t, kept))
		var who []*adversary
		for i, f := range all {
			a := n.adversary(t, i)
			who = append(who, a)
			if f.show != nil {
				s := protocol.Proof.Handle(a.host, a.tag, func(ctx context.Context, _ peer.ID, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
					return f.show(ctx, req)
				}, stream.Limits{Logger: p2ptest.Quiet()})
				defer s.Close()
			}
		}
		time.Sleep(2 * time.Second)
		spec := b.Job("work", 3, "2") // nobody can take the third, so that the window stays open
		id := b.Submit(spec).ID
		m, err := who[0].orders.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOrder(who[0].domain, m.Data, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		same := market.Resources{MilliCPU: 100, MemoryMiB: 64, DiskMiB: 16}
		for i, f := range all {
			a := who[i]
			quote := a.quoteWith(o, a.key, func(q *market.Quote) { q.PerUnit = same })
			offer := a.offerWith(a.key, func(o *market.Offer) { o.PerUnit, o.Proven, o.Proof = same, o.Units, f.proof })
			if err := a.brings(b.id(), o, quote, offer); err != nil {
				t.Errorf("the quote of %s is not taken: %v", f.name, err)
			}
		}
		j := b.Wait(id, time.Minute)
		if j.State != buyer.Failed || j.Code != buyer.CodeNoMatch || !strings.Contains(j.Reason, "2 of 3") {
			t.Errorf("%s (%s): %s", j.State, j.Code, j.Reason)
		}
		for i, f := range all {
			refused := slices.IndexFunc(b.steps(t, id, record.StepInfeasible), func(s record.Step) bool {
				return s.Provider == who[i].key.Key().String() && strings.Contains(s.Detail, f.found)
			})
			if refused < 0 {
				t.Errorf("%s is not refused for %q\n%s", f.name, f.found, b.Why(id))
			}
		}
		spec.Count = 2
		n.settled(t, b, b.Wait(b.Submit(spec).ID, time.Minute))
	})
}

// raw is a proof in the form between peers.
func raw(t *testing.T, p proof.Proof) []byte {
	t.Helper()
	c, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := proof.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
