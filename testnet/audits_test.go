package testnet_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/testnet"
)

// auditWait bounds each wait for an audit or an epoch: several of what it takes where nothing is in the way.
const auditWait = 8 * time.Minute

// TestAudits: the units of a network of processes show what they are, an order that wants proof is filled by them, anybody checks the
// record offline and finds out what was changed in it, and an epoch later those who were audited are paid by the chain. All of it as a
// user sees it.
func TestAudits(t *testing.T) {
	t.Parallel()
	n := start(t, testnet.Options{Providers: 3, Buyers: 1, Units: 1, Audit: testnet.MinAudit})
	var passed proof.PastAudit
	first, said := n.Providers()[0], map[*testnet.Peer]string{}
	eventually(t, "every unit passes", func() bool {
		all := true
		for _, p := range n.Providers() {
			past := audits(t, p)
			if len(past) > 0 && past[0].Failed != said[p] {
				said[p] = past[0].Failed
				t.Logf("%s, window %d: %q", p.Name, past[0].Window, said[p])
			}
			here := len(past) > 0 && !past[0].Record.IsZero()
			if p == first && here {
				passed = past[0]
			}
			all = all && here
		}
		return all
	})

	// The record, by a peer that is not its own, into a file that needs no network.
	file := filepath.Join(t.TempDir(), "unit.json")
	if out := starlingAt(t, n.Buyers()[0], "proof", "show", passed.Record.String(), "--of", first.Key.String(), "--offline"); !strings.Contains(out, passed.Unit.Short()) {
		t.Errorf("proof show: %s", out)
	}
	starlingAt(t, n.Buyers()[0], "proof", "export", passed.Record.String(), file, "--of", first.Key.String())
	nowhere := &testnet.Peer{Home: t.TempDir()}
	if out := starlingAt(t, nowhere, "proof", "check", file, "--offline"); !strings.Contains(out, passed.Unit.Short()) {
		t.Errorf("proof check: %s", out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.ParseFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b[16] ^= 1 // of the beacon
	if c, err = proof.Decode(proof.KindAudit, b); err != nil {
		t.Fatal(err)
	}
	p, err := proof.New(c)
	if err == nil {
		f, err = proof.NewFile(f.Genesis, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(f); err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), starling(t), "--home", nowhere.Home, "proof", "check", file, "--offline").CombinedOutput(); err == nil || !strings.Contains(string(out), "rule seed is broken") {
		t.Errorf("a record with another beacon: %v: %s", err, out)
	}

	// Proof is what an order wants that says nothing else.
	client, err := n.Buyers()[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "units are sold as proven", func() bool { return end(t, client, submit(t, client, 1, token).ID).State == "succeeded" })

	// The command line shows the same.
	var past []proof.PastAudit
	if parse(t, starlingAt(t, first, "proof", "audit", "-o", "json"), &past); len(past) == 0 || past[0].Unit != passed.Unit {
		t.Errorf("proof audit: %+v", past)
	}

	// What was proven is paid.
	eventually(t, "an epoch's emission is paid", func() bool {
		for _, p := range n.Providers() {
			c, err := p.Client()
			if err != nil {
				t.Fatal(err)
			}
			st, err := api.GetRewards.Call(t.Context(), c, api.None{})
			if err != nil {
				t.Fatal(err)
			}
			paid := false
			for _, e := range st.Epochs {
				paid = paid || e.Source == 0 && e.Paid && e.Amount > 0 && e.State == "accepted"
			}
			if !paid {
				return false
			}
		}
		return true
	})
	var st rewards.Status
	if parse(t, starlingAt(t, first, "stake", "rewards", "-o", "json"), &st); len(st.Epochs) == 0 {
		t.Errorf("stake rewards: %+v", st)
	}
}

// audits returns the audits of a peer's units, the newest of each first, by its API: a command for each look would take a tenth of a core.
func audits(t *testing.T, p *testnet.Peer) []proof.PastAudit {
	t.Helper()
	c, err := p.Client()
	if err != nil {
		t.Fatal(err)
	}
	past, err := api.ListAudits.Call(t.Context(), c, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	return past
}

// starlingAt is what a command says with a peer's home.
func starlingAt(t *testing.T, p *testnet.Peer, args ...string) string {
	t.Helper()
	return saysAt(t, starling(t), p, args...)
}

// saysAt is the same of another program than starling as it is installed.
func saysAt(t *testing.T, program string, p *testnet.Peer, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"--home", p.Home}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var said []byte
		if e, ok := err.(*exec.ExitError); ok {
			said = e.Stderr
		}
		t.Fatalf("starling %s: %v: %s%s", strings.Join(args, " "), err, out, said)
	}
	return string(out)
}

func parse(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Second) {
		if time.Since(began) > auditWait || t.Context().Err() != nil {
			t.Fatalf("in vain: %s", what)
		}
	}
	t.Logf("%s", what)
}
