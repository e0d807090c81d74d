package server

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestAttackAnotherUser: no other user of the machine can connect to the API, nor listen in its place while no peer runs, and over TCP, where
// that is configured, no numbers are told to those without a token.
func TestAttackAnotherUser(t *testing.T) {
	t.Parallel()
	listen := func(addr, home string) *Server {
		t.Helper()
		s, err := Listen(addr, filepath.Join(home, "api.json"), newFake(), bindings(newFake()), p2ptest.Quiet())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	home := t.TempDir()
	first := listen("", home)
	socket := filepath.Join(home, fileSocket)
	info, err := os.Lstat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := first.ln.Listener.Close(); err != nil { // the peer is killed
		t.Fatal(err)
	}
	c, err := api.Dial(home, "api.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.GetNode.Call(t.Context(), c, api.None{}); !errors.Is(err, api.ErrNoPeer) {
		t.Errorf("of a killed peer: %v", err)
	}
	stop := p2ptest.Go(t, listen("", home).Run) // in the place of its socket
	if c, err = api.Dial(home, "api.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := api.GetNode.Call(t.Context(), c, api.None{}); err != nil {
		t.Error(err)
	}
	stop()
	left, err := os.ReadDir(home)
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left: %v", left, err)
	}

	// In a home whose path is too long for a socket it is elsewhere, and as private.
	home = filepath.Join(t.TempDir(), strings.Repeat("d", maxSocket))
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	s := listen("", home)
	if info, err := os.Stat(s.ln.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	stop = p2ptest.Go(t, s.Run)
	if c, err = api.Dial(home, "api.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := api.GetNode.Call(t.Context(), c, api.None{}); err != nil {
		t.Error(err)
	}
	resp, err := c.Endpoint().HTTP().Get(c.Endpoint().URL + "/metrics")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("metrics over the socket: %v, %v", resp, err)
	}
	stop()
	if _, err := os.Stat(s.ln.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}

	home = t.TempDir()
	p2ptest.Go(t, listen("127.0.0.1:0", home).Run)
	if c, err = api.Dial(home, "api.json"); err != nil {
		t.Fatal(err)
	}
	resp, err = http.Get(c.Endpoint().URL + "/metrics")
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("metrics over TCP: %v, %v", resp, err)
	}
	if _, err := ListenMetrics("0.0.0.0:0", newFake(), p2ptest.Quiet()); err == nil {
		t.Error("metrics are told to other machines")
	}
}
