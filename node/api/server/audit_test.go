package server

import (
	"net/http"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
)

func TestAudits(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	past, err := api.ListAudits.Call(t.Context(), c, api.None{})
	if err != nil || len(past) != 1 || past[0].Failed != "late" {
		t.Errorf("%+v: %v", past, err)
	}
	_, err = api.RunAudit.Call(t.Context(), c, api.None{})
	wantError(t, err, http.StatusConflict, "too_early")
	_, err = api.GetAudit.Call(t.Context(), c, api.Audited{Peer: sign.Key{}, Hash: sign.Hash{1}})
	wantError(t, err, http.StatusNotFound, "not_found")
	kept, err := api.GetAudit.Call(t.Context(), c, api.Audited{Peer: sign.NewPrivate([32]byte{1}).Key(), Hash: sign.Hash{1}})
	if err != nil || string(kept.Record) != "record" || string(kept.Anchor) != "anchor" {
		t.Errorf("%q: %v", kept, err)
	}
}
