package audit

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Bounds of a member's work for one provider.
const (
	// MaxUnits is how many units of a provider are audited at once.
	MaxUnits = 64
	// maxAttempts bounds the attempts that are remembered; older windows' go first.
	maxAttempts = 4096
)

// Claim is a unit's claimed class and resources.
type Claim struct {
	ID    market.UnitID
	Class market.Class
	market.Resources
}

// Asked is the question for units of a class, with the time limits of the answers.
type Asked struct {
	Shape        challenge.Shape
	Walk         challenge.Walk
	ProductLimit time.Duration
	WalkLimit    time.Duration
	SecondLimit  time.Duration // from the first nonce to the question for the second
	WholeLimit   time.Duration // from the first nonce to the answer, of a unit that is judged in another attempt
}

// Plan returns the question for a unit. All peers of a network must have the same plan; an error is the reason why such
// a unit cannot be audited.
type Plan func(c Claim) (Asked, error)

// MemberConfig is the configuration of a Member; all of it is required.
type MemberConfig struct {
	Domain      sign.Domain
	Key         sign.Signer
	WindowSlots uint64
	Sight       sight.Sight
	Plan        Plan
	// Now is the clock that answers are timed with.
	Now     func() time.Time
	Results Results
	Log     *slog.Logger
}

// Member judges. Its methods may be called from many goroutines.
type Member struct {
	cfg MemberConfig

	mu       sync.Mutex
	attempts map[attemptKey]*attempt
}

// NewMember makes a member that has judged nothing yet.
func NewMember(cfg MemberConfig) *Member {
	return &Member{cfg: cfg, attempts: map[attemptKey]*attempt{}}
}

// Answer answers one step of the provider from.
func (m *Member) Answer(ctx context.Context, from sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
	now := m.cfg.Now() // first, so that time spent on the answer does not count as the provider's
	if req.Attempt < 1 || req.Attempt > audit.MaxAttempts {
		return nil, refuse(CodeAttempt, "attempt %d of at most %d", req.Attempt, audit.MaxAttempts)
	}
	key := attemptKey{from, audit.Window(req.Window), uint8(req.Attempt)}
	switch s := req.Step.(type) {
	case *nodepb.AuditRequest_Begin_:
		return m.begin(ctx, key, s.Begin)
	}
	m.mu.Lock()
	a := m.attempts[key]
	m.mu.Unlock()
	if a == nil {
		return nil, refuse(CodeUnknown, "attempt %d in window %d was not begun here", key.number, key.window)
	}
	if s, ok := req.Step.(*nodepb.AuditRequest_Show_); ok {
		return m.show(ctx, a, s.Show)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := req.Step.(type) {
	case *nodepb.AuditRequest_Root_:
		return a.takeRoot(now, s.Root)
	case *nodepb.AuditRequest_Second_:
		return m.second(a, s.Second)
	case *nodepb.AuditRequest_Arrived_:
		return m.arrived(a, now, s.Arrived)
	case *nodepb.AuditRequest_Third_:
		return m.third(a)
	}
	return nil, malformed("a step that this peer does not know")
}

// begin checks the caller and its question, and starts the clock.
func (m *Member) begin(ctx context.Context, key attemptKey, b *nodepb.AuditRequest_Begin) (*nodepb.AuditReply, error) {
	window, slot, err := m.cfg.Sight.Window()
	if err != nil {
		return nil, refuse(CodeWindow, "%v", err)
	}
	if key.window != window {
		return nil, refuse(CodeWindow, "window: got %d, want %d", key.window, window)
	}
	a := &attempt{key: key, slot: slot}
	if len(b.Beacon) != sign.HashSize {
		return nil, refuse(CodeWindow, "a beacon of %d bytes", len(b.Beacon))
	}
	a.beacon = audit.Beacon{Slot: market.Slot(b.Slot), Value: sign.Hash(b.Beacon)}
	era, err := m.cfg.Sight.Check(ctx, window, a.beacon)
	if err != nil {
		return nil, refuse(CodeWindow, "%v", err)
	}
	a.slot = max(a.slot, a.beacon.Slot) // the slot is an estimate, and may be behind a block that is there
	if a.units, err = m.claims(b.Units); err != nil {
		return nil, err
	}
	for _, u := range a.units {
		if err := m.cfg.Sight.Instants().Check(window, a.beacon, key.number, u.Class, a.slot); err != nil {
			return nil, refuse(CodeInstant, "unit %s: %v", u.ID.Short(), err)
		}
	}
	if err := m.again(a); err != nil {
		return nil, err
	}
	roster, err := m.cfg.Sight.Roster(ctx, window)
	if err != nil {
		return nil, refuse(CodeDrawn, "%v", err)
	}
	a.size = audit.Committee
	if b.Appeal {
		a.size = audit.Appeal
	}
	a.drawn = roster.Draw(a.beacon, window, key.provider, a.size+audit.Slack)
	a.size = min(a.size, len(a.drawn))
	if !a.isDrawn(m.cfg.Key.Key()) {
		return nil, refuse(CodeDrawn, "this peer is not drawn for %s in window %d", key.provider.Short(), window)
	}
	for _, u := range a.units {
		u.dataset = audit.DatasetSeed(era, key.provider, u.ID)
	}
	var third audit.Nonce
	if _, err := rand.Read(third[:]); err != nil {
		return nil, err
	}
	a.nonces = audit.Chain(third)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(window)
	if len(m.attempts) >= maxAttempts {
		return nil, refuse(CodeAttempt, "too many attempts at this peer")
	}
	for n := uint8(1); n < key.number; n++ {
		if old := m.attempts[attemptKey{key.provider, window, n}]; old != nil && old.beacon != a.beacon {
			return nil, refuse(CodeWindow, "another beacon than in attempt %d", n)
		}
	}
	for n := key.number; n <= audit.MaxAttempts; n++ {
		if m.attempts[attemptKey{key.provider, window, n}] != nil {
			return nil, refuse(CodeAttempt, "attempt %d was begun", n)
		}
	}
	m.attempts[key] = a
	a.asked[0] = m.cfg.Now()
	return &nodepb.AuditReply{Nonce: a.nonces[0][:]}, nil
}

// again refuses a later attempt of units that did not work in the previous attempt at the window's instant, as seen by
// this peer. A unit thus cannot let an attempt break off and answer alone, after the others that share its card have
// answered.
func (m *Member) again(a *attempt) error {
	if a.key.number == 1 {
		return nil
	}
	before := a.key
	before.number--
	m.mu.Lock()
	old := m.attempts[before]
	m.mu.Unlock()
	if old == nil {
		return refuse(CodeAttempt, "attempt %d: unknown here; attempt %d needs units that worked in it",
			before.number, a.key.number)
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	for _, u := range a.units {
		if !slices.ContainsFunc(old.units, func(o *unit) bool { return o.Claim == u.Claim && o.worked }) {
			return refuse(CodeAttempt, "unit %s: no work in attempt %d", u.ID.Short(), before.number)
		}
	}
	return nil
}

// forget drops the attempts of earlier windows. m.mu is held.
func (m *Member) forget(window audit.Window) {
	for k := range m.attempts {
		if k.window+1 < window {
			delete(m.attempts, k)
		}
	}
}

// claims parses the units and checks their questions against the plan.
func (m *Member) claims(in []*nodepb.AuditRequest_Unit) ([]*unit, error) {
	if len(in) < 1 || len(in) > MaxUnits {
		return nil, refuse(CodeUnits, "%d units, 1 to %d are audited at once", len(in), MaxUnits)
	}
	var out []*unit
	for _, x := range in {
		if len(x.Id) != sign.HashSize {
			return nil, malformed("unit id of %d bytes", len(x.Id))
		}
		c := Claim{
			ID: market.UnitID(x.Id), Class: market.Class(x.Class),
			Resources: market.Resources{MilliCPU: x.MilliCpu, MemoryMiB: x.MemoryMib, VRAMMiB: x.VramMib},
		}
		if err := c.Class.Check(); err != nil {
			return nil, malformed("%v", err)
		}
		if slices.ContainsFunc(out, func(u *unit) bool { return u.ID == c.ID }) {
			return nil, refuse(CodeUnits, "unit %s is there twice", c.ID.Short())
		}
		asked, err := m.cfg.Plan(c)
		if err != nil {
			return nil, refuse(CodeUnits, "unit %s: %v", c.ID.Short(), err)
		}
		shape, err := challenge.UnmarshalShape(x.Shape)
		if err != nil {
			return nil, malformed("%v", err)
		}
		walk, err := challenge.UnmarshalWalk(x.Walk)
		if err != nil {
			return nil, malformed("%v", err)
		}
		if shape != asked.Shape || walk != asked.Walk {
			return nil, refuse(CodeUnits, "unit %s of class %s: question mismatch: want %s and %s",
				c.ID.Short(), c.Class, asked.Shape, asked.Walk)
		}
		out = append(out, &unit{Claim: c, Asked: asked})
	}
	return out, nil
}

// members reads the nonces of all members in a round. There must be enough, all drawn, with this peer's unchanged; in
// later rounds of the same members, with nonces that match the previous ones. If one is missing, the attempt is void: a
// provider that could leave members out could choose among their nonces.
func (m *Member) members(a *attempt, round int, in []*nodepb.AuditRequest_Given) error {
	if len(in) < audit.Certify(a.size) || len(in) > a.size {
		return refuse(CodeMembers, "%d members, %d to %d make a committee", len(in), audit.Certify(a.size), a.size)
	}
	var out []audit.Given
	own := false
	for _, g := range in {
		if len(g.Member) != sign.KeySize || len(g.Nonce) != audit.NonceSize {
			return malformed("member of %d bytes, nonce of %d", len(g.Member), len(g.Nonce))
		}
		x := audit.Given{Member: sign.Key(g.Member), Nonce: audit.Nonce(g.Nonce)}
		switch {
		case slices.ContainsFunc(out, func(y audit.Given) bool { return y.Member == x.Member }):
			return refuse(CodeMembers, "%s is there twice", x.Member.Short())
		case round == 0 && !a.isDrawn(x.Member):
			return refuse(CodeMembers, "%s is not drawn", x.Member.Short())
		case round > 0 && !slices.Contains(a.given[round-1], audit.Given{Member: x.Member, Nonce: x.Nonce.Before()}):
			return refuse(CodeMembers, "%s: previous nonce: missing or no match", x.Member.Short())
		}
		if x.Member == m.cfg.Key.Key() {
			own = x.Nonce == a.nonces[round]
		}
		out = append(out, x)
	}
	if !own {
		return refuse(CodeMembers, "nonce of this peer: missing or changed")
	}
	slices.SortFunc(out, func(x, y audit.Given) int { return slices.Compare(x.Member[:], y.Member[:]) })
	if a.given[round] != nil && !slices.Equal(a.given[round], out) {
		return refuse(CodeMembers, "others than before")
	}
	a.given[round] = out
	a.void = a.void || round > 0 && len(out) < len(a.given[0])
	return nil
}

// second gives the second nonce when all roots are there.
func (m *Member) second(a *attempt, s *nodepb.AuditRequest_Second) (*nodepb.AuditReply, error) {
	for i, u := range a.units {
		if u.root == nil {
			return nil, refuse(CodeOrder, "the root of unit %d is missing", i)
		}
	}
	if err := m.members(a, 0, s.First); err != nil {
		return nil, err
	}
	for _, u := range a.units {
		u.products = audit.ProductSeed(a.beacon, a.target(u), a.given[0])
	}
	return m.give(a, 1), nil
}

// give hands out a nonce; the clock starts when it is done first.
func (m *Member) give(a *attempt, round int) *nodepb.AuditReply {
	if a.asked[round].IsZero() {
		a.asked[round] = m.cfg.Now()
	}
	return &nodepb.AuditReply{Nonce: a.nonces[round][:]}
}

// arrived stops a unit's second time and checks that its answer is to the question.
func (m *Member) arrived(a *attempt, now time.Time, r *nodepb.AuditRequest_Arrived) (*nodepb.AuditReply, error) {
	u, err := a.unit(r.Unit)
	if err != nil {
		return nil, err
	}
	if a.asked[1].IsZero() {
		return nil, refuse(CodeOrder, "the second nonce was not given")
	}
	answer, err := audit.UnmarshalAnswer(r.Answer)
	if err != nil || len(r.Signature) != sign.SignatureSize {
		return nil, malformed("answer: %v, signature of %d bytes", err, len(r.Signature))
	}
	if u.answer != nil {
		if *u.answer != answer {
			return nil, refuse(CodeAnswer, "unit %d gave another answer", r.Unit)
		}
		return &nodepb.AuditReply{}, nil
	}
	if err := m.members(a, 1, r.Second); err != nil {
		return nil, err
	}
	want := audit.Answer{
		Target: a.target(u), ProductSeed: u.products, Shape: u.Shape, ProductRoot: *u.root,
		DatasetSeed: u.dataset, Walk: u.Asked.Walk,
		WalkSeed: audit.WalkSeed(u.products, *u.root, a.given[1]), WalkRoot: answer.WalkRoot,
	}
	if answer != want {
		return nil, refuse(CodeAnswer, "the answer of unit %d is to something else", r.Unit)
	}
	sig := sign.Signature(r.Signature)
	if err := answer.Verify(m.cfg.Domain, sig); err != nil {
		return nil, refuse(CodeAnswer, "%v", err)
	}
	u.answer, u.answerSig, u.walk, u.whole = &answer, sig, now.Sub(a.asked[1]), now.Sub(a.asked[0])
	return &nodepb.AuditReply{}, nil
}

// third gives the third nonce when all answers are there.
func (m *Member) third(a *attempt) (*nodepb.AuditReply, error) {
	for i, u := range a.units {
		if u.answer == nil {
			return nil, refuse(CodeOrder, "the answer of unit %d is missing", i)
		}
	}
	return m.give(a, 2), nil
}
