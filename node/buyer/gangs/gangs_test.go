package gangs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// All ranks get their lease, each of its epoch, and nothing stays committed or in use.
func TestForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 2)
		g, err := w.form(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.settled(g)
		for rank := range uint32(2) {
			s, l := w.sellers[rank+1], g.Lease(rank)
			if l == nil || l.Core.Provider != s.key.Key() || l.Core.RankEpoch != 7+rank || l.Record().Job != "job" {
				t.Errorf("rank %d: lease %+v", rank, l)
			}
			if got := s.got(); !slices.Equal(got, []string{"reserve", "sign", "activate"}) {
				t.Errorf("rank %d: %v", rank, got)
			}
			if q := g.Quote(s.key.Key()); q.Quote.Price != s.quote.Quote.Price {
				t.Errorf("rank %d: quote %+v", rank, q)
			}
		}
		if g.Lease(2) != nil || g.Measured() {
			t.Error("a lease of a rank that was not ordered, or measured paths of no cluster")
		}
	})
}

// A provider that answers a step with nonsense gets no payment, and no other provider does: their holds are released.
func TestAttackHostileAnswers(t *testing.T) {
	t.Parallel()
	held := func(change func(*marketpb.Held)) func(*marketpb.LeaseRequest, *marketpb.LeaseReply) error {
		return func(_ *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error {
			if h := reply.GetHeld(); h != nil {
				change(h)
			}
			return nil
		}
	}
	signed := func(change func(*marketpb.Signed)) func(*marketpb.LeaseRequest, *marketpb.LeaseReply) error {
		return func(_ *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error {
			if s := reply.GetSigned(); s != nil {
				change(s)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		answer func(*marketpb.LeaseRequest, *marketpb.LeaseReply) error
		want   string
	}{
		"more units": {held(func(h *marketpb.Held) { h.Units = append(h.Units, h.Units[0]) }), "2 units held, want 1"},
		"no units":   {held(func(h *marketpb.Held) { h.Units = nil }), "0 units held, want 1"},
		"short unit": {held(func(h *marketpb.Held) { h.Units[0] = h.Units[0][:5] }), "unit id of 5 bytes"},
		"short key":  {held(func(h *marketpb.Held) { h.OverlayKey = make([]byte, 7) }), "overlay key of 7 bytes"},
		"no answer": {func(_ *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error {
			if reply.GetHeld() != nil {
				reply.Step = nil
			}
			return nil
		}, stream.ErrBadReply.Error()},
		"another answer": {func(_ *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error {
			if reply.GetSigned() != nil {
				reply.Step = &marketpb.LeaseReply_Activated{Activated: &marketpb.Activated{}}
			}
			return nil
		}, stream.ErrBadReply.Error()},
		"short signature":  {signed(func(s *marketpb.Signed) { s.Signature = s.Signature[:63] }), stream.ErrBadReply.Error()},
		"forged signature": {signed(func(s *marketpb.Signed) { s.Signature[3] ^= 1 }), market.ErrBadSignature.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2, 2)
				w.sellers[2].answer = c.answer
				g, err := w.form(t.Context())
				var none *exchange.Unplaced
				if !errors.As(err, &none) || !none.Raced || none.Unsettled || !strings.Contains(none.Reason, c.want) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				w.settled(g)
				for i, s := range w.sellers[1:] {
					if got := s.got(); slices.Contains(got, "activate") || got[len(got)-1] != "release" {
						t.Errorf("seller %d: %v", i+1, got)
					}
				}
				if g.Lease(0) != nil || g.Stray() != nil {
					t.Error("a gang that was not formed has leases")
				}
			})
		})
	}
}

// A provider that refuses a first voucher gets another one, and is given up after the third.
func TestRefusedVoucher(t *testing.T) {
	t.Parallel()
	for refusals, want := range map[int]int{0: 1, 1: 2, 2: 3, 9: 3} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, 2)
			left := refusals
			w.sellers[1].answer = func(_ *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error {
				if reply.GetActivated() == nil || left == 0 {
					return nil
				}
				left--
				return stream.Refuse(protocol.CodeVoucher, "rule unpaid: the interval is over")
			}
			g, err := w.form(t.Context())
			w.settled(g)
			asked := 0
			for _, step := range w.sellers[1].got() {
				if step == "activate" {
					asked++
				}
			}
			if asked != want || (err == nil) != (refusals < 3) {
				t.Errorf("%d refusals: asked %d times, want %d; %v", refusals, asked, want, err)
			}
		})
	}
}

// A spare takes the place of a provider that refuses. A provider that is busy is asked again.
func TestSpare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		busy := 3
		w.sellers[1].answer = func(*marketpb.LeaseRequest, *marketpb.LeaseReply) error {
			if busy--; busy >= 0 {
				return stream.Refuse(stream.CodeBusy, "later")
			}
			return nil
		}
		w.sellers[2].answer = func(*marketpb.LeaseRequest, *marketpb.LeaseReply) error {
			return stream.Refuse(string(market.ReasonCapacity), "no unit is free")
		}
		g, err := w.form(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.settled(g)
		if l := g.Lease(1); l == nil || l.Core.Provider != w.sellers[3].key.Key() {
			t.Errorf("rank 1: %+v", l)
		}
		if got := w.sellers[1].got(); !slices.Equal(got[:4], []string{"reserve", "reserve", "reserve", "reserve"}) {
			t.Errorf("the busy seller: %v", got)
		}
		refused := 0
		steps, _, _ := w.trace.After(0)
		for _, s := range steps {
			if s.Kind == trace.Refused && s.Detail == "no unit is free" {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("the trace has %d refusals: %+v", refused, steps)
		}
	})
}

// No lease is offered to a provider above the peer's limit for it. Jobs of others are bound by their own limits.
func TestLimit(t *testing.T) {
	t.Parallel()
	for _, limited := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, 1)
			w.limit[w.sellers[1].key.Key()] = "too much for today"
			w.request.Limited = limited
			g, err := w.form(t.Context())
			w.settled(g)
			var none *exchange.Unplaced
			if limited && (!errors.As(err, &none) || !strings.Contains(none.Reason, "too much for today")) {
				t.Errorf("got %v", err)
			}
			if got := w.sellers[1].got(); slices.Contains(got, "sign") == limited || limited == (err == nil) {
				t.Errorf("limited %v: %v, %v", limited, got, err)
			}
		})
	}
}

// A lease that is drafted after its gang has ended would keep its share of the provider's limit for ever.
func TestNoDraftAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 1)
		g, err := w.form(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		late := gang.Sign{Hold: market.HoldID{9}, Provider: w.sellers[1].key.Key(), Units: []market.UnitID{{1}}}
		if _, err := g.draft(late); !errors.Is(err, errOver) {
			t.Errorf("got %v", err)
		}
		w.settled(g)
	})
}

// Without money nothing is activated, and every signed lease is given back.
func TestNoMoney(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 2)
		w.funding = errors.New("the wallet is empty")
		g, err := w.form(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the wallet is empty") {
			t.Errorf("got %v", err)
		}
		w.settled(g)
		if len(w.forgone) != 2 || len(g.Stray()) != 0 {
			t.Errorf("%d leases were given back, %d paid for", len(w.forgone), len(g.Stray()))
		}
		for i, s := range w.sellers[1:] {
			if got := s.got(); !slices.Equal(got, []string{"reserve", "sign", "release"}) {
				t.Errorf("seller %d: %v", i+1, got)
			}
		}
	})
}

// A lease for which a first voucher was signed may cost its first interval, even though the gang was not formed.
func TestStray(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 2)
		w.sellers[2].answer = func(req *marketpb.LeaseRequest, _ *marketpb.LeaseReply) error {
			if req.GetActivate() != nil {
				return stream.Refuse(string(market.ReasonCapacity), "its unit is gone")
			}
			return nil
		}
		g, err := w.form(t.Context())
		if err == nil {
			t.Fatal("a gang formed without a lease for each rank")
		}
		paid := map[sign.Key]bool{}
		for _, l := range g.Stray() {
			paid[l.Core.Provider] = true
		}
		if !paid[w.sellers[1].key.Key()] || !paid[w.sellers[2].key.Key()] || len(w.forgone) != 2 {
			t.Errorf("paid for %v, %d given back", paid, len(w.forgone))
		}
		w.settled(g)
	})
}

// A job that is stopped while its gang forms releases the units that it holds.
func TestStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 2)
		ctx, cancel := context.WithCancel(t.Context())
		w.sellers[2].answer = func(req *marketpb.LeaseRequest, _ *marketpb.LeaseReply) error {
			if req.GetReserve() != nil {
				cancel()
				time.Sleep(StepTimeout / 2)
			}
			return nil
		}
		g, err := w.form(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		w.settled(g)
		for i, s := range w.sellers[1:] {
			got := s.got() // a hold that was reported after the stop is released once more
			if slices.Contains(got, "sign") || got[0] != "reserve" || got[len(got)-1] != "release" {
				t.Errorf("seller %d: %v", i+1, got)
			}
		}
	})
}

// ranked is every provider that quoted.
type ranked struct{}

func (ranked) Rank(
	_ market.Order, quotes []exchange.Quoted,
) (map[sign.Key]exchange.Quoted, match.Result, []match.Refusal) {
	byKey, res := map[sign.Key]exchange.Quoted{}, match.Result{}
	for _, q := range quotes {
		byKey[q.Quote.Provider] = q
		offer := market.Offer{Provider: q.Quote.Provider}
		res.Ranked = append(res.Ranked, match.Scored{Candidate: match.Candidate{Offer: offer, Quote: &q.Quote}, Leases: 1})
	}
	return byKey, res, nil
}

// An order that recruits keeps the hold that it has until another provider quotes, and gives up at its time.
func TestRecruit(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, 2)
			began := time.Now()
			until := began.Add(20 * time.Second)
			w.request.Recruit = &Recruiting{Until: until, Ask: exchange.Ask{Spread: true}, Among: ranked{}}
			second := w.sellers[2].key.Key()
			delete(w.request.Quotes, second)
			w.quotes = []exchange.Quoted{w.sellers[1].quote} // it has a seat
			if comes {
				time.AfterFunc(5*time.Second, func() {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.quotes = append(w.quotes, w.sellers[2].quote)
				})
			}
			g, err := w.former.Form(t.Context(), w.request, []gang.Member{
				{Rank: 0, Provider: w.sellers[1].key.Key()}, {Rank: 1},
			}, nil)
			w.settled(g)
			if comes {
				if err != nil || g.Lease(1).Core.Provider != second || time.Since(began) < 5*time.Second {
					t.Errorf("got %v after %v", err, time.Since(began))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "the market is empty") || time.Now().Before(until) {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
			if got := w.sellers[1].got(); slices.Contains(got, "activate") || got[len(got)-1] != "release" {
				t.Errorf("the first seller: %v", got)
			}
		})
	}
}

// apart is a survey of seats that are too far apart, and of a cluster without members.
type apart struct{ unsettled bool }

func (apart) MeasureSeats(_ context.Context, seats []gang.Seat, _ map[sign.Key][]string) (unfit []gang.Unfit) {
	for _, s := range seats[1:] {
		unfit = append(unfit, gang.Unfit{Rank: s.Rank, Hold: s.Hold, Reason: market.Refuse(market.ReasonDistance, "80ms away")})
	}
	return unfit
}

func (apart) Paths([]cluster.Path, []gang.Seat, map[sign.Key][]string) []cluster.Path { return nil }
func (a apart) Unsettled() bool                                                       { return a.unsettled }
func (apart) Longest() time.Duration                                                  { return 80 * time.Millisecond }
func (apart) Leases() []*leases.Lease                                                 { return nil }
func (apart) Unlivable(d time.Duration) string                                        { return d.String() + " is too far: " }

// A cluster whose providers are too far apart is not tried again, unless their paths may get better.
func TestTooFar(t *testing.T) {
	t.Parallel()
	for _, unsettled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, 2)
			a := apart{unsettled}
			w.request.Cluster = &Cluster{Survey: a, Timeout: time.Second, Members: a}
			for _, s := range w.sellers[1:] {
				key := s.key.Key()
				key[31] &= 127 // below the field's order
				s.answer = func(_ *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error {
					if h := reply.GetHeld(); h != nil {
						h.OverlayKey = key[:]
					}
					return nil
				}
			}
			g, err := w.form(t.Context())
			w.settled(g)
			var none *exchange.Unplaced
			if !errors.As(err, &none) || none.Raced || none.Unsettled != unsettled {
				t.Fatalf("got %+v", err)
			}
			if far := strings.HasPrefix(none.Reason, "80ms is too far: "); far == unsettled {
				t.Errorf("got %q", none.Reason)
			}
		})
	}
}

// No lease is drafted while the chain's slot is unknown, and every hold is released.
func TestSlotUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 2)
		w.blind = errors.New("the slot is unknown")
		g, err := w.form(t.Context())
		var none *exchange.Unplaced
		if !errors.As(err, &none) || !none.Raced || !strings.Contains(none.Reason, "the slot is unknown") {
			t.Errorf("got %v", err)
		}
		w.settled(g)
		for _, s := range w.sellers[1:] {
			if got := s.got(); !slices.Equal(got, []string{"reserve", "release"}) {
				t.Errorf("asked: %v", got)
			}
		}
	})
}

// A job that is stopped while its gang forms does not wait for silent providers longer than for releases, and leaves
// nothing behind.
func TestStoppedWhileForming(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 2)
		w.sellers[1].answer = func(req *marketpb.LeaseRequest, _ *marketpb.LeaseReply) error {
			if req.GetReserve() != nil {
				time.Sleep(StepTimeout / 2)
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), StepTimeout/4)
		defer cancel()
		began := time.Now()
		g, err := w.form(ctx)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > StepTimeout/4+leases.ReleaseTimeout {
			t.Errorf("after %v: %v", took, err)
		}
		w.settled(g)
		if got := w.sellers[2].got(); !slices.Equal(got, []string{"reserve", "release"}) {
			t.Errorf("the other provider: %v", got)
		}
	})
}
