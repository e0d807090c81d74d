package exclusive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/verify/challenge"
	rules "github.com/starling-network/starling/verify/exclusive"
)

var (
	domain          = sign.Domain{Network: "test", Chain: sign.Hash{1}}
	provider, buyer = sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})
)

func lease(t *testing.T) market.Lease {
	core := market.LeaseCore{Version: market.LeaseVersion, Units: 3, Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: provider.Key(), Rate: 1_000_000, Cap: 9000, Start: 10, ActivateBefore: 20, End: 9010}
	l := market.Lease{Core: core}
	var err error
	if l.ProviderSig, err = core.Sign(domain, provider); err != nil {
		t.Fatal(err)
	}
	if l.BuyerSig, err = core.Sign(domain, buyer); err != nil {
		t.Fatal(err)
	}
	return l
}

// gauge computes all tiles but those that it spoils.
type gauge struct {
	*cpu.Device
	spoil   func(tiles []sign.Hash)
	devices int
	full    bool
}

func (gauge) GPU() bool { return false }

func (g gauge) Devices() int { return max(g.devices, 1) }

func (g gauge) Multiply(ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error) error {
	if g.full {
		return fmt.Errorf("%w: all is taken", device.ErrMemory)
	}
	of, ctx := errgroup.WithContext(ctx)
	for i, seed := range seeds {
		of.Go(func() error {
			tiles, err := g.Device.Multiply(ctx, seed, s)
			if err != nil {
				return err
			}
			if g.spoil != nil {
				g.spoil(tiles)
			}
			return each(i, tiles)
		})
	}
	return of.Wait()
}

// talk has one question asked of a provider.
func talk(t *testing.T, spoil func([]sign.Hash), change func(*exclusive.Buyer, *rules.Question, *exclusive.Seller)) (rules.Record, error, error) {
	l := lease(t)
	ours, theirs := net.Pipe()
	b := exclusive.Buyer{Domain: domain, Key: buyer, Lease: l, Known: 5e9}
	q := rules.Question{Lease: l.Core.ID(), Execution: 3, Number: 1, Shape: rules.Fit(rules.CPU, 0), At: 77}
	s := exclusive.Seller{Domain: domain, Key: provider, Buyer: buyer.Key(), Lease: l.Core.ID(), Execution: 3, Gauge: gauge{cpu.New(cpu.Config{Threads: 1}), spoil, 1, false}}
	if change != nil {
		change(&b, &q, &s)
	}
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(t.Context(), theirs)
		_ = theirs.Close()
	}()
	got, err := b.Ask(ours, q, s.Gauge.Devices())
	_ = ours.Close()
	var r rules.Record
	if len(got) > 0 {
		r, err = got[0].Record, got[0].Wrong
	}
	return r, err, <-served
}

func TestProbe(t *testing.T) {
	t.Parallel()
	r, err, served := talk(t, nil, nil)
	if err != nil || served != nil {
		t.Fatal(err, served)
	}
	if err := r.Check(domain); err != nil {
		t.Error(err)
	}
	if r.Known != 5e9 || r.Elapsed <= 0 || r.Trip <= 0 || r.Question.Nonce == (rules.Nonce{}) {
		t.Errorf("%+v", r)
	}
}

// Each device of a lease answers its own question, at once, and each record can be checked by itself.
func TestProbeOfSeveral(t *testing.T) {
	t.Parallel()
	l := lease(t)
	ours, theirs := net.Pipe()
	b := exclusive.Buyer{Domain: domain, Key: buyer, Lease: l}
	s := exclusive.Seller{Domain: domain, Key: provider, Buyer: buyer.Key(), Lease: l.Core.ID(), Execution: 3, Gauge: gauge{cpu.New(cpu.Config{Threads: 1}), nil, 3, false}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), theirs) }()
	got, err := b.Ask(ours, rules.Question{Lease: l.Core.ID(), Execution: 3, Number: 1, Shape: rules.Fit(rules.CPU, 0), At: 77}, 3)
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	seen := map[sign.Hash]bool{}
	for i, p := range got {
		if err := errors.Join(p.Wrong, p.Check(domain)); err != nil || int(p.Question.Unit) != i || p.Elapsed <= 0 {
			t.Errorf("device %d: %+v, %v", i, p.Question, err)
		}
		seen[p.Root] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d answers of 3 devices", len(seen))
	}
	// A record of a unit that the lease has not shows nothing.
	more := got[0].Record
	more.Question.Unit = uint8(l.Core.Units)
	if err := more.Check(domain); !errors.Is(err, rules.ErrRecord) {
		t.Error(err)
	}
}

// A program that has filled the memory is no fault of anybody's.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	_, err, served := talk(t, nil, func(_ *exclusive.Buyer, _ *rules.Question, s *exclusive.Seller) {
		s.Gauge = gauge{cpu.New(cpu.Config{Threads: 1}), nil, 1, true}
	})
	if !errors.Is(err, exclusive.ErrMemory) || !errors.Is(served, device.ErrMemory) {
		t.Errorf("%v; %v", err, served)
	}
}

// What is spoiled on its way is found out by the provider, which then signs for nothing more: it is no proof against it.
func TestSpoiledAnswersAreNotOpened(t *testing.T) {
	t.Parallel()
	r, err, served := talk(t, func(tiles []sign.Hash) {
		for i := range tiles {
			tiles[i][0]++
		}
	}, nil)
	if err == nil || rules.Wrong(err) || !errors.Is(served, challenge.ErrFault) {
		t.Errorf("%v; %v", err, served)
	}
	if err := r.Check(domain); !errors.Is(err, rules.ErrRecord) {
		t.Errorf("what is there of the record: %v", err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*exclusive.Buyer, *rules.Question, *exclusive.Seller){
		"another lease":     func(_ *exclusive.Buyer, _ *rules.Question, s *exclusive.Seller) { s.Lease[0]++ },
		"another execution": func(_ *exclusive.Buyer, q *rules.Question, _ *exclusive.Seller) { q.Execution++ },
		"a GPU's question":  func(_ *exclusive.Buyer, q *rules.Question, _ *exclusive.Seller) { q.Shape = rules.Fit(rules.GPU, 0) },
		"too much": func(_ *exclusive.Buyer, q *rules.Question, _ *exclusive.Seller) {
			q.Shape.Products = rules.MaxProducts + 1
		},
		"a stranger": func(b *exclusive.Buyer, _ *rules.Question, _ *exclusive.Seller) { b.Key = provider },
		"an impostor": func(_ *exclusive.Buyer, _ *rules.Question, s *exclusive.Seller) {
			s.Key = sign.NewPrivate([32]byte{9})
		},
	} {
		if _, err, _ := talk(t, nil, change); err == nil || rules.Wrong(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A provider reads what anybody sends, a buyer what its provider does.
func FuzzServe(f *testing.F) {
	f.Add([]byte("p12345678p12345678"))
	f.Add(append([]byte("q"), make([]byte, 160)...))
	f.Add(append([]byte("d"), make([]byte, 16)...))
	f.Add(append([]byte("q"), make([]byte, 320)...))
	f.Fuzz(func(t *testing.T, said []byte) {
		many := exclusive.Seller{Domain: domain, Key: provider, Buyer: buyer.Key(), Execution: 1, Gauge: gauge{cpu.New(cpu.Config{Threads: 1}), nil, 2, false}}
		_ = many.Serve(t.Context(), script(said))
		s := exclusive.Seller{Domain: domain, Key: provider, Buyer: buyer.Key(), Execution: 1, Gauge: gauge{cpu.New(cpu.Config{Threads: 1}), nil, 1, false}}
		_ = s.Serve(t.Context(), script(said))
	})
}

func FuzzAsk(f *testing.F) {
	f.Add(make([]byte, 200))
	f.Add([]byte("123456781234567812345678m"))
	f.Add(append([]byte("123456781234567812345678r\x02"), make([]byte, 200)...))
	l := market.Lease{Core: market.LeaseCore{Provider: provider.Key(), Buyer: buyer.Key()}}
	f.Fuzz(func(t *testing.T, said []byte) {
		b := exclusive.Buyer{Domain: domain, Key: buyer, Lease: l}
		q := rules.Question{Execution: 1, Number: 1, Shape: rules.Fit(rules.CPU, 0)}
		for _, devices := range []int{1, 3} {
			if _, err := b.Ask(script(said), q, devices); err == nil {
				t.Fatal("nonsense was taken for an answer")
			}
		}
	})
}

type said struct{ rest []byte }

func script(b []byte) io.ReadWriter { return &said{b} }

func (s *said) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *said) Write(p []byte) (int, error) { return len(p), nil }

// lives plays leases of a day whose units are as fast as speed says at each moment, and returns in how many of them contention was
// seen once and twice, after what time in the mean, and how many probes there were. Hardware, heat and networks are those of node/device/sim.
func lives(n int, seed uint64, proven bool, ready time.Duration, speed func(at time.Duration) float64) (seen, again int, found time.Duration, probes int) {
	for i := range n {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		noise := sim.Noise{R: r}
		card, trip := sim.RTX4090.Operations*noise.Card(), noise.Trip()
		w := rules.Watch{}
		if proven {
			w.Proven = uint64(card * 0.9)
		}
		budget := rules.Budget{Lease: 24 * time.Hour}
		cost, last, alarmed := ready+100*time.Millisecond, rules.Learning, false
		for at := time.Duration(0); ; {
			at += budget.Gap(cost, last == rules.Slow || w.Known() == 0, r.Uint64())
			if at > budget.Lease {
				break
			}
			if !budget.Allows(cost) {
				continue
			}
			s := rules.Fit(rules.GPU, w.Last())
			took := time.Duration(float64(s.Operations()) / (card * noise.Speed() * speed(at)) * 1e9)
			elapsed := took + trip + noise.Delay()
			ping := trip + noise.Fastest(6)
			budget.Spent += cost
			cost = ready + elapsed
			w, last = w.See(rules.Observe(s, elapsed, ping))
			probes++
			if last == rules.Contended && !alarmed {
				alarmed = true
				seen++
				found += at
			}
		}
		if w.Alarms > 1 {
			again++
		}
		if budget.Spent > budget.Lease/rules.Share {
			panic("more time than allowed")
		}
	}
	return seen, again, found / time.Duration(max(seen, 1)), probes
}

// gpuShape is how fast a GPU computes a probe, of how fast it computes an audit: smaller products, of which more has to be generated. It is
// estimated of an H100, of which it is least; others are nearer to 1.
const gpuShape = 0.8

// TestOversold: honest units are not called contended, shared ones are. Nothing here measures time.
func TestOversold(t *testing.T) {
	t.Parallel()
	const leases = 2000
	for _, c := range []struct {
		what      string
		proven    bool
		ready     time.Duration
		speed     func(time.Duration) float64
		min, most int // of the leases in which it is seen
	}{
		{"honest, against what was proven", true, 200 * time.Millisecond, func(time.Duration) float64 { return 1 }, 0, 8},
		{"honest, against what it showed", false, 200 * time.Millisecond, func(time.Duration) float64 { return 1 }, 0, 8},
		{"an honest GPU, its product smaller than the audit's", true, time.Second, func(time.Duration) float64 { return gpuShape }, 0, 8},
		{"a GPU shared from the first probe to the last", true, time.Second, func(time.Duration) float64 { return gpuShape * 0.45 }, leases * 999 / 1000, leases},
		{"a GPU shared so, nothing proven", false, time.Second, func(time.Duration) float64 { return gpuShape * 0.45 }, 0, 8},
		{"shared by two from the beginning", true, 200 * time.Millisecond, func(time.Duration) float64 { return 0.45 }, leases * 999 / 1000, leases},
		{"shared by two from noon on", false, 200 * time.Millisecond, func(at time.Duration) float64 {
			if at > 12*time.Hour {
				return 0.45
			}
			return 1
		}, leases * 999 / 1000, leases},
		{"shared by two every other hour", false, 200 * time.Millisecond, func(at time.Duration) float64 {
			if int(at/time.Hour)%2 == 1 {
				return 0.45
			}
			return 1
		}, leases * 999 / 1000, leases},
	} {
		seen, again, after, probes := lives(leases, 7, c.proven, c.ready, c.speed)
		t.Logf("%s: seen in %d, twice in %d, of %d leases of a day, after %v in the mean; %.0f probes in each", c.what, seen, again, leases, after.Round(time.Minute), float64(probes)/leases)
		if seen < c.min || seen > c.most {
			t.Errorf("%s: seen in %d of %d leases", c.what, seen, leases)
		}
	}
}
