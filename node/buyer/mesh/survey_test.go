package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

func provider(n byte) sign.Key { return sign.NewPrivate([32]byte{n, 9}).Key() }

// A survey of a cluster whose paths are known: RTTs in microseconds between providers 1 to n, 0 where none was measured.
func knownPaths(wanted cluster.Class, rtts map[[2]byte]uint32, mbit map[[2]byte]uint32) *Survey {
	s := NewSurvey(nil, "", wanted)
	for k, rtt := range rtts {
		r := &nodepb.LinkResult{RttMicros: rtt, Mbit: mbit[k]}
		if rtt == 0 {
			r.Error = "dialling it failed"
		}
		s.add(provider(k[0]), provider(k[1]), r)
	}
	return s
}

func finalistsOf(n byte, active ...byte) []Finalist {
	var out []Finalist
	for i := range n {
		m := Finalist{Rank: uint32(i), Provider: provider(i + 1), Hold: market.HoldID{i + 1}}
		if slices.Contains(active, i+1) {
			m.Hold = market.HoldID{}
		}
		out = append(out, m)
	}
	return out
}

// The fewest are given up, rather high ranks than low ones, and never who has a lease already.
func TestUnfit(t *testing.T) {
	t.Parallel()
	near := map[[2]byte]uint32{{1, 2}: 300, {1, 3}: 300, {1, 4}: 300, {2, 3}: 300, {2, 4}: 300, {3, 4}: 300}
	with := func(change map[[2]byte]uint32) map[[2]byte]uint32 {
		out := map[[2]byte]uint32{}
		for k, v := range near {
			out[k] = v
		}
		for k, v := range change {
			out[k] = v
		}
		return out
	}
	for name, c := range map[string]struct {
		wanted cluster.Class
		rtts   map[[2]byte]uint32
		mbit   map[[2]byte]uint32
		active []byte
		want   []uint32
		says   string
	}{
		"all near":         {cluster.LAN, near, nil, nil, nil, ""},
		"one far":          {cluster.Metro, with(map[[2]byte]uint32{{1, 2}: 41_000, {2, 3}: 41_000, {2, 4}: 41_000}), nil, nil, []uint32{1}, "41ms apart, a metro is under 15ms; and to 2 more"},
		"far is near":      {cluster.WAN, with(map[[2]byte]uint32{{1, 2}: 41_000, {2, 3}: 41_000, {2, 4}: 41_000}), nil, nil, nil, ""},
		"two ends":         {cluster.Metro, with(map[[2]byte]uint32{{1, 2}: 41_000}), nil, nil, []uint32{1}, "rank 0 at"},
		"slow":             {cluster.LAN, near, map[[2]byte]uint32{{3, 4}: 400, {1, 2}: 9000}, nil, []uint32{3}, "carried 400 Mbit/s"},
		"unreached":        {cluster.WAN, with(map[[2]byte]uint32{{1, 3}: 0, {2, 3}: 0, {3, 4}: 0}), nil, nil, []uint32{2}, "dialling it failed"},
		"unmeasured":       {cluster.WAN, map[[2]byte]uint32{{1, 2}: 300, {1, 3}: 300, {2, 3}: 300}, nil, nil, []uint32{3}, "not measured in time"},
		"far from a lease": {cluster.Metro, with(map[[2]byte]uint32{{1, 4}: 41_000}), nil, []byte{2, 3, 4}, []uint32{0}, "rank 3 at"},
		"leases stay":      {cluster.LAN, with(map[[2]byte]uint32{{2, 3}: 41_000}), nil, []byte{2, 3, 4}, nil, ""},
		"two islands":      {cluster.Metro, with(map[[2]byte]uint32{{1, 3}: 41_000, {1, 4}: 41_000, {2, 3}: 41_000, {2, 4}: 41_000}), nil, nil, []uint32{3, 2}, "41ms apart"},
	} {
		f := knownPaths(c.wanted, c.rtts, c.mbit)
		var got []uint32
		text := ""
		for _, u := range f.unfit(finalistsOf(4, c.active...)) {
			got, text = append(got, u.Rank), text+u.Reason.Detail
			if u.Reason.Reason != market.ReasonDistance || u.Hold != (market.HoldID{byte(u.Rank) + 1}) {
				t.Errorf("%s: %+v", name, u)
			}
		}
		if !slices.Equal(got, c.want) || !strings.Contains(text, c.says) {
			t.Errorf("%s: %v, want %v: %s", name, got, c.want, text)
		}
	}
}

// Relays are waited for to be left, and who was not reached to be, where nothing else is wrong.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wanted cluster.Class
		rtts   map[[2]byte]uint32
		relays [][2]byte
		want   bool
	}{
		"all direct":         {cluster.Metro, map[[2]byte]uint32{{1, 2}: 300, {1, 3}: 300}, nil, false},
		"one over a relay":   {cluster.Metro, map[[2]byte]uint32{{1, 2}: 300, {1, 3}: 300}, [][2]byte{{1, 3}}, true},
		"a long way round":   {cluster.Metro, map[[2]byte]uint32{{1, 2}: 300, {1, 3}: 90_000}, [][2]byte{{1, 3}}, true},
		"another is far":     {cluster.Metro, map[[2]byte]uint32{{1, 2}: 41_000, {1, 3}: 300}, [][2]byte{{1, 3}}, false},
		"one not reached":    {cluster.WAN, map[[2]byte]uint32{{1, 2}: 300, {1, 3}: 0}, nil, true},
		"and one is far":     {cluster.Metro, map[[2]byte]uint32{{1, 2}: 41_000, {1, 3}: 0}, nil, false},
		"relays are allowed": {cluster.WAN, map[[2]byte]uint32{{1, 2}: 300}, [][2]byte{{1, 2}}, false},
	} {
		f := knownPaths(c.wanted, c.rtts, nil)
		for _, k := range c.relays {
			f.add(provider(k[0]), provider(k[1]), &nodepb.LinkResult{RttMicros: c.rtts[k], Relayed: true})
		}
		if got := f.Unsettled(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// everywhere is a provider that holds units for whoever asks.
type everywhere struct{}

func (everywhere) Measures(market.HoldID, sign.Key) error { return nil }
func (everywhere) Serves(sign.Key) bool                   { return true }

// surveyOn is a survey by the first host, and the providers on the others.
func surveyOn(t testing.TB, hosts []*p2p.Host, wanted cluster.Class) (*Survey, []Finalist) {
	var all []Finalist
	for i, h := range hosts[1:] {
		service := link.New(h, p2ptest.Network, everywhere{}, p2ptest.Quiet())
		t.Cleanup(service.Close)
		k, err := p2p.KeyFromPeerID(h.ID())
		if err != nil {
			t.Fatal(err)
		}
		f := Finalist{Rank: uint32(i), Provider: sign.Key(k), Hold: market.HoldID{byte(i + 1)}}
		for _, addr := range h.Addrs() {
			f.Addrs = append(f.Addrs, addr.String())
		}
		all = append(all, f)
	}
	return NewSurvey(hosts[0], p2ptest.Network, wanted), all
}

// BenchmarkSurvey measures eight finalists on this machine's loopback, dialling included the first time.
func BenchmarkSurvey(b *testing.B) {
	for _, wanted := range []cluster.Class{cluster.LAN, cluster.Metro, cluster.WAN} {
		b.Run(string(wanted), func(b *testing.B) {
			hosts := p2ptest.Loopback(b, 9)
			_, all := surveyOn(b, hosts, wanted)
			var last *Survey
			for b.Loop() {
				last = NewSurvey(hosts[0], p2ptest.Network, wanted)
				last.Measure(context.Background(), all)
			}
			b.Log(record.SpanOf(last.Between(all)))
		})
	}
}

// Finalists are measured in so few round trips that their holds last, and the wanted class decides.
func TestSurvey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted cluster.Class
		rtt    time.Duration
		n      int
		unfit  int
		most   time.Duration
	}{
		{cluster.LAN, 200 * time.Microsecond, 2, 0, time.Second}, // the simulated links carry 1,000 Mbit/s
		{cluster.WAN, 80 * time.Millisecond, 4, 0, MeasureTimeout},
		{cluster.Metro, 80 * time.Millisecond, 8, 7, 2 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s-%d-%v", c.wanted, c.n, c.rtt), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, all := surveyOn(t, p2ptest.NewNet(t, c.n+1, c.rtt).Hosts, c.wanted)
				began := time.Now() // of the bubble: how long the network takes, not this machine
				unfit := s.Measure(t.Context(), all)
				if took := time.Since(began); len(unfit) != c.unfit || took > c.most {
					t.Errorf("%d unfit in %v: %+v", len(unfit), took, unfit)
				}
				paths := s.Between(all)
				if len(paths) != c.n*(c.n-1)/2 {
					t.Fatalf("%d paths", len(paths))
				}
				for _, p := range paths {
					if p.RTT() < c.rtt || p.RTT() > c.rtt+5*time.Millisecond || p.Relayed {
						t.Errorf("%+v", p)
					}
				}
				if far := s.Longest(); far < c.rtt || far > c.rtt+5*time.Millisecond {
					t.Errorf("the longest round trip is %v", far)
				}
				// Measured again, for a seat that was replaced by nobody new, nothing is sent.
				began = time.Now()
				if s.Measure(t.Context(), all[:2]); time.Since(began) != 0 {
					t.Error("known paths are measured again:", time.Since(began))
				}
			})
		})
	}
}
