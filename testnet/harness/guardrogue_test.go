package harness

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// leave has the owner of a job go once its guardians hold it.
func (n *Net) leave(spec func(b *Peer) string) (*Peer, buyer.Job) {
	time.Sleep(3 * time.Second)
	b := n.Buyer(0)
	j := b.until(spec(b), func(j buyer.Job) bool { return j.Detached.Held })
	time.Sleep(2 * time.Second)
	return b, j
}

func twenty(b *Peer) string { return b.Submit(b.detached(2, "20")).ID }

// One of three guardians, whose turn would be first, does nothing of what it is asked: the others keep the job going.
func TestDetachedDeafGuardian(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 7, Units: 1, Programs: programs, Log: Logger()})
		b, j := n.leave(twenty)
		deaf := n.guardians(j)[0]
		protocol.Guard.Handle(n.net.Hosts[deaf.i], n.Genesis.Tag(), func(context.Context, peer.ID, *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
			return nil, stream.Refuse(guardian.CodeUnknown, "never heard of it")
		}, stream.Limits{})
		b.Kill()
		time.Sleep(time.Minute)
		b.Restart()
		n.checkDetached(t, b, j.ID)
	})
}

// The guardian whose turn is first takes the job over, says what makes no sense, and is silent: its owner comes back to a job
// that ends well.
func TestDetachedLyingGuardian(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for name, lie := range map[string]func(said, work object){
		"no outcome": func(_, work object) {
			work["phase"] = jobs.Settling
			delete(work, "outcome")
		},
		"another job":       func(_, work object) { work["ranks"] = nil },
		"another time":      func(_, work object) { work["created"] = time.Unix(1, 0).UTC() },
		"nothing of a rank": func(said, _ object) { said["ranks"] = nil },
		"no escrow":         func(said, _ object) { said["detached"] = object{} },
		"rounds it lacks":   func(_, work object) { work["round"] = math.MaxUint32 },
		"files of no name": func(_, work object) {
			rank := work["ranks"].([]any)[0].(object)
			rank["state"], rank["outputs"] = jobs.RankDone, []any{object{"path": "/out", "cid": "..", "bytes": -1}}
		},
		"files that are none": func(_, work object) {
			rank := work["ranks"].([]any)[0].(object)
			rank["state"], rank["outputs"] = jobs.RankDone, []any{object{"path": "/out", "cid": "x"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 8, Units: 1, Programs: programs, Log: Logger()})
				b, j := n.leave(twenty)
				liar := n.guardians(j)[0]
				liar.Stop()
				b.Kill()
				n.lies(t, liar, j, lie)
				time.Sleep(10 * time.Second)
				b.Restart()
				n.checkDetached(t, b, j.ID)
			})
		})
	}
}

// lies has a guardian ask for a job until it is given it, and say what is not so.
func (n *Net) lies(t *testing.T, p *Peer, j buyer.Job, lie func(said, work map[string]any)) {
	t.Helper()
	var keys []sign.Key
	for _, m := range j.Detached.Guardians {
		keys = append(keys, m.Key)
	}
	set, err := market.NewKeySet(uint8(len(keys)/2+1), keys...)
	if err != nil {
		t.Fatal(err)
	}
	host := n.net.Restart(p.i, n.host(p.i))
	var members []guardian.Member
	for _, g := range j.Detached.Guardians {
		members = append(members, guardian.Member(g))
		if g.Key != p.Key.Key() {
			if err := host.Connect(t.Context(), n.net.Addr(n.peer(g.Key).i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	panel := guardian.NewPanel(guardian.PanelConfig{
		Host: host, Genesis: n.Genesis, Key: p.Key, Members: members,
		Charter: guardian.Charter{Job: j.Detached.Terms, Owner: j.Detached.Owner, Buyer: j.Detached.Key, Keys: set},
	})
	defer panel.Close()
	if _, err := panel.Grant(t.Context()); !errors.Is(err, guardian.ErrMinority) {
		t.Errorf("a guardian was given a job whose supervisor was there a moment ago: %v", err)
	}
	// It is its own guardian, too.
	protocol.Guard.Handle(host, n.Genesis.Tag(), func(context.Context, peer.ID, *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
		return nil, stream.Refuse(guardian.CodeUnknown, "never heard of it")
	}, stream.Limits{})
	var st guardian.Standing
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(250 * time.Millisecond) {
		if st, err = panel.Grant(t.Context()); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Skipf("the others were faster: %v", err)
		}
	}
	var said map[string]any
	if err := json.Unmarshal(st.State.Bytes, &said); err != nil {
		t.Fatal(err)
	}
	work := said["work"].(map[string]any)
	epoch, _ := panel.Epoch()
	work["command"].(map[string]any)["epoch"] = epoch
	lie(said, work)
	b, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	if err := panel.Beat(t.Context(), &guardian.State{Version: math.MaxInt64, Bytes: b}); err != nil {
		t.Errorf("its state was not taken: %v", err)
	}
	for _, l := range st.Leases {
		l.Record = []byte(`{"root":"0101010101010101010101010101010101010101010101010101010101010101","hired":true,"units":[]}`)
		if _, err := panel.SignVoucher(t.Context(), l); err != nil {
			t.Logf("a lease with a record of nothing was not taken: %v", err)
		}
	}
}

// A provider says that it obeys another supervisor, of whom the guardians know nothing: its lease is lost, and no more than that.
func TestDetachedLyingProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 8, Units: 1, Programs: programs, Log: Logger()})
		b, j := n.leave(twenty)
		liar := n.peer(j.Ranks[1].Provider)
		protocol.Lease.Handle(n.net.Hosts[liar.i], n.Genesis.Tag(), func(context.Context, peer.ID, *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
			return nil, stream.Refuse(string(market.ReasonSupervision), "somebody else supervises")
		}, stream.Limits{})
		b.Kill()
		time.Sleep(10 * time.Second)
		b.Restart()
		n.checkDetached(t, b, j.ID)
	})
}

// A lease without guardians is its buyer's: no grant of anybody else gives the command of it away.
func TestDetachedNotGuarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Strangers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		p, a, thief := n.Provider(0), n.adversary(t, 0), n.adversary(t, 1)
		h := a.active(p)
		id := h.core.ID()
		for name, by := range map[string]struct {
			set market.KeySet
			key sign.Private
			of  sign.Hash
		}{
			"its own guardians": {thief.keys, thief.key, thief.keys.Hash()},
			"others' name":      {thief.keys, thief.key, h.core.VoucherKeys},
			"its own signature": {a.keys, thief.key, h.core.VoucherKeys},
		} {
			g := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{
				Version: verify.GrantVersion, Job: h.core.Terms, Epoch: 7, Supervisor: thief.key.Key(), Guardians: by.of,
			}, Signatures: verify.Signatures{Set: by.set}}
			b := g.SupervisionGrant.Marshal()
			sig, err := by.key.Sign(n.Genesis.Domain().Preimage(sign.TagSupervision, b[:]))
			if err != nil {
				t.Fatal(err)
			}
			g.Sigs = append(g.Sigs, verify.IndexedSignature{Index: 0, Signature: sig})
			_, err = thief.lease(p, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Supervise{Supervise: &marketpb.Supervise{Lease: id[:], Grant: g.Marshal()}}})
			var no *stream.Refused
			if !errors.As(err, &no) || no.Code != string(market.ReasonSupervision) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if r := p.Node.Provider().Sold()[0].Record; r.Peer() != a.key.Key() || r.Supervision != 0 {
			t.Errorf("the lease is commanded by %s under epoch %d", r.Peer().Short(), r.Supervision)
		}
	})
}

// Somebody has each guardian of a job guard another one of the same id, and is silent first: they take up both.
func TestDetachedSameID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 7, Strangers: 1, Units: 1, Programs: programs, Log: Logger(),
			Configure: func(_ int, c *config.Config) { c.Guard.Share = 0 }})
		b, j := n.leave(twenty)
		a := n.adversary(t, 0)
		file, err := json.Marshal(struct {
			ID      string    `json:"id"`
			Spec    any       `json:"spec"`
			Created time.Time `json:"created"`
		}{j.ID, j.Spec, time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range j.Detached.Guardians {
			set, err := market.NewKeySet(1, m.Key)
			if err != nil {
				t.Fatal(err)
			}
			secret := sign.NewPrivate([32]byte{byte(i + 1)})
			panel := guardian.NewPanel(guardian.PanelConfig{
				Host: a.host, Genesis: n.Genesis, Key: a.key, Members: []guardian.Member{{Key: m.Key, Addrs: m.Addrs}},
				Charter: guardian.Charter{Job: sign.Hash{byte(i + 1)}, Owner: a.key.Key(), Buyer: secret.Key(), Keys: set},
			})
			defer panel.Close()
			if err := panel.Engage(t.Context(), guardian.Engagement{Key: secret, File: file, Until: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second) // longer than they wait for a supervisor
		b.Kill()
		time.Sleep(8 * time.Second)
		b.Restart()
		if accounts := n.checkDetached(t, b, j.ID); len(accounts) != 2 {
			t.Errorf("%d leases\n%s", len(accounts), b.Why(j.ID))
		}
	})
}
