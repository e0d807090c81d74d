package server

import (
	"net/http"
	"testing"

	"github.com/starling-network/starling/node/api"
)

func TestRewards(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	if st, err := api.GetRewards.Call(t.Context(), c, api.None{}); err != nil || st.Epoch != 7 {
		t.Errorf("%+v: %v", st, err)
	}
	_, err := api.ClaimRewards.Call(t.Context(), c, api.None{})
	wantError(t, err, http.StatusConflict, "no_rewards")
}
