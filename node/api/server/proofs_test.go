package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/notices"
	"github.com/starling-network/starling/node/proof/prooftest"
)

// oneProof has one proof, and another peer's.
type oneProof struct{ watched []notices.Watched }

func sample() proof.Dispute { return prooftest.Dispute(0, 1, 2) }

func (p *oneProof) Proofs(k proof.Kind) []proof.Entry {
	out := []proof.Entry{}
	if e := proof.EntryOf(sample()); k == "" || k == e.Kind {
		e.State = proof.StateKept
		out = append(out, e)
	}
	return out
}

func (p *oneProof) Proof(_ context.Context, of sign.Key, h sign.Hash) (proof.Proof, error) {
	if of.IsZero() != (h == sample().Hash()) {
		return proof.Proof{}, proof.ErrUnknown
	}
	return proof.New(sample())
}

func (p *oneProof) KeepProof(_ context.Context, f proof.File) (proof.Entry, error) {
	x, err := f.Check()
	if err != nil {
		return proof.Entry{}, fmt.Errorf("%w: %w", proof.ErrFile, err)
	}
	if x.Kind != proof.KindDispute {
		return proof.Entry{}, proof.ErrKind
	}
	return proof.EntryOf(x.Content()), nil
}

func (p *oneProof) History(_ context.Context, peer string) (proof.Proof, error) {
	if strings.Contains(peer, "/") {
		return proof.Proof{}, &api.Error{Status: 400, Code: "bad_peer", Message: "no such peer"}
	}
	return proof.New(prooftest.History())
}

func (p *oneProof) Watching() []notices.Watched { return p.watched }

func (p *oneProof) Watch(_ context.Context, w notices.Watched) error {
	if len(p.watched) > 0 {
		return notices.ErrMany
	}
	p.watched = append(p.watched, w)
	return nil
}

func (p *oneProof) Unwatch(_ context.Context, w notices.Watched) error {
	p.watched = slices.DeleteFunc(p.watched, func(o notices.Watched) bool { return o == w })
	return nil
}

func TestProofs(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	ctx, hash := t.Context(), sample().Hash()
	for kind, n := range map[proof.Kind]int{"": 1, proof.KindDispute: 1, proof.KindFraud: 0} {
		all, err := api.ListProofs.Call(ctx, c, api.ByKind{Kind: kind})
		if err != nil || len(all) != n || n > 0 && (all[0].Hash != hash || all[0].State != proof.StateKept) {
			t.Errorf("of kind %q: %+v, %v", kind, all, err)
		}
	}
	other := sign.NewPrivate([32]byte{1}).Key()
	for _, q := range []api.ByHash{{Hash: hash}, {Hash: sign.Hash{1}, Peer: other}} {
		p, err := api.GetProof.Call(ctx, c, q)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := p.Open(); err != nil || x.Hash() != hash {
			t.Errorf("%+v: %v", q, err)
		}
	}
	_, err := api.GetProof.Call(ctx, c, api.ByHash{Hash: sign.Hash{1}})
	wantError(t, err, http.StatusNotFound, "not_found")
	file := func(x proof.Content) proof.File {
		p, err := proof.New(x)
		if err != nil {
			t.Fatal(err)
		}
		f, err := proof.NewFile(prooftest.Genesis(), p)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if e, err := api.KeepProof.Call(ctx, c, file(sample())); err != nil || e.Hash != hash {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = api.KeepProof.Call(ctx, c, file(prooftest.Receipts()))
	wantError(t, err, http.StatusBadRequest, "bad_proof")
	bad := file(sample())
	bad.Genesis.Network = "elsewhere"
	_, err = api.KeepProof.Call(ctx, c, bad)
	wantError(t, err, http.StatusBadRequest, "bad_proof")
}

func TestWatched(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	w := api.Watched{Provider: sign.NewPrivate([32]byte{1}).Key(), Unit: market.UnitID{7}}
	if got, err := api.WatchUnit.Call(t.Context(), c, w); err != nil || len(got) != 1 || got[0] != w {
		t.Errorf("watched %+v: %v", got, err)
	}
	_, err := api.WatchUnit.Call(t.Context(), c, w)
	wantError(t, err, http.StatusConflict, "too_many")
	if got, err := api.ListWatched.Call(t.Context(), c, api.None{}); err != nil || len(got) != 1 {
		t.Errorf("watched %+v: %v", got, err)
	}
	if got, err := api.UnwatchUnit.Call(t.Context(), c, w); err != nil || len(got) != 0 {
		t.Errorf("still watched %+v: %v", got, err)
	}
}

// A key's own jobs have proofs of their cost and of their probes, and no other kind.
func TestJobProofs(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	for _, k := range []proof.Kind{proof.KindReceipts, proof.KindProbes} {
		p, err := api.JobProof.Call(t.Context(), c, api.OfJob{ID: f.job.ID, Kind: k})
		if err != nil || p.Kind != k {
			t.Fatalf("%s: %+v, %v", k, p, err)
		}
		if _, err := p.Open(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	_, err := api.JobProof.Call(t.Context(), c, api.OfJob{ID: f.job.ID, Kind: proof.KindFraud})
	wantError(t, err, http.StatusBadRequest, "bad_proof")
	_, err = api.JobProof.Call(t.Context(), c, api.OfJob{ID: "jother", Kind: proof.KindReceipts})
	wantError(t, err, http.StatusNotFound, "not_found")
}
