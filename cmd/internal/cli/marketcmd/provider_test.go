package marketcmd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p"
)

// The operator's commands against a peer that sells.
func TestOffer(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t, rooms.Commands, p2p.NAT{})
	sell := func(args ...string) clitest.Result {
		t.Helper()
		return w.CLI(t, append([]string{"--home", w.Seller, "provider"}, args...)...)
	}
	w.CLI(t, "provider", "status").Want(t, cli.ExitUsage, `^starling: this peer sells nothing$`, `^hint: set provide.enabled`)
	w.CLI(t, "provider", "sell").Want(t, cli.ExitUsage, `"sell" is not a command of starling provider`)
	sell("status").Want(t, cli.ExitOK, `^state +selling$`, `^hours +always$`, `^leases +0$`, `^CLASS +MODEL +UNITS +FREE +LEASED`, `^cpu .* 16 +16 +0 +0 +100m CPU .* 0.36 STAR +- +wasm +\d+$`)

	sell("price", "cpu", "0.40").Want(t, cli.ExitOK, `^cpu .* 0.40 STAR`)
	var offers []api.OfferInfo
	clitest.Eventually(t, "the new price is offered", func() bool {
		r := w.CLI(t, "offers", "-o", "json")
		return json.Unmarshal([]byte(r.Out), &offers) == nil && len(offers) == 2 && offers[1].Price == 400_000
	})
	sell("price", "cpu").Want(t, cli.ExitUsage, `needs 2 arguments`)
	sell("price", "CPU", "1").Want(t, cli.ExitUsage, `class`)
	sell("price", "cpu", "cheap").Want(t, cli.ExitUsage, `not a decimal number`)
	sell("price", "gpu/h100", "1").Want(t, cli.ExitUsage, `class gpu/h100: not sold here; sold are cpu`, "^hint: `starling provider status`")
	sell("price", "cpu", "0.30").Want(t, cli.ExitOK, `^cpu .* 0.30 STAR`)

	// The job goes to this one, whose operator then wants to stop it.
	r := w.CLI(t, "run", "-d", "--max-price", "1", "--budget", "1", "--exclude", offers[0].Provider.String(), filepath.Join(w.Files, "work.wasm")).Want(t, cli.ExitOK, `j\w{8,}`)
	id := strings.TrimSpace(r.Out)
	clitest.Eventually(t, "the job runs", func() bool { return strings.Contains(w.CLI(t, "status", id).Out, "0     running") })
	w.CLI(t, "--home", w.Seller, "provider", "leases").Want(t, cli.ExitOK, `^LEASE .* UNITS +OF +RECEIPTS`, `active +1 +cpu +\d+`)
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^RANK .* UNITS +REASON`, `^0 .* cpu`)
	var out, errOut clitest.Buffer
	code := make(chan int, 1)
	go func() {
		code <- w.App(&out, &errOut).Run(t.Context(), []string{"--home", w.Seller, "provider", "drain", "--wait"})
	}()
	clitest.Eventually(t, "the drain says what is left", func() bool { return strings.Contains(errOut.String(), "1 lease left\n") })
	sell("status").Want(t, cli.ExitOK, `^state +draining$`, `^leases +1$`)
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
	if c := <-code; c != 0 || !strings.Contains(errOut.String(), "no lease is left: the peer can be stopped\n") || !strings.Contains(out.String(), "drained") {
		t.Errorf("exit code %d\n%s\n%s", c, out.String(), errOut.String())
	}
	sell("resume", "GPU-1").Want(t, cli.ExitUsage, `"GPU-1": not among the units that are withdrawn`)
	sell("resume").Want(t, cli.ExitOK, `^state +selling$`)
	sell("pause", "-o", "json").Want(t, cli.ExitOK, `"state": "paused"`)
	sell("pause", "now").Want(t, cli.ExitUsage, `does not take`)
}
