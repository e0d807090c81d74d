package api

import (
	"net/http"
	"testing"
)

func TestRewards(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	if st, err := c.Rewards(t.Context()); err != nil || st.Epoch != 7 {
		t.Errorf("%+v: %v", st, err)
	}
	_, err := c.ClaimRewards(t.Context())
	wantError(t, err, http.StatusConflict, "no_rewards")
}
