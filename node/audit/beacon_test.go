package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/drand"
	"github.com/starling-network/starling/verify/drand/drandtest"
)

// relay serves what tell says of a round: a status and a body.
func relay(t *testing.T, of market.Drand, tell func(round string) (int, string)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		round, ours := strings.CutPrefix(r.URL.Path, "/"+of.Chain.String()+"/public/")
		if !ours {
			http.NotFound(w, r)
			return
		}
		status, body := tell(round)
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Rounds that quicknet published are got from a relay over HTTP and checked; what a relay says falsely another one's answer replaces.
func TestRelays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../verify/drand/testdata/quicknet.json")
	if err != nil {
		t.Fatal(err)
	}
	var rounds []json.RawMessage
	if err := json.Unmarshal(text, &rounds); err != nil {
		t.Fatal(err)
	}
	published := map[string]string{}
	for _, r := range rounds {
		var is struct{ Round uint64 }
		if err := json.Unmarshal(r, &is); err != nil {
			t.Fatal(err)
		}
		published[fmt.Sprint(is.Round)] = string(r)
	}
	quick := market.Quicknet()
	honest := relay(t, quick, func(round string) (int, string) {
		if b, known := published[round]; known {
			return 200, b
		}
		return 404, "no such round"
	})
	net, err := drand.New(quick)
	if err != nil {
		t.Fatal(err)
	}
	check := func(round uint64) func(drand.Signature) error {
		return func(s drand.Signature) error { _, err := net.Verify(round, s); return err }
	}
	ask := func(round uint64, urls ...string) error {
		r, err := NewRelays(quick, urls)
		if err != nil {
			return err
		}
		_, err = r.Round(t.Context(), round, check(round))
		return err
	}
	for _, round := range []uint64{1, 123, 1000} {
		if err := ask(round, honest); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	if err := ask(2, honest); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("a round that is not there: %v", err)
	}
	for name, tell := range map[string]func(string) (int, string){
		"another round's signature": func(string) (int, string) {
			return 200, strings.Replace(published["1"], `"round": 1`, `"round": 1000`, 1)
		},
		"another round":            func(string) (int, string) { return 200, published["1"] },
		"no JSON":                  func(string) (int, string) { return 200, "1466a6cd" },
		"too much":                 func(string) (int, string) { return 200, strings.Repeat(" ", maxRound) + published["1000"] },
		"a short signature":        func(string) (int, string) { return 200, `{"round":1000,"signature":"b446"}` },
		"a signature of no digits": func(string) (int, string) { return 200, `{"round":1000,"signature":"` + strings.Repeat("x", 96) + `"}` },
		"the point at infinity": func(string) (int, string) {
			return 200, `{"round":1000,"signature":"c0` + strings.Repeat("0", 94) + `"}`
		},
		"an error":                   func(string) (int, string) { return 500, "" },
		"a redirection to somewhere": func(string) (int, string) { return 302, "" },
	} {
		bad := relay(t, quick, tell)
		if err := ask(1000, bad); !errors.Is(err, chain.ErrDown) {
			t.Errorf("%s: %v", name, err)
		}
		if err := ask(1000, bad, honest); err != nil {
			t.Errorf("%s, and then the truth: %v", name, err)
		}
	}
	for _, u := range []string{"", "api.drand.sh", "ftp://api.drand.sh", "https://", "::"} {
		if _, err := NewRelays(quick, []string{u}); err == nil {
			t.Errorf("%q is a relay", u)
		}
	}
	if _, err := NewRelays(quick, nil); err == nil {
		t.Error("nobody to ask")
	}
	if _, err := NewRelays(quick, DrandRelays()); err != nil {
		t.Error(err)
	}
}

func FuzzRound(f *testing.F) {
	f.Add([]byte(`{"round":1,"randomness":"14","signature":"`+strings.Repeat("0b", 48)+`"}`), uint64(1))
	f.Fuzz(func(_ *testing.T, b []byte, round uint64) { _, _ = parseRound(b, round) })
}

// publics are the sights of peers on one network, whose clocks differ.
type publics struct {
	genesis market.Genesis
	roster  audit.Roster
	now     time.Time
	start   time.Time // of slot 0
	round   func(context.Context, uint64, func(drand.Signature) error) (drand.Signature, error)
}

func (p *publics) sight(t *testing.T, off time.Duration, change ...func(*PublicConfig)) *Public {
	t.Helper()
	c := PublicConfig{
		Genesis: p.genesis, Round: p.round, Now: func() time.Time { return p.now.Add(off) },
		Slot: func() (market.Slot, error) {
			return market.Slot(p.now.Add(off).Sub(p.start) / (400 * time.Millisecond)), nil
		},
		Roster: func(context.Context, audit.Window) (audit.Roster, error) { return p.roster, nil },
	}
	for _, fn := range change {
		fn(&c)
	}
	s, err := NewPublic(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// networks are a world of n members on a network whose beacons are by somebody.
func network(t *testing.T, by market.Beacon, n int) (*world, *publics) {
	t.Helper()
	w := newWorld(n, time.Now)
	c := audittest.New(n)
	p := &publics{genesis: c.Genesis(by), roster: w.roster, start: time.Unix(1_000_000, 0)}
	p.genesis.AuditSlots = windowSlots
	p.now = p.start.Add(50*windowSlots*400*time.Millisecond + 2*time.Second)
	if by == market.ByDrand {
		net, err := drandtest.New("node", 10_000, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.genesis.Drand = net.Drand
		p.round = func(_ context.Context, round uint64, check func(drand.Signature) error) (drand.Signature, error) {
			sig := net.Sign(round)
			return sig, check(sig)
		}
	}
	if err := p.genesis.Validate(); err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, m := range w.members {
		m.cfg.Sight = p.sight(t, time.Duration(i%5-2)*500*time.Millisecond)
		i++
	}
	return w, p
}

// Networks without blocks audit too: by drand, and by what their peers reveal. Everything in their records is checked offline.
func TestAuditWithoutBlocks(t *testing.T) {
	t.Parallel()
	for _, by := range []market.Beacon{market.ByDrand, market.CommitReveal} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			w, p := network(t, by, 12)
			prover := w.prover()
			prover.cfg.Sight = p.sight(t, 0)
			prover.cfg.Wait = func(_ context.Context, slot market.Slot) error {
				p.now = p.start.Add(time.Duration(slot) * 400 * time.Millisecond)
				return nil
			}
			results, err := prover.Audit(t.Context(), units(2))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				read, err := audit.UnmarshalRecord(r.Record.Marshal())
				if err != nil {
					t.Fatal(err)
				}
				beacons, err := audit.NewBeacons(p.genesis)
				if err == nil {
					err = errors.Join(read.CheckBeacon(beacons), read.CheckMembers(w.roster))
				}
				if err != nil {
					t.Error(err)
				}
				// A light client asks no relay and has no blocks: the record brings what proves its beacon.
				light := p.sight(t, time.Second, func(c *PublicConfig) { c.Round, c.Checks = nil, true })
				if err := checkPublic(t.Context(), light, read, "cpu"); err != nil {
					t.Errorf("a light client says: %v", err)
				}
				if _, err := light.Beacon(t.Context(), read.Answer.Window); err == nil {
					t.Error("a light client draws a beacon")
				}
				// And so does a certificate, for who counts rewards.
				seen, err := light.Seen(t.Context(), read.Answer.Window)
				if err == nil {
					_, err = read.Certificate().Check(light.Rules(), seen)
				}
				if err != nil {
					t.Errorf("its certificate: %v", err)
				}
				if _, err := light.Seen(t.Context(), read.Answer.Window+1); !errors.Is(err, chain.ErrNotFound) {
					t.Errorf("a window to come: %v", err)
				}
			}
		})
	}
}

// A round that is not the window's, or not there yet, is refused.
func TestDrandSight(t *testing.T) {
	t.Parallel()
	_, p := network(t, market.ByDrand, 3)
	s := p.sight(t, 0)
	ctx := t.Context()
	window, _, err := s.Window()
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Beacon(ctx, window)
	if err != nil {
		t.Fatal(err)
	}
	provider := audittest.Key("provider").Key()
	other := p.sight(t, 700*time.Millisecond)
	if era, err := other.Check(ctx, window, provider, d.Beacon, d.Proof); err != nil || era != d.Era {
		t.Errorf("another peer: %v", err)
	}
	beacons, err := audit.NewBeacons(p.genesis)
	if err != nil {
		t.Fatal(err)
	}
	at := func(round uint64) Drawn {
		var sigs [2]drand.Signature
		for i, r := range []uint64{round, beacons.Era(round)} {
			sigs[i], _ = p.round(ctx, r, func(drand.Signature) error { return nil })
		}
		x := Drawn{}
		x.Beacon, x.Era, x.Proof, err = beacons.Rounds(round, sigs[0], sigs[1])
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, off := range []int64{-30, 30} {
		x := at(uint64(int64(d.Round) + off*2))
		if _, err := other.Check(ctx, window, provider, x.Beacon, x.Proof); err == nil {
			t.Errorf("a round %d away is the window's", off*2)
		}
	}
	if _, err := s.Beacon(ctx, window+1); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("the beacon of a window to come: %v", err)
	}
	bad := slices.Clone(d.Proof)
	bad[20] ^= 1
	if _, err := other.Check(ctx, window, provider, d.Beacon, bad); err == nil {
		t.Error("a false signature")
	}
	if _, err := NewPublic(PublicConfig{Genesis: p.genesis}); err == nil {
		t.Error("drand without a relay")
	}
	p.genesis.AuditBeacon, p.genesis.Drand = market.SlotHash, market.Drand{}
	if _, err := NewPublic(PublicConfig{Genesis: p.genesis}); err == nil {
		t.Error("slot hashes without blocks")
	}
}

// A member reveals for one list; a provider that asks for another, or leaves somebody out, has no beacon.
func TestReveal(t *testing.T) {
	t.Parallel()
	w, p := network(t, market.CommitReveal, 5)
	ctx, provider, window := t.Context(), w.provider.Key(), audit.Window(50)
	prover := w.prover()
	prover.cfg.Sight = p.sight(t, 0)
	drawn, size := w.roster.DrawRevealers(window, provider)
	list, err := prover.commitments(ctx, window, drawn[:size], audit.Certify(len(drawn)))
	if err != nil || len(list) != 5 {
		t.Fatalf("%d commitments, %v", len(list), err)
	}
	again, err := prover.commitments(ctx, window, drawn[:size], audit.Certify(len(drawn)))
	if err != nil || !slices.Equal(list, again) {
		t.Fatalf("a member commits to something else when it is asked again: %v", err)
	}
	member := w.members[list[0].Member]
	ask := func(window audit.Window, list []audit.Commitment, change func(r *nodepb.AuditRequest_Reveal)) error {
		req := firstStep(window)
		s := &nodepb.AuditRequest_Reveal{}
		for _, c := range list {
			s.List = append(s.List, &nodepb.AuditRequest_Commitment{Member: c.Member[:], Hash: c.Hash[:]})
		}
		if change != nil {
			change(s)
		}
		req.Step = &nodepb.AuditRequest_Reveal_{Reveal: s}
		_, err := member.Answer(ctx, provider, req)
		return err
	}
	lie := slices.Clone(list)
	lie[0].Hash[0]++
	stranger := slices.Clone(list)
	stranger[4].Member = sign.Key{255, 255}
	for name, err := range map[string]error{
		"another window":            ask(window+1, list, nil),
		"too few":                   ask(window, list[:3], nil),
		"not in order":              ask(window, []audit.Commitment{list[1], list[0], list[2], list[3]}, nil),
		"one twice":                 ask(window, []audit.Commitment{list[0], list[0], list[1], list[2]}, nil),
		"without this one":          ask(window, list[1:], nil),
		"another commitment":        ask(window, lie, nil),
		"a stranger":                ask(window, stranger, nil),
		"a member of no length":     ask(window, list, func(r *nodepb.AuditRequest_Reveal) { r.List[1].Member = nil }),
		"a commitment of no length": ask(window, list, func(r *nodepb.AuditRequest_Reveal) { r.List[1].Hash = make([]byte, 31) }),
		"nothing":                   ask(window, nil, nil),
	} {
		if err == nil {
			t.Errorf("%s: revealed", name)
		}
	}
	if err := ask(window, list, nil); err != nil {
		t.Fatal(err)
	}
	if err := ask(window, list, nil); err != nil {
		t.Errorf("the same list again: %v", err)
	}
	if err := ask(window, list[:4], nil); err == nil {
		t.Error("revealed for two lists")
	}
	// Somebody who committed and does not reveal voids the window.
	w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		if req.GetReveal() != nil && m == list[2].Member {
			return nil, errors.New("gone")
		}
		return nil, nil
	}
	if _, err := prover.draw(ctx, window); !errors.Is(err, ErrMember) {
		t.Errorf("one does not reveal: %v", err)
	}
	w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		if req.GetReveal() != nil && m == list[2].Member {
			return &nodepb.AuditReply{Nonce: make([]byte, 16), Signature: make([]byte, 64)}, nil
		}
		return nil, nil
	}
	if _, err := prover.draw(ctx, window); !errors.Is(err, ErrMember) {
		t.Errorf("one reveals something else: %v", err)
	}
	w.before = func(sign.Key, *nodepb.AuditRequest) (*nodepb.AuditReply, error) { return nil, errors.New("gone") }
	if _, err := prover.draw(ctx, window); !errors.Is(err, ErrCommittee) {
		t.Errorf("nobody commits: %v", err)
	}
	// Where the chain gives beacons nobody makes them.
	plain := newWorld(5, time.Now)
	for _, m := range plain.members {
		req := firstStep(50)
		req.Step = &nodepb.AuditRequest_Commit_{Commit: &nodepb.AuditRequest_Commit{}}
		if _, err := m.Answer(ctx, provider, req); err == nil {
			t.Error("a commitment on a network of slot hashes")
		}
	}
}
