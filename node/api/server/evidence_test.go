package server

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/evidence"
)

// proofs are some that a peer keeps.
type proofs struct{ watched []evidence.Watched }

func (p *proofs) Kept(context.Context) ([]evidence.Kept, error) {
	return []evidence.Kept{{ID: "0123456789abcdef", Conflict: []byte{1, 2}, Mine: true}}, nil
}

func (p *proofs) Watching() []evidence.Watched { return p.watched }

func (p *proofs) Watch(_ context.Context, w evidence.Watched) error {
	if len(p.watched) > 0 {
		return evidence.ErrMany
	}
	p.watched = append(p.watched, w)
	return nil
}

func (p *proofs) Dissents(context.Context) ([]evidence.Dissent, error) {
	return []evidence.Dissent{{ID: "fedcba9876543210", Proof: []byte{1}}}, nil
}

func (p *proofs) Lies(context.Context) ([]evidence.KeptLie, error) {
	return []evidence.KeptLie{{ID: "00ff00ff00ff00ff", State: evidence.LieKept, Proof: []byte{3}}}, nil
}

func (p *proofs) Unwatch(_ context.Context, w evidence.Watched) error {
	p.watched = slices.DeleteFunc(p.watched, func(o evidence.Watched) bool { return o == w })
	return nil
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	kept, err := api.ListEvidence.Call(t.Context(), c, api.None{})
	if err != nil || len(kept) != 1 || kept[0].ID != "0123456789abcdef" || len(kept[0].Conflict) != 2 || !kept[0].Mine {
		t.Errorf("kept %+v: %v", kept, err)
	}
	if differ, err := api.ListDissents.Call(t.Context(), c, api.None{}); err != nil || len(differ) != 1 || differ[0].ID != "fedcba9876543210" || len(differ[0].Proof) != 1 {
		t.Errorf("dissents %+v: %v", differ, err)
	}
	if lies, err := api.ListLies.Call(t.Context(), c, api.None{}); err != nil || len(lies) != 1 || lies[0].ID != "00ff00ff00ff00ff" || lies[0].State != evidence.LieKept || len(lies[0].Proof) != 1 {
		t.Errorf("lies %+v: %v", lies, err)
	}
	w := evidence.Watched{Provider: sign.NewPrivate([32]byte{1}).Key(), Unit: market.UnitID{7}}
	if got, err := api.WatchUnit.Call(t.Context(), c, w); err != nil || len(got) != 1 || got[0] != w {
		t.Errorf("watched %+v: %v", got, err)
	}
	_, err = api.WatchUnit.Call(t.Context(), c, w)
	wantError(t, err, http.StatusConflict, "too_many")
	if got, err := api.ListWatched.Call(t.Context(), c, api.None{}); err != nil || len(got) != 1 {
		t.Errorf("watched %+v: %v", got, err)
	}
	if got, err := api.UnwatchUnit.Call(t.Context(), c, w); err != nil || len(got) != 0 {
		t.Errorf("still watched %+v: %v", got, err)
	}
}
