package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/wholefile"
	"github.com/starling-network/starling/p2p"
)

// entry is the address of an entry peer.
const entry = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"

var lightNet = market.Genesis{Network: "cli", Chain: sign.Hash{1}, Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 150, Simulated: true}

// failFile in a home directory makes an agent fail.
const failFile = "fail"

// TestMain makes the test binary the agent of a light client where it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "client" && os.Args[2] == "serve" {
		if err := serveAgent(os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "starling:", err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveAgent keeps its arguments in the home directory and answers as a client that has joined the network, until it is
// asked to quit.
func serveAgent(args []string) error {
	home := args[slices.Index(args, "--home")+1]
	if err := os.WriteFile(filepath.Join(home, "args"), []byte(strings.Join(args, " ")), 0o600); err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(home, failFile)); err == nil {
		fmt.Fprintf(os.Stderr, "%s", text)
		os.Exit(int(ExitUnreachable))
	}
	if _, err := p2p.SaveIdentity(filepath.Join(home, config.FileIdentity), sign.NewPrivate([32]byte{1}).Seed()); err != nil {
		return err
	}
	quit := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/node", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.NodeInfo{Entries: []string{"e"}, ChainUp: true,
			Problems: []api.Fault{{Service: api.EntriesService, Problem: "no witness", Remedy: "name another"}, {Service: "chain", Problem: "slow", Remedy: "wait"}}})
	})
	mux.HandleFunc("POST /quit", func(http.ResponseWriter, *http.Request) { close(quit) })
	s := httptest.NewServer(mux)
	if err := endpoint(home, s.URL); err != nil {
		return err
	}
	<-quit
	os.Exit(0)
	return nil
}

// endpoint writes the files by which a command finds a peer and its network.
func endpoint(home, url string) error {
	for name, v := range map[string]any{config.FileGenesis: lightNet, config.FileAPI: api.Endpoint{URL: url}} {
		b, err := json.Marshal(v)
		if err == nil {
			err = wholefile.Write(filepath.Join(home, name), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lightApp is a command line of a light client by way of entry peers.
func lightApp(t *testing.T, peers string) (a *App, home string) {
	home = t.TempDir()
	a = appOf(map[string]string{"STARLING_PEER": peers})
	a.home, a.ctx = home, t.Context()
	return a, home
}

// answerNode makes a peer run on a home directory, which answers what node returns about itself.
func answerNode(t *testing.T, home string, node func() any) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/node" {
			t.Errorf("the peer was asked for %s", r.URL)
		}
		if v := node(); v != nil {
			_ = json.NewEncoder(w).Encode(v)
		} else {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	if err := endpoint(home, s.URL); err != nil {
		t.Fatal(err)
	}
}

func said(a *App) string { return a.Err.(*bytes.Buffer).String() }

// The first command starts an agent, with the flags of the command line, and says what is new. The next one finds it.
func TestAgentIsStarted(t *testing.T) {
	t.Parallel()
	a, home := lightApp(t, entry)
	a.Pin, a.PSK, a.Direct = "/g", "/k", true
	log := filepath.Join(home, agentLog)
	if err := os.WriteFile(log, make([]byte, maxLog+1), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := a.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if resp, err := http.Post(c.Endpoint().URL+"/quit", "", nil); err == nil {
			resp.Body.Close()
		}
	})
	owner := sign.NewPrivate([32]byte{1}).Key()
	want := fmt.Sprintf("warning: chain: slow; wait\nnetwork %s is pinned for this client, genesis %s\nmade a key for this client in %s\n"+
		"fund it before the first job: %s takes tokens for jobs and SOL for fees\n", lightNet.Tag(), lightNet.Hash(), home, owner)
	if said(a) != want {
		t.Errorf("said\n%s\nwant\n%s", said(a), want)
	}
	args, err := os.ReadFile(filepath.Join(home, "args"))
	if want := "--home " + home + " --peer " + entry + " --genesis /g --psk /k --direct"; err != nil || string(args) != want {
		t.Errorf("started with %q, want %q, %v", args, want, err)
	}
	if old, err := os.Stat(log + ".old"); err != nil || old.Size() != maxLog+1 {
		t.Errorf("a long log is not put aside: %v", err)
	}
	again := appOf(map[string]string{"STARLING_PEER": entry})
	again.home, again.ctx = home, t.Context()
	if c2, err := again.Client(); err != nil || c2.Endpoint() != c.Endpoint() || said(again) != "" {
		t.Errorf("the second command: %v, %q", err, said(again))
	}
	again.WarnTrust(t.Context(), c)
	if want := "warning: entries: no witness; name another\n"; said(again) != want {
		t.Errorf("said %q, want %q", said(again), want)
	}
	again.Direct = true // this agent does not dial
	if _, err := again.Client(); Explain(err).Code != ExitUsage || !strings.Contains(Explain(err).Hint, "starling client stop") {
		t.Errorf("--direct: %v", err)
	}
}

// An agent that ends has its own error, hint and exit code.
func TestAgentFails(t *testing.T) {
	t.Parallel()
	a, home := lightApp(t, entry)
	if err := os.WriteFile(filepath.Join(home, failFile), []byte("starling: no entry peer answers\nhint: name another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ask := range []func() error{a.Introduced, func() error { _, err := a.Genesis(); return err }, func() error { _, _, err := a.Known(); return err },
		func() error { _, err := a.Node(t.Context()); return err }} {
		if e := Explain(ask()); e.Code != ExitUnreachable || e.Error() != "no entry peer answers" || e.Hint != "name another" {
			t.Errorf("code %d, %q, hint %q", e.Code, e.Err, e.Hint)
		}
	}
	for _, peers := range []string{"here", "/ip4/127.0.0.1/tcp/4001", "/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"} {
		a, home := lightApp(t, peers)
		if _, err := a.Client(); Explain(err).Code != ExitUsage || !strings.Contains(Explain(err).Hint, "starling peer status") {
			t.Errorf("%s: %v", peers, err)
		}
		if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is written, %v", peers, left, err)
		}
	}
}

// A light client that knows its network needs no agent for it; a peer of one's own never does.
func TestIntroduced(t *testing.T) {
	t.Parallel()
	a, home := lightApp(t, entry)
	answerNode(t, home, func() any { t.Error("the agent was asked"); return nil })
	if g, err := a.Genesis(); err != nil || g.Hash() != lightNet.Hash() {
		t.Errorf("%+v, %v", g, err)
	}
	a, home = lightApp(t, "")
	if err := a.Introduced(); err != nil {
		t.Error(err)
	}
	a.WarnTrust(t.Context(), nil) // asks nobody
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 || said(a) != "" {
		t.Errorf("%v is written, %q said, %v", left, said(a), err)
	}
}

// An agent that answers is waited for until it has reached an entry peer and the chain.
func TestJoined(t *testing.T) {
	t.Parallel()
	_, home := lightApp(t, "")
	states := []any{nil, api.NodeInfo{ChainUp: true}, api.NodeInfo{Entries: []string{"e"}}, api.NodeInfo{Entries: []string{"e"}, ChainUp: true, Jobs: 7}}
	var n atomic.Int32
	answerNode(t, home, func() any { return states[min(int(n.Add(1)), len(states))-1] })
	c, err := api.Dial(home, config.FileAPI)
	if err != nil {
		t.Fatal(err)
	}
	if got := joined(t.Context(), c); got.Jobs != 7 || int(n.Load()) != len(states) {
		t.Errorf("after %d answers: %+v", n.Load(), got)
	}
	if Answering(t.Context(), home) == nil || Answering(t.Context(), t.TempDir()) != nil {
		t.Error("a peer answers where none runs, or the other way round")
	}
}

// A peer without neighbours is the reason why nothing is found; one that does not answer has no such warning.
func TestWarnAlone(t *testing.T) {
	t.Parallel()
	for want, node := range map[string]any{"warning: this peer is connected to no other": api.NodeInfo{}, "": api.NodeInfo{Peers: 1}, "\x00": nil} {
		a, home := lightApp(t, "")
		answerNode(t, home, func() any { return node })
		c, err := a.Client()
		if err != nil {
			t.Fatal(err)
		}
		a.WarnAlone(t.Context(), c)
		if text := said(a); !strings.HasPrefix(text, strings.Trim(want, "\x00")) || want == "\x00" && text != "" || want == "" && text != "" {
			t.Errorf("%+v: said %q", node, text)
		}
		if n, err := a.Node(t.Context()); (err == nil) != (node != nil) || err == nil && n.Peers != node.(api.NodeInfo).Peers {
			t.Errorf("%+v: %+v, %v", node, n, err)
		}
	}
}

// On a terminal the changing line is taken away for each line that stays, and comes back.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	terminal, err := os.Open(os.DevNull) // its width is not known
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var out bytes.Buffer
	p := &Progress{w: &out, Live: terminal}
	const gone = "\r\x1b[K"
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { p.Status("one\n%d", 1) }, "one 1"},
		{func() { p.Status("two") }, gone + "two"},
		{func() { p.Say("stays") }, gone + "stays\ntwo"},
		{func() { _, _ = p.Above(&out).Write([]byte("part")) }, gone + "part"},
		{func() { _, _ = p.Above(&out).Write([]byte(" of a line\n")) }, " of a line\ntwo"},
		{func() { p.Status("%s", strings.Repeat("x", 200)) }, gone + strings.Repeat("x", 78) + "…"},
		{p.Clear, gone},
		{p.Clear, ""},
		{func() { p.Say("last") }, "last\n"},
	} {
		out.Reset()
		step.do()
		if out.String() != step.want {
			t.Errorf("got %q, want %q", out.String(), step.want)
		}
	}
}

// A signal cancels the command's context, so that it ends in its own way.
func TestMainIsInterrupted(t *testing.T) {
	var out, errs bytes.Buffer
	wait := func(*App) *cobra.Command {
		return &cobra.Command{Use: "wait", RunE: func(c *cobra.Command, _ []string) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-c.Context().Done()
			return &Error{Code: ExitInterrupted, Err: errors.New("interrupted")}
		}}
	}
	if code := Main([]string{"wait"}, strings.NewReader(""), &out, &errs, []func(*App) *cobra.Command{wait}); code != int(ExitInterrupted) || errs.String() != "starling: interrupted\n" {
		t.Errorf("code %d, %q", code, errs.String())
	}
	errs.Reset()
	noun := func(*App) *cobra.Command {
		return Noun(GroupJobs, &cobra.Command{Use: "job"}, wait(nil),
			&cobra.Command{Use: "ls", Run: func(*cobra.Command, []string) {}}) // similar to every word of two letters
	}
	for line, want := range map[string]string{
		"wiat":      "starling: \"wiat\" is not a command of starling, did you mean starling job wait?\nhint: starling --help\n",
		"job wiat":  "starling: \"wiat\" is not a command of starling job, did you mean starling job wait?\nhint: starling job --help\n",
		"job x":     "starling: \"x\" is not a command of starling job\nhint: starling job --help\n",
		"job --all": "starling: unknown flag: --all\nhint: starling job --help\n",
	} {
		errs.Reset()
		if code := Main(strings.Fields(line), strings.NewReader(""), &out, &errs, []func(*App) *cobra.Command{noun}); code != int(ExitUsage) || errs.String() != want {
			t.Errorf("%s: code %d, %q, want %q", line, code, errs.String(), want)
		}
	}
}
