package peercmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
)

// A peer that cannot start says what to change.
func TestOpenError(t *testing.T) {
	t.Parallel()
	for hint, err := range map[string]error{
		"correct home/config.yaml":                  fmt.Errorf("%w: price", node.ErrConfig),
		"stop that one first":                       node.ErrRuns,
		"another program listens there":             fmt.Errorf("listening: %v", syscall.EADDRINUSE),
		"set the peer up with `starling init --gen": os.ErrNotExist,
	} {
		e, ok := openError("home", err).(*cli.Error)
		if !ok || e.Code != cli.ExitUsage || !strings.HasPrefix(e.Hint, hint) {
			t.Errorf("%v: %+v, want the hint %q", err, e, hint)
		}
	}
}

// A peer that reached no other warns, if it was to join by one.
func TestWarnUnjoined(t *testing.T) {
	t.Parallel()
	const boot = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
	for _, c := range []struct {
		bootstrap string
		peers     int
		warns     bool
	}{{boot, 0, true}, {boot, 1, false}, {"", 0, false}} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(api.NodeInfo{Peers: c.peers})
		}))
		defer s.Close()
		home := t.TempDir()
		endpoint, err := json.Marshal(api.Endpoint{URL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{node.FileAPI: string(endpoint), node.FileConfig: "bootstrap: [" + c.bootstrap + "]\n"} {
			if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		warnUnjoined(t.Context(), home, log, time.Nanosecond)
		if got := strings.Contains(out.String(), "no other peer was reached"); got != c.warns {
			t.Errorf("bootstrap %q, %d peers: logged %q", c.bootstrap, c.peers, out.String())
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		warnUnjoined(ended, home, log, time.Hour) // a peer that stops does not wait
	}
}

// The configuration that init writes names every setting.
func TestConfigNamesEverySetting(t *testing.T) {
	t.Parallel()
	var check func(path string, typ reflect.Type)
	check = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			if !regexp.MustCompile(`(^|[\s{,#])` + name + `:`).MatchString(configText) {
				t.Errorf("%s%s: not in %s", path, name, node.FileConfig)
			}
			check(path+name+".", typ.Field(i).Type)
		}
	}
	check("", reflect.TypeFor[node.Config]())
}
