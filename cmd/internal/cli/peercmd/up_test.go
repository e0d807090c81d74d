package peercmd

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/config"
)

// A peer that cannot start says what to change.
func TestOpenError(t *testing.T) {
	t.Parallel()
	for hint, err := range map[string]error{
		"correct home/config.yaml":                  fmt.Errorf("%w: price", config.ErrConfig),
		"stop that one first":                       node.ErrRuns,
		"another program listens on that address":   fmt.Errorf("listening: %v", syscall.EADDRINUSE),
		"set the peer up with `starling init --gen": os.ErrNotExist,
	} {
		e, ok := openError("home", err).(*cli.Error)
		if !ok || e.Code != cli.ExitUsage || !strings.HasPrefix(e.Hint, hint) {
			t.Errorf("%v: %+v, want the hint %q", err, e, hint)
		}
	}
}

// The configuration that init writes has every setting in its place, as a line or as a commented example that can be read.
func TestConfigNamesEverySetting(t *testing.T) {
	t.Parallel()
	text, err := initOptions{region: "local", price: "0.05"}.configText()
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^( *)# ([a-z]\w*:( |$))`).ReplaceAll(text, []byte("$1$2"))
	c := config.Default()
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.DisallowUnknownField()); err != nil {
		t.Errorf("reading %s with its examples: %v", config.FileConfig, err)
	}
	c.Egress.Mode = "allowlist" // the file sets none, for which rules are without effect
	if err := c.Validate(); err != nil {
		t.Errorf("%s with its examples: %v", config.FileConfig, err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var check func(path string, typ reflect.Type, in any)
	check = func(path string, typ reflect.Type, in any) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			if list, ok := in.([]any); ok && len(list) > 0 {
				in = list[0]
			}
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		has, _ := in.(map[string]any)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			if _, ok := has[name]; !ok {
				t.Errorf("%s%s: not in %s", path, name, config.FileConfig)
			}
			check(path+name+".", typ.Field(i).Type, has[name])
		}
	}
	check("", reflect.TypeFor[config.Config](), all)
}

// In the background a peer is started only in a home directory, and stopped only where one runs.
func TestUpInTheBackground(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	code, _, text := clitest.Run(t, NewUp, "up", "-d", "--home", filepath.Join(home, "nothing"))
	if code != int(cli.ExitUsage) || !strings.Contains(text, "hint: set the peer up with `starling init") {
		t.Errorf("without a home directory: code %d, %q", code, text)
	}
	code, _, text = clitest.Run(t, NewPeer, "peer", "stop", "--home", home)
	if code != 0 || !strings.Contains(text, "no peer runs in "+home) {
		t.Errorf("without a peer: code %d, %q", code, text)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("the home directory has %v, %v", entries, err)
	}
}
