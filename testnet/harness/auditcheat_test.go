package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	publicfacts "github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/audit"
)

// good is the share of its class's time that an honest card takes.
const good = 0.7

// cheats is a network whose units are as small as audits allow, each with a card of its own where the test gives no other.
func cheats(t *testing.T, o Options, units map[int]uint32) *Net {
	o.AuditSlots, o.Programs, o.Log = auditSlots, programs, Logger()
	if o.Hardware == nil {
		o.Hardware = map[int]Hardware{}
	}
	for i := range o.Providers {
		if o.Hardware[i] == nil {
			o.Hardware[i] = newCard(good).open
		}
	}
	o.Configure = func(i int, c *config.Config) {
		c.Provide.Units = max(units[i], 1)
		c.Provide.Unit.MilliCPU, c.Provide.Unit.MemoryMiB = 100, 64
	}
	return New(t, o)
}

// lies are the proofs that a peer keeps.
func lies(t *testing.T, p *Peer) []rules.Lie {
	t.Helper()
	var all []rules.Lie
	for _, e := range p.Proofs().Proofs(proof.KindFraud) {
		kept, err := p.Proofs().Proof(context.Background(), sign.Key{}, e.Hash)
		if err != nil {
			t.Fatal(err)
		}
		c, err := kept.Open()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.(proof.Fraud).Lie)
	}
	return all
}

// knows is how many facts of a kind a peer has about another.
func knows(t *testing.T, p *Peer, of sign.Key, what string) (n int) {
	t.Helper()
	id, err := p2p.PeerIDFromKey(of)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Status().Reputation(id.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Provider.Lines {
		if l.What == what {
			n += l.Count
		}
	}
	return n
}

// A peer that says that it has eight units and has one card gets a record for one of them at most, however it shares the card out;
// one whose card is slower than its class gets none, and those who judged it know it. Nobody is called a liar for either, and the
// honest beside them pass.
func TestEightUnitsOneCardAndOneThatIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const eight, late, windows = 0, 1, 3
		n := cheats(t, Options{Providers: 5, Hardware: map[int]Hardware{eight: newCard(good).open, late: newCard(7).open}}, map[int]uint32{eight: 8})
		for i := range 5 {
			passed, failed := map[rules.Window]int{}, map[rules.Window]int{}
			for _, a := range audited(t, n.Provider(i), windows) {
				switch {
				case a.Failed == "" && !a.Record.IsZero():
					passed[a.Window]++
				case a.Failed != "" && a.Record.IsZero() && a.Rates == rules.Rates{}:
					failed[a.Window]++
				default:
					t.Errorf("%s: %+v", name(i), a)
				}
				if i == late && !strings.Contains(a.Failed, "late") && !strings.Contains(a.Failed, "allowed") {
					t.Errorf("the late one is told %q", a.Failed)
				}
			}
			all := slices.Sorted(maps.Keys(merged(passed, failed)))
			for k, w := range all {
				switch {
				case i == eight && (passed[w] > 1 || failed[w] < 7):
					t.Errorf("eight units on one card: %d pass in window %d, %d fail", passed[w], w, failed[w])
				case i == late && passed[w] > 0:
					t.Errorf("the late one passes in window %d", w)
				case i > late && k > 0 && (passed[w] != 1 || failed[w] > 0): // in the first, peers get to know each other
					t.Errorf("%s, which is honest: %d pass in window %d, %d fail", name(i), passed[w], w, failed[w])
				}
			}
		}
		time.Sleep(5 * time.Second) // what the others signed of the last window is on its way
		unit := n.Provider(late).Node.Audits().Service().Shelf().State().All()[0].Unit
		for i := 2; i < 5; i++ {
			// Three of the four that judge signed that it is late, so that it is no one peer's word.
			if failed := n.Provider(i).Node.Facts().Refused.Failed(n.Provider(late).Key.Key(), unit); len(failed) == 0 {
				t.Errorf("%s did not hear that the late one failed", name(i))
			}
			if got := knows(t, n.Provider(i), n.Provider(late).Key.Key(), "audit late"); got == 0 {
				t.Errorf("%s judged the late one and knows nothing of it", name(i))
			}
			if got := knows(t, n.Provider(i), n.Provider(2+(i-1)%3).Key.Key(), "audit passed"); got == 0 {
				t.Errorf("%s judged an honest one and knows nothing of it", name(i))
			}
			if l := lies(t, n.Provider(i)); len(l) > 0 {
				t.Errorf("%s calls %s a liar: %s", name(i), l[0].Liar().Short(), l[0].Kind)
			}
		}
	})
}

func merged(ms ...map[rules.Window]int) map[rules.Window]bool {
	out := map[rules.Window]bool{}
	for _, m := range ms {
		for w := range m {
			out[w] = true
		}
	}
	return out
}

// outsider is a stranger that has a unit audited by the peers of the network, with the steps changed on their way.
type outsider struct {
	*adversary
	sight *publicfacts.Public
	unit  audit.Unit
	began rules.Window

	mu     sync.Mutex
	seen   []*nodepb.AuditRequest // all that was asked
	change func(req *nodepb.AuditRequest)
	// instead answers for a member; nil, nil: the member is asked.
	instead func(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error)
	errs    []error // what members answered
}

func newOutsider(t *testing.T, n *Net, i int) *outsider {
	t.Helper()
	o := &outsider{adversary: n.adversary(t, i)}
	o.sight = newSight(t, n)
	claim := audit.Claim{ID: market.UnitID(sign.Sum([]byte("outsider"))), Class: "cpu", Resources: market.Resources{MilliCPU: 100, MemoryMiB: 64}}
	asked, err := audit.ByPlan(claim)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newCard(good).open(context.Background(), market.Unit{Class: claim.Class, Resources: claim.Resources}, asked)
	if err != nil {
		t.Fatal(err)
	}
	o.unit = audit.Unit{Claim: claim, Device: d}
	return o
}

// newSight is what a stranger sees of the network's public facts.
func newSight(t *testing.T, n *Net) *publicfacts.Public {
	t.Helper()
	return sightOf(t, n, n.judges())
}

// sightOf is the same with another roster.
func sightOf(t *testing.T, n *Net, roster rules.Roster) *publicfacts.Public {
	t.Helper()
	ledger := n.Chain.Ledger(n.Provider(0).Key.Key())
	sight, err := publicfacts.NewPublic(publicfacts.PublicConfig{
		Genesis: n.Genesis, Blocks: ledger,
		Slot:   func() (market.Slot, error) { return ledger.Slot(context.Background()) },
		Roster: func(context.Context, rules.Window) (rules.Roster, error) { return roster, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return sight
}

// next waits for the beginning of a window that is younger than any before, and for its beacon.
func (o *outsider) next() rules.Window {
	for ; ; time.Sleep(time.Second) {
		w, slot, err := o.sight.Window()
		if err != nil || w <= o.began || slot-w.First(auditSlots) > auditSlots/2 {
			continue
		}
		if _, err = o.sight.Beacon(context.Background(), w); errors.Is(err, chain.ErrNotFound) {
			continue
		}
		if err != nil {
			o.t.Fatal(err)
		}
		o.began = w
		return w
	}
}

// audit has the unit audited now, by a prover that remembers nothing.
func (o *outsider) audit() (audit.Result, error) {
	p := audit.NewProver(audit.ProverConfig{
		Domain: o.domain, Key: o.key, WindowSlots: auditSlots, Sight: o.sight, Plan: audit.ByPlan, Log: p2ptest.Quiet(), Call: o.call,
		Wait: func(ctx context.Context, slot market.Slot) error {
			for {
				if _, now, err := o.sight.Window(); err != nil || now >= slot {
					return err
				}
				time.Sleep(slotMillis * time.Millisecond)
			}
		},
	})
	r, err := p.Audit(context.Background(), []audit.Unit{o.unit})
	if err != nil {
		return audit.Result{}, err
	}
	return r[0], r[0].Err
}

func (o *outsider) call(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
	id, err := p2p.PeerIDFromKey(m)
	if err != nil {
		return nil, err
	}
	req = proto.Clone(req).(*nodepb.AuditRequest)
	o.mu.Lock()
	if o.change != nil {
		o.change(req)
	}
	o.seen = append(o.seen, req)
	o.mu.Unlock()
	var r *nodepb.AuditReply
	if o.instead != nil {
		r, err = o.instead(ctx, m, req)
	}
	if r == nil && err == nil {
		r, err = protocol.Audit.Call(ctx, o.host, o.tag, id, req)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
	return r, err
}

// refused reports whether a member refused something with a code, and forgets what they answered.
func (o *outsider) refused(code string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := o.errs
	o.errs = nil
	return slices.ContainsFunc(errs, func(err error) bool {
		var r *stream.Refused
		return errors.As(err, &r) && r.Code == code
	})
}

// An answer that was right once is refused in every other window, and a peer that forgot that it answered, as one whose journal was
// put back, cannot answer a window twice: members count. Neither is a lie.
func TestReplayedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := cheats(t, Options{Providers: 4, Strangers: 1}, nil)
		audited(t, n.Provider(3), 1) // by now they know each other
		o := newOutsider(t, n, 0)
		o.next()
		first, err := o.audit()
		if err != nil {
			t.Fatalf("an honest answer: %v", err)
		}
		if err := first.Record.Check(n.Genesis.Domain()); err != nil {
			t.Fatal(err)
		}
		old := o.seen
		if _, err := o.audit(); !errors.Is(err, audit.ErrCommittee) || !o.refused(audit.CodeAttempt) {
			t.Errorf("once more in one window, with nothing remembered: %v", err)
		}

		// Everything that was said, said again in another window.
		o.next()
		for _, req := range old {
			if req.GetBegin() != nil {
				_, _ = o.call(context.Background(), n.Provider(1).Key.Key(), req)
				break
			}
		}
		if !o.refused(audit.CodeWindow) {
			t.Error("what was said in another window is taken")
		}
		// A new audit, answered with the old root and answer.
		o.change = func(req *nodepb.AuditRequest) {
			for _, was := range old {
				switch {
				case req.GetRoot() != nil && was.GetRoot() != nil:
					req.GetRoot().Root = was.GetRoot().Root
				case req.GetArrived() != nil && was.GetArrived() != nil:
					req.GetArrived().Answer, req.GetArrived().Signature = was.GetArrived().Answer, was.GetArrived().Signature
				}
			}
		}
		if r, err := o.audit(); err == nil || !o.refused(audit.CodeAnswer) {
			t.Errorf("the answer of another window passes: %v", r.Record.Hash())
		}
		o.change = nil
		// None of it is held against it later.
		o.next()
		if _, err := o.audit(); err != nil {
			t.Errorf("an honest answer after replays: %v", err)
		}
		for i := range 4 {
			if l := lies(t, n.Provider(i)); len(l) > 0 {
				t.Errorf("%s calls %s a liar: %s", name(i), l[0].Liar().Short(), l[0].Kind)
			}
		}
	})
}

// A peer whose journal is put back from a backup leaves out the window that it finds itself in, passes the next, and nobody can hold
// anything against it.
func TestRestoredBackupAnswersNoWindowTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := cheats(t, Options{Providers: 4}, nil)
		p := n.Provider(2)
		audited(t, p, 1)
		backup := p.Journal.Snapshot()
		last := audited(t, p, 2)[0]
		p.Kill()
		p.Journal = backup
		p.Restart()
		p.Sync(context.Background())
		for _, a := range must(p.Audits().Audits()) {
			if a.Window == last.Window {
				t.Fatal("the backup knows of the last window")
			}
		}
		if _, err := p.Audits().Audit(context.Background()); !errors.Is(err, audit.ErrTooEarly) {
			t.Errorf("the window that it was put back in: %v", err)
		}
		past := audited(t, p, 2)
		if a := past[0]; a.Window <= last.Window || a.Failed != "" {
			t.Errorf("after the backup: %+v", a)
		}
		for _, a := range past[1:] {
			if a.Window == last.Window {
				t.Errorf("window %d was answered twice", a.Window)
			}
		}
		for i := range 4 {
			if l := lies(t, n.Provider(i)); len(l) > 0 {
				t.Errorf("%s calls %s a liar: %s", name(i), l[0].Liar().Short(), l[0].Kind)
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// unheard is a member's results that nobody receives.
type unheard struct{}

func (unheard) Judged(sign.Key, rules.Verdict)             {}
func (unheard) KeepFraud(context.Context, rules.Lie) error { return nil }
func (unheard) Refuse(rules.Refusal)                       {}

// lazy answers every step as it must and passes whatever it is shown, unseen.
type lazy struct {
	key    sign.Private
	domain sign.Domain
	sight  *publicfacts.Public
	member *audit.Member // for the steps before

	mu     sync.Mutex
	nonces map[string][]rules.Nonce
	passed map[sign.Key]int
}

// makeLazy has a running peer judge so.
func makeLazy(t *testing.T, n *Net, p *Peer, sight *publicfacts.Public) *lazy {
	l := &lazy{
		key: p.Key, domain: n.Genesis.Domain(), sight: sight,
		nonces: map[string][]rules.Nonce{}, passed: map[sign.Key]int{},
	}
	l.member = audit.NewMember(audit.MemberConfig{
		Domain: l.domain, Key: p.Key, WindowSlots: n.Genesis.AuditSlots, Sight: sight, Plan: audit.ByPlan, Now: time.Now, Log: p2ptest.Quiet(),
		Results: unheard{},
	})
	h := protocol.Audit.Handle(n.net.Hosts[p.i], n.Genesis.Tag(), func(ctx context.Context, from peer.ID, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, err
		}
		return l.answer(ctx, sign.Key(k), req)
	}, stream.Limits{PerPeer: audit.MaxUnits})
	t.Cleanup(func() { h.Close() })
	return l
}

func (l *lazy) answer(ctx context.Context, from sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
	at := fmt.Sprintf("%s %d %d", from, req.Window, req.Attempt)
	if s := req.GetShow(); s != nil {
		shown, err := rules.UnmarshalShown(s.Shown)
		if err != nil {
			return nil, err
		}
		_, slot, err := l.sight.Window()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		v := rules.Verdict{Outcome: rules.Pass, Member: l.key.Key(), Answer: shown.Answer, Openings: shown.Openings, Slot: slot, Product: 600_000, Walk: 300_000}
		copy(v.Nonces[:], l.nonces[at])
		sig, err := v.Sign(l.domain, l.key)
		b := v.Marshal()
		l.passed[from]++
		return &nodepb.AuditReply{Verdict: b[:], Signature: sig[:]}, err
	}
	r, err := l.member.Answer(ctx, from, req)
	if err == nil && len(r.Nonce) == rules.NonceSize {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.nonces[at] = append(l.nonces[at], rules.Nonce(r.Nonce))
	}
	return r, err
}

// A member that passes what it did not look at is caught by a canary: it cannot tell it from any other audit, and its verdict is a
// proof that stands for itself. Those who looked are blamed for nothing, and honest units pass beside it.
func TestLazyVerifierIsCaughtByACanary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const asleep, planter = 3, 1
		n := cheats(t, Options{Providers: 5, Masks: 40}, nil)
		l := makeLazy(t, n, n.Provider(asleep), newSight(t, n))
		for i := range 3 {
			if a := audited(t, n.Provider(i), 1)[0]; a.Failed != "" {
				t.Errorf("%s, which is honest: %s", name(i), a.Failed)
			}
		}
		if l.passed[n.Provider(0).Key.Key()] == 0 {
			t.Fatal("the lazy one judged nobody")
		}
		c, err := n.Provider(planter).Audits().Service().Plant(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Lies) != 1 || c.Lies[0].Liar() != n.Provider(asleep).Key.Key() || len(c.Looked) != 4 {
			t.Fatalf("%d looked, %d lies", len(c.Looked), len(c.Lies))
		}
		if l.passed[c.Planted.Provider] != 1 {
			t.Error("the lazy one did not judge the canary")
		}
		// The proof is kept, and holds for everybody who reads it. The peer may have planted others by itself.
		proofs := 0
		for _, x := range lies(t, n.Provider(planter)) {
			if x.Kind != rules.FalsePass {
				continue
			}
			proofs++
			again, err := rules.UnmarshalLie(x.Marshal())
			if err == nil {
				err = again.Check(n.Genesis.Domain())
			}
			if err != nil || again.Liar() != n.Provider(asleep).Key.Key() {
				t.Errorf("the proof against %s: %v", again.Liar().Short(), err)
			}
		}
		if proofs == 0 {
			t.Error("no proof is kept")
		}
		for i := range 5 {
			for _, x := range lies(t, n.Provider(i)) {
				for k := range 5 {
					if k != asleep && x.Liar() == n.Provider(k).Key.Key() {
						t.Errorf("%s calls %s, which is honest, a liar: %s", name(i), name(k), x.Kind)
					}
				}
			}
		}
	})
}
