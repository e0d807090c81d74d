package house

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// tree parses the real tree once for all tests.
var tree = sync.OnceValues(func() ([]File, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return Load(root)
})

func load(t *testing.T) []File {
	t.Helper()
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file found: the rules would hold over nothing")
	}
	return files
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func report(t *testing.T, breaches []string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

func TestImportOrder(t *testing.T) {
	t.Parallel()
	report(t, CheckImports(load(t)), nil)
}

func TestCoresArePure(t *testing.T) {
	t.Parallel()
	report(t, CheckPure(load(t)), nil)
}

func TestEveryPackageHasAComment(t *testing.T) {
	t.Parallel()
	report(t, CheckPackageComments(load(t)), nil)
}

func TestTopLevel(t *testing.T) {
	t.Parallel()
	breaches, err := CheckTopLevel(root(t))
	report(t, breaches, err)
}

func TestNothingIsLeftForLater(t *testing.T) {
	t.Parallel()
	breaches, err := CheckNothingLeftForLater(root(t))
	report(t, breaches, err)
}

func TestGoModReplacesNothing(t *testing.T) {
	t.Parallel()
	breaches, err := CheckGoMod(root(t))
	report(t, breaches, err)
}

func TestMainOnlyCalls(t *testing.T) {
	t.Parallel()
	breaches, err := CheckMain(root(t))
	report(t, breaches, err)
}

// The rules are worth something only if they can fail: each case is a small tree that breaks exactly one.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	const doc = "// Package x is a case.\n"
	imports := func(p string) string { return doc + "package x\nimport _ \"" + p + "\"\n" }
	cases := []struct {
		name, file, source, want string
	}{
		{"market imports libp2p", "market/a.go", imports("github.com/libp2p/go-libp2p"), "market is a core"},
		{"market imports node", "market/match/a.go", imports(Module + "/node"), "market is a core"},
		{"market imports verify", "market/a.go", imports(Module + "/verify"), "market is a core"},
		{"p2p imports market", "p2p/a.go", imports(Module + "/market"), "p2p is generic"},
		{"node imports testnet", "node/a.go", imports(Module + "/testnet"), "node composes"},
		{"node imports cmd", "node/a.go", imports(Module + "/cmd/internal/cli"), "node composes"},
		{"main imports testnet", "cmd/starling/a.go", imports(Module + "/testnet"), "the command line"},
		{"chain imports chain/solana", "chain/a.go", imports(Module + "/chain/solana"), "settlement machine is a core"},
		{"node imports solana-go", "node/a.go", imports("github.com/gagliardetto/solana-go"), "one folder knows Solana"},
		{"a test of node imports solana-go", "node/a_test.go", imports("github.com/gagliardetto/solana-go"), "one folder knows Solana"},
		{"node imports purego", "node/device/cuda/a.go", imports("github.com/ebitengine/purego"), "no longer static"},
		{"node imports the driver", "node/a.go", imports(Module + "/node/device/cuda/driver"), "only the program starling-cuda"},
		{"the peer links the driver", "cmd/starling/a.go", imports(Module + "/node/device/cuda/driver"), "starts it and does not link it"},
		{"core starts a goroutine", "verify/a.go", doc + "package x\nfunc f() { go f() }\n", "starts a goroutine"},
		{"support starts a goroutine", "chain/chaintest/a.go", doc + "package x\nfunc f() { go f() }\n", "starts a goroutine"},
		{"core reads the clock", "market/a.go", doc + "package x\nimport clock \"time\"\nvar x = clock.Now\n", "calls time.Now"},
		{"core draws randomness", "market/a.go", imports("crypto/rand"), "imports crypto/rand"},
		{"core opens files", "chain/a.go", imports("os"), "imports os"},
		{"core dials", "market/a.go", imports("net/http"), "imports net/http"},
		{"no package comment", "node/x/a.go", "package x\n", "no package comment"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := filepath.Join(dir, filepath.FromSlash(c.file))
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(c.source), 0o644); err != nil {
				t.Fatal(err)
			}
			files, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			breaches := append(CheckImports(files), CheckPure(files)...)
			breaches = append(breaches, CheckPackageComments(files)...)
			if len(breaches) != 1 || !strings.Contains(breaches[0], c.want) {
				t.Errorf("got %q, want one breach with %q", breaches, c.want)
			}
		})
	}
}

func TestTextRulesCanFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mark := "TO" + "DO"
	for name, text := range map[string]string{
		"go.mod":               "module x\n\nreplace a => b\n",
		"notes.md":             mark + ": later\n",
		"cmd/starling/main.go": strings.Repeat("// x\n", MaxMainLines+1),
	} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, check := range map[string]func(string) ([]string, error){
		"replace": CheckGoMod, "marks": CheckNothingLeftForLater, "main": CheckMain, "top level": CheckTopLevel,
	} {
		if breaches, err := check(dir); err != nil || len(breaches) != 1 {
			t.Errorf("%s: got %q, %v, want one breach", name, breaches, err)
		}
	}
}
