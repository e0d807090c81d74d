package harness

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// honest co-signs a receipt and pays the interval after it.
func (a *adversary) honest(h held, r verify.ReceiptCore) *nodepb.MeterReply {
	sig, err := r.Sign(a.domain, a.key)
	if err != nil {
		a.t.Error(err)
	}
	next := uint64(r.To-h.core.Start) + intervalSlots
	return &nodepb.MeterReply{BuyerSignature: sig[:], Voucher: a.pays(h, r.Seq+1, next, nil)}
}

// A buyer that stops paying, in whatever way, is served for the grace and no
// longer: its program is ended, its units are free, and what it paid is kept.
func TestBuyerStopsPaying(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		from uint64 // the first receipt that is answered like this
		how  func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply
	}{
		{"vanishes", 4, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			a.n.net.Cut(a.i)
			return nil
		}},
		{"pays no more", 4, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			reply := a.honest(h, r)
			reply.Voucher = nil
			return reply
		}},
		{"co-signs no more", 4, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			return &nodepb.MeterReply{}
		}},
		{"signs badly", 2, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			reply := a.honest(h, r)
			reply.BuyerSignature = flip(reply.BuyerSignature)
			return reply
		}},
		{"sends noise", 2, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			return &nodepb.MeterReply{BuyerSignature: make([]byte, 64), Voucher: []byte("noise")}
		}},
		{"pays the same again", 2, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			reply := a.honest(h, r)
			reply.Voucher = a.pays(h, r.Seq+1, uint64(r.To-h.core.Start), nil)
			return reply
		}},
		{"pays less", 2, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			reply := a.honest(h, r)
			reply.Voucher = a.pays(h, r.Seq+1, 1, nil)
			return reply
		}},
		{"pays for another lease", 2, func(a *adversary, h held, r verify.ReceiptCore) *nodepb.MeterReply {
			reply := a.honest(h, r)
			reply.Voucher = a.pays(h, r.Seq+1, uint64(r.To-h.core.Start)+intervalSlots, func(v *verify.Voucher) { v.Lease[0] ^= 1 })
			return reply
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 1, Strangers: 1, Programs: programs, Log: Logger()})
				a, p := n.adversary(t, 0), n.Provider(0)
				time.Sleep(3 * time.Second)
				h := a.active(p)
				if _, err := a.start(p, h, "work", "600"); err != nil {
					t.Fatal(err)
				}
				srv := a.cosign(h, func(r verify.ReceiptCore) *nodepb.MeterReply {
					if r.Seq >= c.from {
						return c.how(a, h, r)
					}
					return a.honest(h, r)
				})
				defer srv.Close()
				began := time.Now()
				paid := time.Duration(c.from) * time.Second // each receipt pays for the interval after it, the activation for the first
				time.Sleep(paid - 500*time.Millisecond)
				if p.Fake.Running() != 1 {
					t.Fatal("the program does not run while it is paid for")
				}
				for p.Fake.Running() > 0 {
					if time.Since(began) > paid+8*time.Second {
						t.Fatalf("the program still runs %v after the last paid slot", time.Since(began)-paid)
					}
					time.Sleep(100 * time.Millisecond)
				}
				t.Logf("ended %v after the last paid slot", time.Since(began)-paid)
				time.Sleep(30 * time.Second)
				n.checkQuiet(t, p)
				sold := p.Node.Provider().Sold()
				if len(sold) != 1 || !strings.Contains(sold[0].Record.EndReason, "no voucher") || sold[0].Receipts < c.from-1 && c.name != "signs badly" && c.name != "sends noise" {
					t.Errorf("the lease ended with %d receipts: %s", sold[0].Receipts, sold[0].Record.EndReason)
				}
				if rate := uint64(h.core.Rate); uint64(sold[0].Earned) < rate*intervalSlots/1_000_000 {
					t.Errorf("the provider counts %d as earned", sold[0].Earned)
				}
			})
		})
	}
}

// rogue is an adversary that sells: it quotes the lowest price for every order it
// hears, and breaks its word somewhere.
type rogue struct {
	*adversary
	reserve  func(ctx context.Context, r *marketpb.Reserve) (*marketpb.Held, error)
	signs    func(ctx context.Context, core market.LeaseCore) (market.LeaseCore, error)
	activate func(ctx context.Context) error
	exec     func(ctx context.Context, req *nodepb.ExecRequest) (*nodepb.Execution, error)
	watch    func(ctx context.Context, send func(*nodepb.WatchItem) error) error

	mu     sync.Mutex
	leases []market.LeaseCore
}

// lose waits until the caller has given up.
func lose(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// sell makes the adversary a provider; the returned function ends it.
func (r *rogue) sell() (stop func()) {
	limits := stream.Limits{Logger: p2ptest.Quiet()}
	servers := []*stream.Server{
		protocol.Lease.Handle(r.host, r.tag, r.handleLease, limits),
		protocol.Exec.Handle(r.host, r.tag, func(ctx context.Context, _ peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
			e := &nodepb.Execution{Lease: req.Lease, Seq: req.Seq, State: nodepb.ExecState_EXEC_STATE_RUNNING}
			if r.exec != nil {
				var err error
				if e, err = r.exec(ctx, req); err != nil {
					return nil, err
				}
			}
			return &nodepb.ExecReply{Execution: e}, nil
		}, limits),
		protocol.Watch.Serve(r.host, r.tag, func(ctx context.Context, _ peer.ID, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error) error {
			if r.watch != nil {
				return r.watch(ctx, send)
			}
			return lose(ctx)
		}, limits),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			m, err := r.orders.Next(ctx)
			if err != nil {
				return
			}
			o, err := market.DecodeOrder(r.domain, m.Data, time.Now())
			if err != nil {
				r.t.Error(err)
				return
			}
			quote, offer := r.offers(o, 1)
			_ = r.brings(m.From, o, quote, offer)
		}
	})
	return func() {
		cancel()
		for _, s := range servers {
			s.Close()
		}
		wg.Wait()
	}
}

func (r *rogue) handleLease(ctx context.Context, _ peer.ID, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	switch s := req.Step.(type) {
	case *marketpb.LeaseRequest_Reserve:
		unit := sign.Sum([]byte("unit"))
		held := &marketpb.Held{Hold: s.Reserve.Hold, Units: [][]byte{unit[:]}, Expires: time.Now().Add(10 * time.Second).UnixMilli()}
		if r.reserve != nil {
			var err error
			if held, err = r.reserve(ctx, s.Reserve); err != nil {
				return nil, err
			}
		}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Held{Held: held}}, nil
	case *marketpb.LeaseRequest_Sign:
		core, err := market.UnmarshalLeaseCore(s.Sign.Core)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		r.leases = append(r.leases, core)
		r.mu.Unlock()
		if r.signs != nil {
			if core, err = r.signs(ctx, core); err != nil {
				return nil, err
			}
		}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Signed{Signed: &marketpb.Signed{Hold: s.Sign.Hold, Signature: r.signature(core)}}}, nil
	case *marketpb.LeaseRequest_Activate:
		if r.activate != nil {
			if err := r.activate(ctx); err != nil {
				return nil, err
			}
		}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Activated{Activated: &marketpb.Activated{Lease: s.Activate.Lease}}}, nil
	}
	return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Released{Released: &marketpb.Released{}}}, nil
}

func exited(code int32, outs ...*nodepb.Output) func(context.Context, func(*nodepb.WatchItem) error) error {
	return func(_ context.Context, send func(*nodepb.WatchItem) error) error {
		return send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: &nodepb.Execution{
			Seq: 1, State: nodepb.ExecState_EXEC_STATE_EXITED, ExitCode: code, Outputs: outs}}})
	}
}

// A provider that is the cheapest and breaks its word, at each step in each way: it
// is dropped and never waited for, the job is done by others, and what it gets is
// what the buyer had prepaid, one interval at the most.
func TestRogueProvider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		words string // in the trace
		paid  bool   // it got its first voucher
		lost  int    // restarts of its rank
		set   func(r *rogue)
	}{
		{"never answers a reserve", "silent rank", false, 0, func(r *rogue) {
			r.reserve = func(ctx context.Context, _ *marketpb.Reserve) (*marketpb.Held, error) { return nil, lose(ctx) }
		}},
		{"refuses after all", "changed its mind", false, 0, func(r *rogue) {
			r.reserve = func(context.Context, *marketpb.Reserve) (*marketpb.Held, error) {
				return nil, stream.Refuse("capacity", "changed its mind")
			}
		}},
		{"holds nothing", "0 units held, want 1", false, 0, func(r *rogue) {
			r.reserve = func(_ context.Context, req *marketpb.Reserve) (*marketpb.Held, error) {
				return &marketpb.Held{Hold: req.Hold}, nil
			}
		}},
		{"holds units with bad names", "unit id of 3 bytes", false, 0, func(r *rogue) {
			r.reserve = func(_ context.Context, req *marketpb.Reserve) (*marketpb.Held, error) {
				return &marketpb.Held{Hold: req.Hold, Units: [][]byte{{1, 2, 3}}}, nil
			}
		}},
		{"takes a hold and vanishes", "silent rank", false, 0, func(r *rogue) {
			r.signs = func(ctx context.Context, c market.LeaseCore) (market.LeaseCore, error) {
				r.n.net.Cut(r.i)
				return c, lose(ctx)
			}
		}},
		{"signs another payout", "signature", false, 0, func(r *rogue) {
			r.signs = func(_ context.Context, c market.LeaseCore) (market.LeaseCore, error) {
				c.Payout = r.n.Provider(0).Key.Key()
				return c, nil
			}
		}},
		{"signs another rate", "signature", false, 0, func(r *rogue) {
			r.signs = func(_ context.Context, c market.LeaseCore) (market.LeaseCore, error) {
				c.Rate *= 2
				return c, nil
			}
		}},
		{"takes the first payment and vanishes", "silent rank", true, 0, func(r *rogue) {
			r.activate = func(ctx context.Context) error {
				r.n.net.Cut(r.i)
				return lose(ctx)
			}
		}},
		{"refuses to run anything", "not today", true, 1, func(r *rogue) {
			r.exec = func(context.Context, *nodepb.ExecRequest) (*nodepb.Execution, error) {
				return nil, stream.Refuse("workload", "not today")
			}
		}},
		{"vanishes when it should run", "no receipt", true, 1, func(r *rogue) {
			r.exec = func(ctx context.Context, _ *nodepb.ExecRequest) (*nodepb.Execution, error) {
				r.n.net.Cut(r.i)
				return nil, lose(ctx)
			}
		}},
		{"vanishes mid-run", "lost", true, 1, func(r *rogue) {
			r.watch = func(ctx context.Context, _ func(*nodepb.WatchItem) error) error {
				time.Sleep(500 * time.Millisecond)
				r.n.net.Cut(r.i)
				return lose(ctx)
			}
		}},
		{"sends no receipts", "no receipt", true, 1, func(*rogue) {}},
		{"says that it failed", "no room", true, 1, func(r *rogue) {
			r.watch = func(_ context.Context, send func(*nodepb.WatchItem) error) error {
				return send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: &nodepb.Execution{
					Seq: 1, State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: "start", Message: "no room"}}})
			}
		}},
		{"names an output that it does not have", "could not be fetched", true, 1, func(r *rogue) {
			r.watch = exited(0, &nodepb.Output{Path: "/out", Blob: blobPB(r.t, r.n.Provider(0).Put("elsewhere"))})
		}},
		{"names a malformed output", "malformed output", true, 1, func(r *rogue) {
			r.watch = exited(0, &nodepb.Output{Path: "/out", Blob: &nodepb.Blob{Cid: []byte("x")}})
		}},
		{"sends a log with holes", "no receipt", true, 1, func(r *rogue) {
			r.watch = func(ctx context.Context, send func(*nodepb.WatchItem) error) error {
				return send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Log{Log: &nodepb.LogChunk{Offset: 77, Data: []byte("x")}}})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Units: 1, Strangers: 1, Programs: programs, Log: Logger()})
				r := &rogue{adversary: n.adversary(t, 0)}
				c.set(r)
				defer r.sell()()
				time.Sleep(5 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("work", 2, "3")
				spec.Outputs = []job.Output{{Path: "/out"}}
				j := b.Wait(b.Submit(spec).ID, 2*time.Minute)
				n.check(t, b, j, buyer.Succeeded)
				n.checkPayer(t, b)
				why := b.Why(j.ID)
				if !strings.Contains(why, c.words) {
					t.Errorf("the trace does not say %q", c.words)
				}
				lost := 0
				for _, k := range j.Ranks {
					lost += k.Restarts
					if k.Provider == r.key.Key() {
						t.Error("a rank ended at the rogue")
					}
				}
				if lost != c.lost {
					t.Errorf("%d ranks were lost, want %d", lost, c.lost)
				}
				var got market.Amount
				if len(r.leases) != 1 && (c.paid || strings.Contains(c.name, "sign")) {
					t.Errorf("it was sent %d leases to sign, want 1", len(r.leases))
				}
				for _, core := range r.leases {
					got += b.owed(t, j.ID, core.ID())
					if most, err := core.Rate.Owed(intervalSlots); err != nil || b.owed(t, j.ID, core.ID()) > most {
						t.Errorf("it was paid %d, one interval costs %d (%v)", got, most, err)
					}
				}
				if c.paid != (got > 0) {
					t.Errorf("it was paid %d", got)
				}
				for _, s := range b.steps(t, j.ID, record.StepLeased) {
					if s.Took > 5*time.Second {
						t.Errorf("the job waited %v for its leases", s.Took)
					}
				}
				if t.Failed() {
					t.Log(why)
				}
				n.Settle()
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
			})
		})
	}
}

// A provider bills what it may not bill: no receipt of it is co-signed, and the rule it breaks is named.
func TestRogueReceipts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Strangers: 1, Programs: programs, Log: Logger()})
		r := &rogue{adversary: n.adversary(t, 0)}
		defer r.sell()()
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.Job("work", 1, "3")).ID
		time.Sleep(1200 * time.Millisecond)
		r.mu.Lock()
		core := r.leases[0]
		r.mu.Unlock()
		next := func(change func(*verify.ReceiptCore)) verify.ReceiptCore {
			c, err := verify.NewChain(core).Next(core.Start, core.Start+intervalSlots, func(*verify.ReceiptCore) {})
			if err != nil {
				t.Fatal(err)
			}
			if change != nil {
				change(&c)
			}
			return c
		}
		propose := func(c verify.ReceiptCore, by sign.Private) (*nodepb.MeterReply, error) {
			sig, err := c.Sign(r.domain, by)
			if err != nil {
				t.Fatal(err)
			}
			raw, lease := c.Marshal(), core.ID()
			return protocol.Meter.Call(t.Context(), r.host, r.tag, b.id(), &nodepb.MeterRequest{Lease: lease[:], Receipt: raw[:], ProviderSignature: sig[:]})
		}
		seed, err := p2p.SeedOf(p2ptest.Key(99))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, rule string
			change     func(*verify.ReceiptCore)
		}{
			{"amount", "amount", func(c *verify.ReceiptCore) { c.Amount++ }},
			{"cumulative", "cumulative", func(c *verify.ReceiptCore) { c.Cumulative++ }},
			{"number", "seq", func(c *verify.ReceiptCore) { c.Seq = 2 }},
			{"predecessor", "prev", func(c *verify.ReceiptCore) { c.Prev[0] ^= 1 }},
			{"units", "units", func(c *verify.ReceiptCore) { c.UnitsRoot[0] ^= 1 }},
			{"beginning", "start", func(c *verify.ReceiptCore) { c.From, c.To = c.From+90, c.To+90 }},
			{"length", "cumulative", func(c *verify.ReceiptCore) { c.To++ }},
			{"usage", "usage", func(c *verify.ReceiptCore) { c.CPUMillis = 1 << 40 }},
			{"supervision", "supervision", func(c *verify.ReceiptCore) { c.Supervision = 9 }},
		} {
			_, err := propose(next(c.change), r.key)
			told(t, "a receipt with another "+c.name, err, c.rule)
		}
		_, err = propose(next(nil), sign.NewPrivate(seed))
		told(t, "a receipt by another key", err, "provider-signature")
		// After all that a right one is co-signed, and the same again gets the same answer; another one under its number ends the payments.
		one, err := propose(next(nil), r.key)
		two, err2 := propose(next(nil), r.key)
		if err != nil || err2 != nil || string(one.BuyerSignature) != string(two.BuyerSignature) || len(one.Voucher) == 0 || string(one.Voucher) != string(two.Voucher) {
			t.Errorf("a right receipt: %v, again: %v", err, err2)
		}
		_, err = propose(next(func(c *verify.ReceiptCore) { c.CPUMillis = 1 }), r.key)
		told(t, "a second receipt under one number", err, "conflict")
		j := b.Wait(id, time.Minute)
		accounts := n.check(t, b, j, buyer.Succeeded)
		for _, a := range accounts {
			if a.Provider == r.key.Key() && !strings.Contains(a.Reason, "conflict") {
				t.Errorf("the lease ended for %q", a.Reason)
			}
		}
	})
}
