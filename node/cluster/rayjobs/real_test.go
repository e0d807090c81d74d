package rayjobs

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"testing"
)

// TestRay goes through a job on a head that runs already, such as `RAY_AUTH_MODE=token RAY_AUTH_TOKEN=… ray start --head`:
// STARLING_RAY_HEAD is its address (127.0.0.1:8265), STARLING_RAY_TOKEN its token.
func TestRay(t *testing.T) {
	t.Parallel()
	at := os.Getenv("STARLING_RAY_HEAD")
	if at == "" {
		t.Skip("STARLING_RAY_HEAD is not set: no head of Ray to try it on")
	}
	c := New(Config{Token: os.Getenv("STARLING_RAY_TOKEN"), Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", at)
	}})
	defer c.Close()
	v, err := c.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log("ray ", v)
	p, err := Pack(tree(t, map[string]string{"sub/say.py": "import os, sys\nprint('hello', os.environ['K'], sys.argv[1:])\nsys.exit(3)\n"}))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := c.Upload(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	r := Request{ID: NewID(), Entrypoint: Quote([]string{"python", "sub/say.py", "it's", "a b"}), WorkingDir: p.URI(), Env: map[string]string{"K": "V"}}
	if err := c.Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	j, err := c.Follow(t.Context(), r.ID, &log)
	if err != nil || j.Status != Failed || j.Exit == nil || *j.Exit != 3 {
		t.Errorf("%+v, %v", j, err)
	}
	if want := `hello V ["it's", 'a b']`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, log.String())
	}
	if err := c.Submit(t.Context(), r); err == nil || !strings.Contains(err.Error(), ErrExists.Error()) {
		t.Errorf("the same id twice: %v", err)
	}
	if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) == 0 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	if going, err := c.Stop(t.Context(), r.ID); err != nil || going {
		t.Errorf("%v, %v", going, err)
	}
}
