package rooms

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/buyer"
)

// testDockerLogin hands in a job whose image needs the user's docker login, and looks for the password wherever the peers write.
func (w *world) testDockerLogin(t *testing.T) {
	file := w.file(t, "private.yaml", `{apiVersion: v1, kind: Job, metadata: {name: private}, spec: {registryAuth: docker,
  image: "registry.example/a/b@sha256:`+strings.Repeat("ab", 32)+`", payment: {maxPrice: 1}, timeouts: {queue: 1h, run: 1m}}}`)
	w.docker, w.path = filepath.Dir(w.file(t, "docker/config.json", `{"credsStore": "broken"}`)), clitest.HelperDir(t)
	r := w.cli(t, "submit", "-d", file).Want(t, cli.ExitUsage, "registry credentials: docker-credential-broken has no credentials for registry.example")
	if strings.Contains(r.Out+r.Err, clitest.PullSecret) {
		t.Errorf("the password is shown: %+v", r)
	}
	w.file(t, "docker/config.json", `{"credHelpers": {"registry.example": "good"}}`)
	out := w.must(t, "submit", "-d", "-o", "json", file)
	var j buyer.Job
	if err := json.Unmarshal([]byte(out), &j); err != nil || j.ID == "" {
		t.Fatalf("%s: %v", out, err)
	}
	w.must(t, "stop", j.ID)
	w.cli(t, "wait", j.ID)
	w.nowhere(t)
}
