package rooms

import (
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/p2p"
)

func TestMain(m *testing.M) { clitest.Main(m, Commands) }

// The commands of a light client: what they carry goes through a circuit of its one entry, to providers to which it has no
// connection.
func TestLight(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewLightWorld(t, Commands, p2p.NAT{Serve: true}, false)}
	t.Run("group", func(t *testing.T) {
		t.Run("run", func(t *testing.T) { t.Parallel(); w.testRun(t) })
		t.Run("detach", func(t *testing.T) { t.Parallel(); w.testDetach(t) })
		t.Run("dryrun", func(t *testing.T) { t.Parallel(); w.testDryRun(t) })
		t.Run("quote", func(t *testing.T) { t.Parallel(); w.testQuote(t) })
	})
	w.WantRelayed(t)
}
