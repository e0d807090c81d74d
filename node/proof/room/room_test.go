package room_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/notices"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/node/proof/room"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// book notes offences.
type book struct {
	mu    sync.Mutex
	noted []string
}

func (b *book) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noted = append(b.noted, text)
}

func (b *book) Heard(notices.Notice) {}

func (b *book) SoldTwice(s proof.DoubleSale) { b.note("double sale by " + s.A.Provider.Short()) }

func (b *book) Defrauded(_ sign.Hash, by sign.Key, at market.Slot) {
	b.note(fmt.Sprintf("fraud by %s in slot %d", by.Short(), at))
}

func (b *book) History(_ context.Context, of sign.Key) (proof.History, error) {
	h := prooftest.History()
	h.Peer = of
	return h, nil
}

// opened is the room of a host, with its book.
func opened(t *testing.T, h *p2p.Host, s store.Store, light bool) (*room.Room, *book) {
	t.Helper()
	self, err := p2p.KeyFromPeerID(h.ID())
	if err != nil {
		t.Fatal(err)
	}
	b := &book{}
	r, err := room.Open(t.Context(), room.Config{
		Genesis: prooftest.Genesis(), Self: sign.Key(self), Host: h, Store: s, Book: b, Light: light, Log: p2ptest.Quiet(),
		Slot:  func() (market.Slot, error) { return prooftest.Window.First(prooftest.Genesis().AuditSlots) + 5, nil },
		KeyOf: sign.ParseKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, b
}

// file is a proof's file on a network.
func file(t *testing.T, g market.Genesis, c proof.Content) proof.File {
	t.Helper()
	p, err := proof.New(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.NewFile(g, p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// audits is the audit records of a peer.
type audits struct{ proof.Audit }

func (a audits) Entries() []proof.Entry { return []proof.Entry{proof.EntryOf(a.Audit)} }

func (a audits) Proof(_ context.Context, h sign.Hash) (proof.Proof, error) {
	if h != a.Hash() {
		return proof.Proof{}, proof.ErrUnknown
	}
	return proof.New(a.Audit)
}

// Proofs of all rooms are listed together, are fetched by their hash, and their offences count once, over restarts.
func TestRoom(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	disk := store.NewMemory()
	r, noted := opened(t, hosts[0], disk, false)
	r.Add(audits{prooftest.Audit()})
	sale := prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0)
	fraud := prooftest.Frauds(prooftest.Key("liar"), prooftest.Key("lazy"), prooftest.Window)[1]
	dispute := prooftest.Dispute(0, 9, 1, 1)
	for range 2 {
		if err := r.KeepFraud(t.Context(), fraud.Lie); err != nil {
			t.Fatal(err)
		}
		if id, err := r.KeepDispute(t.Context(), dispute.Dissent); err != nil || id != dispute.Hash().String() {
			t.Fatalf("%s, %v", id, err)
		}
		e, err := r.KeepProof(t.Context(), file(t, prooftest.Genesis(), sale))
		if err != nil || e.Hash != sale.Hash() || !e.Own || e.State != proof.StateKept {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if len(noted.noted) != 2 {
		t.Errorf("noted %q", noted.noted)
	}
	if all := r.Proofs(""); len(all) != 4 || len(r.Proofs(proof.KindAudit)) != 1 {
		t.Errorf("proofs %+v", all)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	of := prooftest.Key("nobody").Key()
	if self, err := p2p.KeyFromPeerID(hosts[0].ID()); err == nil {
		of = sign.Key(self)
	}
	other, _ := opened(t, hosts[1], store.NewMemory(), false)
	for _, c := range []proof.Content{sale, fraud, dispute, prooftest.Audit()} {
		p, err := r.Proof(t.Context(), sign.Key{}, c.Hash())
		if err != nil || p.Kind != c.Kind() {
			t.Errorf("own %s: %v", c.Kind(), err)
		}
		p, err = other.Proof(t.Context(), of, c.Hash())
		if (err == nil) != c.Kind().Public() || err == nil && p.Kind != c.Kind() {
			t.Errorf("%s of the other peer: %v", c.Kind(), err)
		}
	}
	again, noted := opened(t, hosts[0], disk, false)
	if all := again.Proofs(""); len(all) != 3 || len(noted.noted) != 0 {
		t.Errorf("after a restart %d proofs, noted %q", len(all), noted.noted)
	}
}

// Files of other networks, and proofs that do not hold or that no peer keeps, are refused.
func TestKeepProofRefuses(t *testing.T) {
	t.Parallel()
	r, noted := opened(t, p2ptest.Loopback(t, 1)[0], store.NewMemory(), false)
	sale := prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0)
	forged := sale
	forged.A.BuyerSig[0] ^= 1
	elsewhere := prooftest.Genesis()
	elsewhere.Network = "elsewhere"
	for name, c := range map[string]struct {
		f    proof.File
		want error
	}{
		"another network": {file(t, elsewhere, sale), proof.ErrFile},
		"a forgery":       {file(t, prooftest.Genesis(), forged), proof.ErrFile},
		"receipts":        {file(t, prooftest.Genesis(), prooftest.Receipts()), proof.ErrKind},
	} {
		if _, err := r.KeepProof(t.Context(), c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if len(r.Proofs("")) != 0 || len(noted.noted) != 0 {
		t.Errorf("kept %v, noted %q", r.Proofs(""), noted.noted)
	}
}

// A peer's history is exported by its key. A chain without the network's program has no anchors.
func TestHistoryAndAnchors(t *testing.T) {
	t.Parallel()
	r, _ := opened(t, p2ptest.Loopback(t, 1)[0], store.NewMemory(), true)
	p, err := r.History(t.Context(), prooftest.Key("provider").Key().String())
	if err != nil || p.Kind != proof.KindHistory {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.History(t.Context(), "nobody"); err == nil {
		t.Error("a history of nobody")
	}
	if _, err := r.AnchorIn(t.Context(), "tx"); !errors.Is(err, chain.ErrDown) {
		t.Error(err)
	}
	if err := r.Watch(t.Context(), notices.Watched{}); !errors.Is(err, notices.ErrLight) {
		t.Errorf("a light peer watches a unit: %v", err)
	}
}
