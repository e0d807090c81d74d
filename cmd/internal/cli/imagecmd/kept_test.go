//go:build unix

package imagecmd

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/api"
)

// The images that a provider keeps are listed, and removed by the beginning of an ID that only one has.
func TestKeptImages(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("a", 63)+"1", strings.Repeat("a", 63)+"2"
	all := []api.ImageInfo{
		{ID: one + "-00", Digest: "sha256:" + one, Size: 3 << 30, Used: time.Now().Add(-2 * time.Hour), Public: true},
		{ID: two + "-00", Digest: "sha256:" + two, Size: 1 << 20, Used: time.Now().Add(-time.Hour - time.Second*90), InUse: true},
		{ID: "bb\x1b", Size: 1},
		{ID: strings.Repeat("c", 64), Size: 1 << 10, Used: time.Now().Add(-time.Hour), InUse: true, Names: []string{"acme/app:v1"}},
		{ID: strings.Repeat("d", 64), Incomplete: true, Names: []string{"app", "other"}},
	}
	p := clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{NewImage}, clitest.Network, clitest.Answers{
		"GET /v1/images": all, "DELETE /v1/images/" + one + "-00": struct{}{},
		"DELETE /v1/images/" + two + "-00": &api.Error{Status: http.StatusConflict, Code: "in_use", Message: "image is in use"},
	})
	p.CLI(t, "image", "ls").Want(t, cli.ExitOK, `^ID +SIZE +LAST USE +IN USE +PUBLIC +KEPT +NAME$`,
		`^a{12} +3\.0 GiB +2h +no +yes +until room is needed *$`, `^a{12} +1\.0 MiB +\w+ +yes +no +until room is needed *$`,
		`^c{12} +1\.0 KiB +\w+ +yes +no +for a job +acme/app:v1$`, `^d{12} .* incomplete +app, other$`).Not(t, "\x1b")
	p.CLI(t, "image", "ls", "-o", "json").Want(t, cli.ExitOK, `"id": "`+one+`-00"`)
	p.Asked()
	p.CLI(t, "image", "rm", "sha256:"+one).Want(t, cli.ExitOK, `^a{12}$`)
	if asked := p.Asked(); !slices.Contains(asked, "DELETE /v1/images/"+one+"-00") {
		t.Errorf("asked for %q", asked)
	}
	p.CLI(t, "image", "rm", two).Want(t, cli.ExitUsage, `image is in use`)
	for _, id := range []string{"a", "e", ""} {
		p.CLI(t, "image", "rm", id).Want(t, cli.ExitUsage, `images have this ID`, `^hint: starling image ls`)
	}
	p.CLI(t, "image", "rm").Want(t, cli.ExitUsage, `needs an ID`)
}
