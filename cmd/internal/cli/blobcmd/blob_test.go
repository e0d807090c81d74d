package blobcmd_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/blobcmd"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p/blob"
)

func answering(t *testing.T, all clitest.Answers) *clitest.Answering {
	t.Helper()
	return clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{blobcmd.New}, clitest.Network, all)
}

// Files are listed with those who brought them and what needs them; gc says how much room it made.
func TestBlobs(t *testing.T) {
	t.Parallel()
	used := time.Now().Add(-3 * time.Hour)
	all := []api.StoredBlob{
		{CID: "bafkone", Size: 3 << 20, Used: used, Holders: []string{"key a", "peer 12D3KooWabcdefghijkl", "peer x", "peer y"}, Needed: []string{"job", "lease"}},
		{CID: "bafktwo", Size: 1 << 10, Used: used, Holders: []string{}, Needed: []string{}},
	}
	p := answering(t, clitest.Answers{"GET /v1/blobs": all, "DELETE /v1/blobs": all[1:]})
	p.CLI(t, "blob", "ls").Want(t, cli.ExitOK, `^CID +SIZE +AGE +HOLDERS +NEEDED BY$`,
		`^bafkone +3\.0 MiB +3h +key a, peer …efghijkl, 2 others +job, lease$`, `^bafktwo +1\.0 KiB +3h +- +-$`)
	p.CLI(t, "blob", "gc").Want(t, cli.ExitOK, `^bafktwo `, `^removed 1 file, 1\.0 KiB$`)
	p.CLI(t, "blob", "gc", "--dry-run").Want(t, cli.ExitOK, `^would remove 1 file, 1\.0 KiB$`)
	p.CLI(t, "blob", "get", "nonsense", "x").Want(t, cli.ExitUsage, `not the CID of a blob`)
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := blob.Sum([]byte("x")).String()
	p = answering(t, clitest.Answers{"GET /v1/blobs/{cid}": "x"})
	p.CLI(t, "blob", "get", c, there).Want(t, cli.ExitUsage, `file exists`)
	p.CLI(t, "blob", "get", c, there+".new").Want(t, cli.ExitOK)
	if b, err := os.ReadFile(there + ".new"); err != nil || len(b) == 0 {
		t.Errorf("got %q, %v", b, err)
	}
}
