package audit

import (
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

type attemptKey struct {
	provider sign.Key
	window   audit.Window
	number   uint8
}

// attempt is one attempt of one provider, under its own lock. The lock is held for a step, which neither writes nor
// waits.
//
//	Begin ─▶ Root of each unit ─▶ Second ─▶ Arrived of each unit ─▶ Third ─▶ Show of each unit ─▶ ruling
//
// Each step behind Begin may be repeated and gets the same answer. An attempt is in memory only, on purpose: it lives
// for seconds. If the member stops, the provider goes on without it, and the next instant decides. Findings are
// durable: other rooms keep those of a ruling before the provider receives it.
type attempt struct {
	mu     sync.Mutex
	key    attemptKey
	beacon audit.Beacon
	slot   market.Slot
	drawn  audit.Roster // committee, and the peers at most Slack places below
	size   int          // of the committee

	void bool // a member left: it is played to its end, and no verdict comes of it

	units  []*unit
	nonces [3]audit.Nonce
	given  [3][]audit.Given // from the second step on
	asked  [3]time.Time     // when each nonce was given; zero: not yet
}

type unit struct {
	Claim
	Asked
	root          *sign.Hash
	product, walk time.Duration
	whole         time.Duration // from the first nonce to the answer
	products      sign.Hash     // seed, once known
	dataset       sign.Hash
	answer        *audit.Answer
	answerSig     sign.Signature
	ruling        *ruling // once there is one
	worked        bool    // all that it showed was right, and in time
}

// ruling is the answer to the openings of a unit, with its findings for other rooms. It does not change.
type ruling struct {
	reply   *nodepb.AuditReply
	verdict *audit.Verdict // nil of an attempt that a member left
	refusal *audit.Refusal // of a unit with a verdict that did not pass
	lies    []audit.Lie
	kept    chan struct{} // closed when the other rooms have the findings
}

func (a *attempt) isDrawn(k sign.Key) bool {
	return slices.ContainsFunc(a.drawn, func(m audit.Member) bool { return m.Key == k })
}

func (a *attempt) unit(i uint32) (*unit, error) {
	if int(i) >= len(a.units) {
		return nil, malformed("unit %d of %d", i, len(a.units))
	}
	return a.units[i], nil
}

// takeRoot stops a unit's first time.
func (a *attempt) takeRoot(now time.Time, r *nodepb.AuditRequest_Root) (*nodepb.AuditReply, error) {
	u, err := a.unit(r.Unit)
	if err != nil {
		return nil, err
	}
	if len(r.Root) != sign.HashSize {
		return nil, malformed("root of %d bytes", len(r.Root))
	}
	root := sign.Hash(r.Root)
	switch {
	case u.root == nil && a.asked[1].IsZero():
		u.root, u.product = &root, now.Sub(a.asked[0])
	case u.root == nil || *u.root != root:
		return nil, refuse(CodeOrder, "unit %d has another root", r.Unit)
	}
	return &nodepb.AuditReply{}, nil
}

func (a *attempt) target(u *unit) audit.Target {
	return audit.Target{Provider: a.key.provider, Unit: u.ID, Window: a.key.window, Attempt: a.key.number}
}
