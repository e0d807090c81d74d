package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// appOf is a command line in an environment.
func appOf(env map[string]string) *App {
	return &App{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Getenv: func(name string) string { return env[name] }, Output: OutputTable}
}

// The directories of a peer and of a light client follow from flags and environment; relative XDG directories do not
// count.
func TestHomes(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		home                     string
		env                      map[string]string
		peer, client, own, cache string
	}{
		{"", map[string]string{"HOME": "/u"}, "/u/.local/share/starling", "/u/.local/share/starling/client", "/u/.local/share/starling", "/u/.cache/starling"},
		{"", map[string]string{"HOME": "/u", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c"}, "/d/starling", "/d/starling/client", "/d/starling", "/c/starling"},
		{"", map[string]string{"HOME": "/u", "XDG_DATA_HOME": "d", "XDG_CACHE_HOME": ""}, "/u/.local/share/starling", "/u/.local/share/starling/client",
			"/u/.local/share/starling", "/u/.cache/starling"},
		{"", map[string]string{"HOME": "/u", "STARLING_HOME": "/s/../p"}, "/p", "/p/client", "/p", "/u/.cache/starling"},
		{"/h", map[string]string{"HOME": "/u", "STARLING_HOME": "/s"}, "/h", "/h", "/h", "/u/.cache/starling"},
		{"", map[string]string{"HOME": "/u", "STARLING_HOME": "/s", "STARLING_PEER": " , /ip4/1.2.3.4"}, "/s", "/s/client", "/s/client", "/u/.cache/starling"},
		{"", map[string]string{"HOME": "/u", "STARLING_HOME": "/s", "STARLING_PEER": " , "}, "/s", "/s/client", "/s", "/u/.cache/starling"},
	} {
		a := appOf(x.env)
		a.home = x.home
		peer, err1 := a.PeerHome()
		client, err2 := a.ClientHome()
		own, err3 := a.Home()
		cache, err4 := a.Cache()
		if errors.Join(err1, err2, err3, err4) != nil || peer != x.peer || client != x.client || own != x.own || cache != x.cache {
			t.Errorf("%q, %v: %s, %s, %s, %s", x.home, x.env, peer, client, own, cache)
		}
	}
}

// Entry peers come from --peer, even if it is empty, and else from the environment; spaces and empty ones are left out.
func TestLight(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		set       bool
		peer, env string
		want      string
	}{
		{false, "", "", ""}, {false, "", "/a, /b,,", "/a|/b"}, {true, "", "/a", ""}, {true, "/c", "/a", "/c"}, {true, " ,", "/a", ""},
	} {
		a := appOf(map[string]string{"STARLING_PEER": x.env})
		a.peer, a.peerSet = x.peer, x.set
		if peers, ok := a.Light(); strings.Join(peers, "|") != x.want || ok != (x.want != "") {
			t.Errorf("--peer %q (%t), variable %q: %q, %t", x.peer, x.set, x.env, peers, ok)
		}
	}
}

// A network that is not there is a peer that is not here; one that cannot be read is a wrong configuration.
func TestGenesis(t *testing.T) {
	t.Parallel()
	a := appOf(map[string]string{"STARLING_HOME": t.TempDir()})
	if _, err := a.Genesis(); Explain(err).Code != ExitUnreachable || !strings.Contains(Explain(err).Hint, "starling init") {
		t.Errorf("none: %v", err)
	}
	home, _ := a.Home()
	for _, text := range []string{"", "{", `{"network":"x","extra":1}`, strings.Repeat(" ", 1<<20)} {
		if err := os.WriteFile(filepath.Join(home, config.FileGenesis), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Genesis(); Explain(err).Code != ExitUsage {
			t.Errorf("%.30q: %v", text, err)
		}
	}
}

// The owner is that of the configuration, else that of the home directory, else the peer itself.
func TestReadAddresses(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if _, err := ReadAddresses(home); Explain(err).Code != ExitUsage || Explain(err).Hint != "starling init" {
		t.Errorf("no peer: %v", err)
	}
	key := sign.NewPrivate([32]byte{1})
	if _, err := p2p.SaveIdentity(filepath.Join(home, config.FileIdentity), key.Seed()); err != nil {
		t.Fatal(err)
	}
	want := func(owner sign.Key, in string) {
		t.Helper()
		if w, err := ReadAddresses(home); err != nil || w != (Addresses{Owner: owner, OwnerIn: in, Key: key.Key()}) {
			t.Errorf("got %+v, %v, want %v from %s", w, err, owner, in)
		}
	}
	want(key.Key(), config.FileIdentity)
	own, cold := sign.NewPrivate([32]byte{2}).Key(), sign.NewPrivate([32]byte{3}).Key()
	if err := config.SaveOwner(home, own); err != nil {
		t.Fatal(err)
	}
	want(own, config.FileOwner)
	file := filepath.Join(home, config.FileConfig)
	if err := os.WriteFile(file, []byte("owner: "+cold.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(cold, config.FileConfig)
	for _, text := range []string{"owner: nobody\n", "owner: [\n", "nonsense: 1\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadAddresses(home); err == nil {
			t.Errorf("%q is a configuration", text)
		}
	}
	if err := os.WriteFile(filepath.Join(home, config.FileIdentity), []byte("[1,2]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAddresses(home); err == nil || Explain(err).Hint == "starling init" {
		t.Errorf("a malformed key: %v", err)
	}
}

// Numbers and times as people read them, at the borders of each unit.
func TestTexts(t *testing.T) {
	t.Parallel()
	g := market.Genesis{Symbol: "STAR", Decimals: 6}
	now := time.Unix(1000, 0)
	for want, got := range map[string]string{
		"1 rank": Count(1, "rank"), "0 ranks": Count(0, "rank"), "-1 ranks": Count(-1, "rank"),
		"9.9ms": Millis(9.94), "10.0ms": Millis(9.99), "10ms": Millis(10.4), "119s": Span(119 * time.Second), "2m": Span(2 * time.Minute), "119m": Span(2*time.Hour - 1),
		"47h": Span(48*time.Hour - 1), "2d": Span(48 * time.Hour), "30s": Ago(now, now.Add(-30*time.Second)), "0s": Ago(now, now.Add(time.Hour)),
		"1.5 STAR": "1.5 STAR", "2.50 STAR": LimitText(g, 2_500_000), "5.13ms": Took(5_131_000), "12ms": Took(12_400_000), "20µs": Took(15_000),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, none := range []string{Millis(0), Millis(-1), Ago(now, time.Time{}), LimitText(g, 0)} {
		if none != "-" {
			t.Errorf("got %q, want -", none)
		}
	}
	if Took(0) != "" || Took(-time.Second) != "" {
		t.Errorf("no time is %q", Took(0))
	}
	for text, most := range map[string]int{"": 1, "ab": 2, "世界": 2} {
		if got := Clip(text, most); got != text {
			t.Errorf("%q in %d is %q", text, most, got)
		}
	}
	if got := Clip("世界人", 2); got != "世…" {
		t.Errorf("got %q", got)
	}
}

// Amounts, addresses and ranks of the command line are refused with the flag's name, and never at length.
func TestArguments(t *testing.T) {
	t.Parallel()
	g := market.Genesis{Decimals: 2}
	if n, err := Amount("--budget", "1.25", g); err != nil || n != 125 {
		t.Errorf("got %d, %v", n, err)
	}
	long := strings.Repeat("9", 5000)
	job := record.Job{ID: "j1", Ranks: make([]record.Rank, 2)}
	_, err1 := Amount("--budget", "1.255", g)
	_, err2 := Amount("--budget", long, g)
	_, err3 := Address("--provider", long)
	for i, err := range []error{err1, err2, err3, CheckRank(job, 2), CheckRank(job, AllRanks)} {
		if e := Explain(err); e.Code != ExitUsage || !strings.HasPrefix(e.Error(), "--") || len(e.Error()) > 200 {
			t.Errorf("%d: %v", i, err)
		}
	}
	if CheckRank(job, 0) != nil || CheckRank(job, 1) != nil {
		t.Error("a rank of the job is refused")
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(file, 5); err != nil || string(b) != "12345" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadFile(file, 4); err == nil || !strings.Contains(err.Error(), "too large: got 5 bytes, want at most 4") {
		t.Errorf("got %v", err)
	}
}

// An id is found by a beginning that only one has.
func TestFindOne(t *testing.T) {
	t.Parallel()
	ids := []string{"abc", "abd", "b"}
	for id, want := range map[string]string{"abc": "abc", "abd": "abd", "b": "b", "ab": "", "x": "", "": "", "abcd": ""} {
		got, err := FindOne(ids, id, func(s string) string { return s })
		if (err == nil) != (want != "") || err == nil && got != want || err != nil && Explain(err).Code != ExitUsage {
			t.Errorf("%q: %q, %v, want %q", id, got, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab]{3}`), 1, 5, rapid.ID).Draw(t, "ids")
		id := rapid.SampledFrom(all).Draw(t, "id")
		if got, err := FindOne(all, id, func(s string) string { return s }); err != nil || got != id {
			t.Fatalf("%s of %v: %s, %v", id, all, got, err)
		}
	})
}

// The number of arguments is refused with the usage line; one too many is named.
func TestExactArgs(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		n    int
		args []string
		want string
	}{
		{0, []string{"a"}, `starling: x does not take "a"`}, {1, nil, "starling: x needs an argument"}, {2, []string{"a"}, "starling: x needs 2 arguments, not 1"},
		{2, []string{"a", "b", "c\x1b"}, `starling: x does not take "c\x1b"`}, {1, []string{"a"}, ""}, {0, nil, ""},
	} {
		code, _, text := runLine(t, func(*App) *cobra.Command {
			return &cobra.Command{Use: "x A B", Args: ExactArgs(x.n), RunE: func(*cobra.Command, []string) error { return nil }}
		}, append([]string{"x"}, x.args...)...)
		want, exit := "", ExitOK
		if x.want != "" {
			want, exit = x.want+"\nhint: starling x A B [flags]\n", ExitUsage
		}
		if code != int(exit) || text != want && text != strings.Replace(want, " [flags]", "", 1) {
			t.Errorf("%q: code %d, %q, want %q", x.args, code, text, want)
		}
	}
}

// One value in each format: the table for people, the other two with the names and numbers of JSON.
func TestShow(t *testing.T) {
	t.Parallel()
	v := map[string]any{"name": "a <é> \x1b\x7f\u009b", "amount": uint64(1<<64 - 1)}
	const asJSON = "{\n  \"amount\": 18446744073709551615,\n  \"name\": \"a <é> \\u001b\\u007f\\u009b\"\n}\n"
	for format, want := range map[string]string{"table": "name  a <é>    \n", "json": asJSON, "yaml": asJSON} {
		_, out, _ := runLine(t, func(a *App) *cobra.Command {
			return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
				return a.Show(v, func(t *Table) { t.Row("name", v["name"]) })
			}}
		}, "x", "-o", format)
		if out != want {
			t.Errorf("%s: got %q, want %q", format, out, want)
		}
	}
	code, out, text := runLine(t, func(a *App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return a.Show(make(chan int), nil) }}
	}, "x", "-o", "yaml")
	if code != int(ExitFailed) || out != "" || !strings.Contains(text, "unsupported type") {
		t.Errorf("code %d, %q, %q", code, out, text)
	}
	if code, _, text := runLine(t, showVersionCommand, "x", "-o", "xml"); code != int(ExitUsage) || !strings.Contains(text, "want table, json or yaml") {
		t.Errorf("code %d, %q", code, text)
	}
	if code, out, _ := runLine(t, showVersionCommand, "x", "-o", "json"); code != 0 || !strings.Contains(out, `"platform": "`) {
		t.Errorf("code %d, %q", code, out)
	}
}

func showVersionCommand(a *App) *cobra.Command {
	return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return showVersion(a) }}
}

// A value is exported to a file, or to standard output for "-".
func TestExport(t *testing.T) {
	t.Parallel()
	a := appOf(nil)
	path := filepath.Join(t.TempDir(), "v.json")
	if file, err := a.Export(path, []int{1}); !file || err != nil {
		t.Errorf("%t, %v", file, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "[\n  1\n]\n" {
		t.Errorf("%q, %v", b, err)
	}
	if file, err := a.Export("-", "x"); file || err != nil || a.Out.(*bytes.Buffer).String() != "\"x\"\n" {
		t.Errorf("%t, %v, %q", file, err, a.Out)
	}
	if _, err := a.Export(filepath.Join(path, "below"), 1); err == nil {
		t.Error("a file below a file was written")
	}
}

// An error of several lines keeps them, and none of them drives the terminal.
func TestReportLines(t *testing.T) {
	t.Parallel()
	code, _, text := runLine(t, func(*App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
			return WithHint(Usagef("\none\x1b[2J\n two\u009b \n"), "do\nthis")
		}}
	}, "x")
	if want := "starling: one [2J\n two \nhint: do this\n"; code != int(ExitUsage) || text != want {
		t.Errorf("code %d, %q, want %q", code, text, want)
	}
	code, _, text = runLine(t, func(*App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return fmt.Errorf("running: %w", &ExitError{Code: 42}) }}
	}, "x")
	if code != 42 || text != "" {
		t.Errorf("a command's own code: %d, %q", code, text)
	}
	if WithHint(nil, "x") != nil || Explain(&ExitError{Code: 3}).Error() != "exit code 3" {
		t.Error("no error has a hint")
	}
}

// Elsewhere than on a terminal only facts that stay are written, each a line without control characters.
func TestProgress(t *testing.T) {
	t.Parallel()
	a := appOf(nil)
	p := a.Progress()
	p.Status("uploading %d", 1)
	p.Say("job\n%s", "\x1b[2Jj1")
	if _, err := p.Above(a.Err).Write([]byte("log\n")); err != nil {
		t.Fatal(err)
	}
	p.Clear()
	if got, want := a.Err.(*bytes.Buffer).String(), "job  [2Jj1\nlog\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Prefixed lines are the written lines, each with its prefix, for any pieces of them.
func TestPrefixedProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		var all strings.Builder
		p := &Prefixed{W: &out, Prefix: "> "}
		for _, part := range rapid.SliceOf(rapid.StringMatching(`[a\n]{0,6}`)).Draw(t, "parts") {
			all.WriteString(part)
			if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for line := range strings.Lines(all.String()) {
			want.WriteString("> " + strings.TrimSuffix(line, "\n") + "\n")
		}
		if out.String() != want.String() {
			t.Fatalf("%q: got %q, want %q", all.String(), out.String(), want.String())
		}
	})
}

// The error of an agent that ended is the last one in the part of the log that it wrote, with its exit code.
func TestAgentError(t *testing.T) {
	t.Parallel()
	exit := exec.Command("sh", "-c", "exit 4").Run()
	path := filepath.Join(t.TempDir(), "client.log")
	before := "starling: old\nhint: older\n"
	log := before + "time=1 level=INFO\nstarling: first\nhint: one\n starling: the chain is away \nhint: name another\nnoise\n"
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		err        error
		path       string
		begin      int64
		code       ExitCode
		text, hint string
	}{
		{exit, path, int64(len(before)), ExitPayment, "the chain is away", "name another"},
		{nil, path, int64(len(log)), ExitFailed, "the light client ended", "its log is " + path},
		{exit, path, int64(len(log)) + 1, ExitPayment, "the light client ended", "its log is " + path},
		{errors.New("killed"), path + ".none", 0, ExitFailed, "the light client ended", "its log is " + path + ".none"},
	} {
		if e := Explain((Background{Name: "light client"}).failure(x.err, x.path, x.begin)); e.Code != x.code || e.Error() != x.text || e.Hint != x.hint {
			t.Errorf("%v from %d: code %d, %q, %q, want %d, %q, %q", x.err, x.begin, e.Code, e.Error(), e.Hint, x.code, x.text, x.hint)
		}
	}
}
