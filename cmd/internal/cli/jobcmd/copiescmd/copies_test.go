package copiescmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// The exported file has the key, is readable by its owner alone, and replaces no other.
func TestSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "copies.json")
	s := record.ShownCopies{Job: "jabcdefgh", Key: "AGE-SECRET-KEY-1X", Copies: []record.ShownCopy{}}
	if err := save(s, path); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", st.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var again record.ShownCopies
	if err := json.Unmarshal(text, &again); err != nil || again.Key != s.Key || again.Job != s.Job {
		t.Errorf("read as %+v, %v", again, err)
	}
	if err := save(s, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v, want ErrExist", err)
	}
}

// Each copy has a line with its result, below the sum of the costs; copies that end before are counted.
func TestExtended(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(48 * time.Hour)
	x := record.ExtendedCopies{Job: "jabcdefgh", Until: until, Copies: []record.ExtendedCopy{
		{Job: "jv1", Provider: sign.Key{1}, State: record.Extended, Until: until, Extra: 1_500_000},
		{Job: "jv2", Provider: sign.Key{2}, State: record.NotExtended, Reason: "the provider drains"},
		{Job: "jv3", State: record.NoLease},
	}}
	var out bytes.Buffer
	a := &cli.App{Out: &out, Output: cli.OutputTable}
	g := market.Genesis{Symbol: "STAR", Decimals: 6}
	if err := a.Show(x, func(t *cli.Table) { extended(t, g, x) }); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "PROVIDER") })
	if at < 0 || len(lines) < at+4 || !strings.Contains(out.String(), "costs more, at most") {
		t.Fatalf("shown:\n%s", out.String())
	}
	column := strings.Index(lines[at], "STATE")
	for i, want := range []string{"extended", "refused", "waiting"} {
		if line := lines[at+1+i]; len(line) < column || !strings.HasPrefix(line[column:], want) {
			t.Errorf("line %q, want %s in column %d", line, want, column)
		}
	}
	if !strings.Contains(lines[at+2], "the provider drains") || !strings.Contains(lines[at+1], "1.5") {
		t.Errorf("shown:\n%s", out.String())
	}
	if got := short(x); !strings.HasPrefix(got, "1 of 3 copies") {
		t.Errorf("said %q", got)
	}
	x.Copies[1].State, x.Copies[1].Until = record.Extended, until.Add(-time.Hour)
	if got := short(x); !strings.HasPrefix(got, "1 of 3 copies") {
		t.Errorf("of one that was extended in part, said %q", got)
	}
	x.Copies = x.Copies[:1]
	if got := short(x); got != "" {
		t.Errorf("of one that was extended, said %q", got)
	}
}
