package api

import (
	"net/http"
	"testing"

	"github.com/starling-network/starling/market/sign"
)

func TestAudits(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	past, err := c.Audits(t.Context())
	if err != nil || len(past) != 1 || past[0].Failed != "late" {
		t.Errorf("%+v: %v", past, err)
	}
	_, err = c.Audit(t.Context())
	wantError(t, err, http.StatusConflict, "too_early")
	_, err = c.AuditRecord(t.Context(), sign.Key{}, sign.Hash{1})
	wantError(t, err, http.StatusNotFound, "not_found")
	kept, err := c.AuditRecord(t.Context(), sign.NewPrivate([32]byte{1}).Key(), sign.Hash{1})
	if err != nil || string(kept.Record) != "record" || string(kept.Anchor) != "anchor" {
		t.Errorf("%q: %v", kept, err)
	}
}
