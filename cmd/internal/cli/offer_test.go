package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/api"
)

// The operator's commands against a peer that sells.
func TestOffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sell := func(args ...string) result {
		t.Helper()
		return w.cli(t, append([]string{"--home", w.seller, "provider"}, args...)...)
	}
	w.cli(t, "provider", "status").want(t, ExitUsage, `^starling: this peer sells nothing$`, `^hint: set provide.enabled`)
	w.cli(t, "provider", "sell").want(t, ExitUsage, `"sell" is not a command of starling provider`)
	sell("status").want(t, ExitOK, `^state +selling$`, `^hours +always$`, `^leases +0$`, `^CLASS +MODEL +UNITS +FREE +LEASED`, `^cpu .* 16 +16 +0 +0 +100m CPU .* 0.36 STAR +- +wasm +\d+$`)

	sell("price", "cpu", "0.40").want(t, ExitOK, `^cpu .* 0.40 STAR`)
	var offers []api.OfferInfo
	w.until(t, "the new price is offered", func() bool {
		r := w.cli(t, "offers", "-o", "json")
		return json.Unmarshal([]byte(r.out), &offers) == nil && len(offers) == 2 && offers[1].Price == 400_000
	})
	sell("price", "cpu").want(t, ExitUsage, `needs 2 arguments`)
	sell("price", "CPU", "1").want(t, ExitUsage, `class`)
	sell("price", "cpu", "cheap").want(t, ExitUsage, `not a decimal number`)
	sell("price", "gpu/h100", "1").want(t, ExitUsage, `class gpu/h100: not sold here; sold are cpu`, "^hint: `starling provider status`")
	sell("price", "cpu", "0.30").want(t, ExitOK, `^cpu .* 0.30 STAR`)

	// The job goes to this one, whose operator then wants to stop it.
	r := w.cli(t, "run", "-d", "--max-price", "1", "--budget", "1", "--exclude", offers[0].Provider.String(), filepath.Join(w.files, "work.wasm")).want(t, ExitOK, `j\w{8,}`)
	id := strings.TrimSpace(r.out)
	w.until(t, "the job runs", func() bool { return strings.Contains(w.cli(t, "status", id).out, "0     running") })
	w.cli(t, "--home", w.seller, "provider", "leases").want(t, ExitOK, `^LEASE .* UNITS +OF +RECEIPTS`, `active +1 +cpu +\d+`)
	w.cli(t, "status", id).want(t, ExitOK, `^RANK .* UNITS +REASON`, `^0 .* cpu`)
	var out, errOut buffer
	code := make(chan int, 1)
	go func() {
		code <- w.app(&out, &errOut).run(t.Context(), []string{"--home", w.seller, "provider", "drain", "--wait"})
	}()
	w.until(t, "the drain says what is left", func() bool { return strings.Contains(errOut.String(), "1 lease left\n") })
	sell("status").want(t, ExitOK, `^state +draining$`, `^leases +1$`)
	w.cli(t, "stop", "--wait", id).want(t, ExitOK)
	if c := <-code; c != 0 || !strings.Contains(errOut.String(), "no lease is left: the peer can be stopped\n") || !strings.Contains(out.String(), "drained") {
		t.Errorf("exit code %d\n%s\n%s", c, out.String(), errOut.String())
	}
	sell("resume", "GPU-1").want(t, ExitUsage, `"GPU-1": not among the units that are withdrawn`)
	sell("resume").want(t, ExitOK, `^state +selling$`)
	sell("pause", "-o", "json").want(t, ExitOK, `"state": "paused"`)
	sell("pause", "now").want(t, ExitUsage, `does not take`)
}
