package moneycmd

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/rewards"
)

// What keeps rewards from being paid is said, the first thing first.
func TestWhyNothing(t *testing.T) {
	t.Parallel()
	text := func(uint64) string { return "some" }
	good := rewards.Status{On: true, Audits: true, Registered: true, Emission: 5, Left: 5, Bonded: 3, LeastBonded: 3}
	if why := whyNothing(good, text); why != "" {
		t.Error(why)
	}
	seen := map[string]bool{}
	for _, change := range []func(*rewards.Status){
		func(s *rewards.Status) { s.On = false }, func(s *rewards.Status) { s.Audits = false }, func(s *rewards.Status) { s.Bonded = 2 },
		func(s *rewards.Status) { s.Registered = false }, func(s *rewards.Status) { s.Left = 0 },
	} {
		s := good
		change(&s)
		if why := whyNothing(s, text); why == "" || seen[why] {
			t.Errorf("%+v: %q", s, why)
		} else {
			seen[why] = true
		}
	}
}

// Each epoch is a line with its state and the share of this peer; an epoch without rewards has none.
func TestRewards(t *testing.T) {
	t.Parallel()
	mint := sign.Key{9}
	st := rewards.Status{On: true, Audits: true, Registered: true, Bonded: 1, Epochs: []rewards.Past{
		{Epoch: 9, State: "open", Waits: "the epoch is not counted yet\n8 emission accepted"},
		{Epoch: 8, State: "voting", For: 2, Total: 3, Sum: 5_000_000, Amount: 1_000_000},
		{Epoch: 7, Source: 1, Mint: mint, State: "accepted", Sum: 4_000_000, Amount: 2_500_000, Paid: true, Claims: 3, Wage: 1},
		{Epoch: 6, State: "accepted"},
		{Epoch: 5, State: "voting", For: 1, Sum: 1, Waits: strings.Repeat("w", 500)},
	}}
	dir := home(t, func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Method + " " + r.URL.Path; asked != "GET /v1/rewards" && asked != "POST /v1/rewards/claim" {
			t.Errorf("asked for %s", asked)
		}
		_ = json.NewEncoder(w).Encode(st)
	})
	for _, command := range []string{"rewards", "claim"} {
		r := run(t, dir, "stake", command).Want(t, cli.ExitOK, `^EPOCH +FROM +STATE +SUM +MINE +GUARDED *$`,
			`^9 +emission +open +0\.00 STAR +the epoch is not counted yet 8 emission accepted$`,
			`^8 +emission +voting, 67 % of more than 67 +5\.00 STAR +1\.00 STAR +not claimed yet$`,
			`^7 +pool of `+mint.Short()+` +accepted +4\.00 STAR +2\.50 STAR +3: 0\.000001 STAR +paid$`,
			`^5 +emission +voting, 100 % of .* w{159}…$`)
		wantNot(t, r.Out+r.Err, `(?m)^6 |^no rewards|^this`)
	}
	st.Epochs = nil
	run(t, dir, "stake", "rewards").Want(t, cli.ExitOK, `^none is over yet$`)
	st.On = false
	r := run(t, dir, "stake", "rewards").Want(t, cli.ExitOK, `^this network pays no rewards: its account on the chain`)
	wantNot(t, r.Out, `EPOCH`)
}

// The peer's refusal to claim is the command's, with its code and its hint.
func TestClaimFails(t *testing.T) {
	t.Parallel()
	for want, e := range map[cli.ExitCode]api.Error{
		cli.ExitPayment:     {Status: http.StatusBadGateway, Code: api.CodePayment, Message: "no fees", Hint: "send SOL"},
		cli.ExitUnreachable: {Status: http.StatusBadGateway, Code: api.CodeUnreachable, Message: "away", Hint: "wait"},
		cli.ExitPeer:        {Status: http.StatusInsufficientStorage, Code: api.CodeFull, Message: "full", Hint: "make room"},
		cli.ExitUsage:       {Status: http.StatusConflict, Code: "conflict", Message: "not now", Hint: "later"},
		cli.ExitFailed:      {Status: http.StatusInternalServerError, Code: "internal", Message: "odd", Hint: "look"},
	} {
		dir := home(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(e.Status)
			_ = json.NewEncoder(w).Encode(map[string]api.Error{"error": e})
		})
		if r := run(t, dir, "stake", "claim").Want(t, want, `^starling: `+e.Message+`$`, `^hint: `+e.Hint+`$`); r.Out != "" {
			t.Errorf("a refusal printed %q", r.Out)
		}
	}
}
