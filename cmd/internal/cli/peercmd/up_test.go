package peercmd

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node"
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
