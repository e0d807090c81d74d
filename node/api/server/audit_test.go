package server

import (
	"net/http"
	"testing"

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
}
