package harness

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/audit"
)

// A provider brings a member of its own to its audit: one that was registered when the window's beacon was known, and one that its owner
// registered long before. The network's peers judge with neither; with a stranger's that bonded in time they do.
func TestAttackKeyGroundAfterBeacon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late, own bool
		code      string // by which the others refuse; "": they judge
	}{
		"registered after the beacon":   {late: true, code: audit.CodeMembers},
		"owned by the provider's owner": {own: true, code: audit.CodeMembers},
		"another's, and bonded in time": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { bringsMember(t, c.late, c.own, c.code) })
		})
	}
}

func bringsMember(t *testing.T, late, own bool, code string) {
	n := cheats(t, Options{Providers: 4, Strangers: 1}, nil)
	o := newOutsider(t, n, 0)
	friend := sign.NewPrivate(sha256.Sum256([]byte("friend")))
	owner := ownerOf(friend.Key())
	if own {
		owner = sign.Key(sign.Sum([]byte("owner of both")))
		n.Programs.Register(account.Provider{Peer: o.key.Key(), Owner: owner, Payout: owner})
	}
	register := func() {
		_, now, err := o.sight.Window()
		if err != nil {
			t.Fatal(err)
		}
		n.Programs.Register(account.Provider{
			Peer: friend.Key(), Owner: owner, Payout: owner, Stake: bonded, Bonded: bonded, Registered: uint64(now),
		})
	}
	if !late {
		register()
		time.Sleep(2 * auditSlots * slotMillis * time.Millisecond)
	}
	o.next() // the beacon is there
	if late {
		register()
		time.Sleep(time.Second) // what the others know of registrations is as new
	}
	// The provider and its friend go by a roster that has the friend in it, whatever the chain says.
	o.sight = sightOf(t, n, append(n.judges(), rules.Member{Key: friend.Key(), Owner: friend.Key(), Weight: 1000 * bonded}))
	m := audit.NewMember(audit.MemberConfig{
		Domain: o.domain, Key: friend, WindowSlots: auditSlots, Sight: o.sight, Plan: audit.ByPlan, Now: time.Now, Results: unheard{},
		Log: slog.New(slog.DiscardHandler),
	})
	o.instead = func(ctx context.Context, to sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		if to != friend.Key() {
			return nil, nil
		}
		return m.Answer(ctx, o.key.Key(), req)
	}
	r, err := o.audit()
	if code == "" {
		if err != nil || len(r.Record.Verdicts) != 5 {
			t.Fatalf("with a member that bonded in time: %v: %d judged, %v", err, len(r.Record.Verdicts), o.errs)
		}
		return
	}
	if err == nil {
		t.Fatalf("%d judged with a member that the provider chose", len(r.Record.Verdicts))
	}
	refused := 0
	for _, e := range o.errs {
		var why *stream.Refused
		if errors.As(e, &why) && why.Code == code {
			refused++
		}
	}
	if refused < 3 {
		t.Errorf("refused by %d: %v", refused, err)
	}
}
