package proof_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
)

// text renders a finding.
func text(f proof.Finding) string {
	var b strings.Builder
	f.Rows(func(cells ...any) {
		for _, c := range cells {
			b.WriteString(strings.TrimSpace(strings.Trim(jsonText(c), `"`)) + " ")
		}
		b.WriteString("\n")
	})
	return b.String()
}

func jsonText(v any) string {
	if s, ok := v.(interface{ String() string }); ok {
		return s.String()
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// Every kind has a row in the table, a sample, one encoding, a file, and a check whose finding names network, kind,
// hash and subjects.
func TestKinds(t *testing.T) {
	t.Parallel()
	var kinds []proof.Kind
	for _, c := range prooftest.All() {
		kinds = append(kinds, c.Kind())
		raw, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := proof.Decode(c.Kind(), raw)
		if err != nil || again.Hash() != c.Hash() || again.Summary() != c.Summary() {
			t.Fatalf("%s: decoded %v, %v", c.Kind(), again, err)
		}
		p, err := proof.New(c)
		if err != nil {
			t.Fatal(err)
		}
		f, err := proof.NewFile(prooftest.Genesis(), p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		read, err := proof.ParseFile(b)
		if err != nil {
			t.Fatalf("%s: %v", c.Kind(), err)
		}
		found, err := read.Check()
		if err != nil {
			t.Fatalf("%s: %v", c.Kind(), err)
		}
		if found.Kind != c.Kind() || found.Hash != c.Hash() || found.GenesisHash != prooftest.Genesis().Hash() ||
			!slices.Equal(found.Subjects, c.Subjects()) || found.Content().Hash() != c.Hash() {
			t.Errorf("%s: found %+v", c.Kind(), found)
		}
		if said := text(found); !strings.Contains(said, "checked") || !strings.Contains(said, c.Hash().String()) {
			t.Errorf("%s: %s", c.Kind(), said)
		}
		if _, err := json.Marshal(found); err != nil {
			t.Errorf("%s: %v", c.Kind(), err)
		}
	}
	if !slices.Equal(kinds, proof.Kinds()) {
		t.Errorf("samples of %v, the kinds are %v", kinds, proof.Kinds())
	}
	for _, k := range kinds {
		if k.Text() == "unknown" {
			t.Errorf("%s has no text", k)
		}
	}
}

// A proof proves nothing on another network, or when one byte of it is another.
func TestForged(t *testing.T) {
	t.Parallel()
	for _, c := range prooftest.All() {
		g := prooftest.Genesis()
		g.Network = "elsewhere"
		if f, err := proof.Check(c, g); err == nil && f.Fault == nil {
			t.Errorf("%s holds on another network", c.Kind())
		}
		g = prooftest.Genesis()
		g.SlotMillis = 0
		if _, err := proof.Check(c, g); !brokenBy(err, proof.RuleGenesis) {
			t.Errorf("%s on a broken network: %v", c.Kind(), err)
		}
	}
	for _, c := range []proof.Content{
		prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0),
		prooftest.Frauds(prooftest.Key("p"), prooftest.Key("m"), prooftest.Window)[1],
	} {
		raw, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			bad := bytes.Clone(raw)
			bad[i] ^= 1
			x, err := proof.Decode(c.Kind(), bad)
			if err == nil {
				_, err = proof.Check(x, prooftest.Genesis())
			}
			if err == nil {
				t.Fatalf("%s holds with another byte %d of %d", c.Kind(), i, len(raw))
			}
		}
	}
}

func brokenBy(err error, rule any) bool {
	b, ok := errors.AsType[*proof.BrokenRule](err)
	return ok && b.Rule == rule
}

// Files that were cut off, changed, or that are of another format or kind are refused before anything is checked.
func TestParseFile(t *testing.T) {
	t.Parallel()
	p, err := proof.New(prooftest.Dispute(0, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.NewFile(prooftest.Genesis(), p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	for name, bad := range map[string]string{
		"nothing":        "",
		"another format": strings.Replace(good, "starling-proof/1", "starling-proof/9", 1),
		"another kind":   strings.Replace(good, `"dispute"`, `"fraud"`, 1),
		"no kind":        strings.Replace(good, `"dispute"`, `"rumour"`, 1),
		"unknown field":  strings.Replace(good, `"kind"`, `"more":1,"kind"`, 1),
		"two values":     good + "{}",
		"no base64":      strings.Replace(good, `"body":"`, `"body":"!`, 1),
		"an object":      strings.Replace(good, `"body":"`, `"body":{},"bodies":"`, 1),
		"an anchor":      strings.Replace(good, `"digest"`, `"anchor":"AQID","digest"`, 1),
		"another digest": strings.Replace(good, f.Digest.String(), sign.Hash{1}.String(), 1),
		"another slot":   strings.Replace(good, `400`, `401`, 1),
	} {
		if bad == good {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := proof.ParseFile([]byte(bad)); !errors.Is(err, proof.ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Proofs of one matter have one hash, whichever statements they show; others have their own.
func TestHash(t *testing.T) {
	t.Parallel()
	p, m := prooftest.Key("p"), prooftest.Key("m")
	same := prooftest.Frauds(p, m, 7)
	again := same[0]
	again.Value = 5
	if again.Hash() != same[0].Hash() {
		t.Error("another value of the same answer has another hash")
	}
	seen := map[sign.Hash]bool{}
	all := prooftest.All()
	for _, x := range append(same, prooftest.Frauds(p, m, 8)...) {
		all = append(all, x)
	}
	for n := range 3 {
		all = append(all, prooftest.Dispute(n+1, 1, 2), prooftest.DoubleSale(p, prooftest.Key("a"), prooftest.Key("b"), n+1))
	}
	for _, c := range all {
		if seen[c.Hash()] {
			t.Errorf("two of %s have one hash", c.Kind())
		}
		seen[c.Hash()] = true
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	key := func(name string) string { return prooftest.Key(name).Key().String() }
	frauds := prooftest.Frauds(prooftest.Key("liar"), prooftest.Key("lazy"), 7)
	for _, c := range []struct {
		of   proof.Content
		want []string
	}{
		{prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0), []string{key("p"), "slots 110 to 120, 4s", "1.50 STAR owed by then", "four signatures", "not checked"}},
		{frauds[0], []string{key("liar") + " false opening", "value", "window 7, slots 700 to 800"}},
		{frauds[1], []string{key("liar") + " two answers", "product roots"}},
		{frauds[2], []string{key("lazy") + " false pass", "passed opening"}},
		{prooftest.Dispute(0, 9, 1, 1), []string{"majority differs from " + key("a"), "not run again"}},
		{prooftest.Dispute(0, 9, 1), []string{"majority none"}},
		{prooftest.Audit(), []string{"beacon: the hash of slot 700", "2 × 64×128×128", "judged by", "56 entries, 4 walkers, 9 signatures", "not yet"}},
		{prooftest.Refusal(), []string{"refused by"}},
		{prooftest.Receipts(), []string{"buyer " + key("buyer"), "transaction tx", "anchor not checked", "0.06 STAR by 6 receipts of 2 leases", "not asked"}},
		{prooftest.History(), []string{key("provider"), "0.001 STAR", "not asked"}},
		{prooftest.Probes(), []string{"3.4 GOPS", "WRONG:"}},
	} {
		f, err := proof.Check(c.of, prooftest.Genesis())
		if err != nil {
			t.Fatalf("%s: %v", c.of.Kind(), err)
		}
		said := text(f)
		for _, w := range c.want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: %q is not in\n%s", c.of.Kind(), w, said)
			}
		}
	}
	if f, _ := proof.Check(prooftest.Probes(), prooftest.Genesis()); !errors.Is(f.Fault, proof.ErrProbes) {
		t.Errorf("probes without right openings: %v", f.Fault)
	}
}

// States of a stake and their text.
func TestState(t *testing.T) {
	t.Parallel()
	for s, over := range map[proof.State]bool{
		"": false, proof.StateKept: false, proof.StateSubmitting: false, proof.StateTaken: true, proof.StateSlashed: true,
		proof.StateExpired: true,
	} {
		if s.Over() != over || (proof.Entry{State: s}.StateText() == "") != (s == "") {
			t.Errorf("%q: over %t, %q", s, s.Over(), proof.Entry{State: s}.StateText())
		}
	}
	if said := (proof.Entry{State: proof.StateKept, Why: "later"}).StateText(); !strings.Contains(said, "later") {
		t.Error(said)
	}
}

// FuzzDecode: decoding and checking bytes of any kind ends, and what was decoded is encoded to bytes that decode to
// the same proof.
func FuzzDecode(f *testing.F) {
	for i, c := range prooftest.All() {
		b, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	f.Add(uint8(0), []byte(`{"job":"j","leases":[{"lease":{},"keys":{"keys":null},"voucher":{},"receipts":[{}]}],"transactions":[]}`))
	f.Fuzz(func(t *testing.T, n uint8, b []byte) {
		kind := proof.Kinds()[int(n)%len(proof.Kinds())]
		c, err := proof.Decode(kind, b)
		if err != nil {
			return
		}
		_ = c.Subjects()
		if len(c.Summary()) > 1<<12 {
			t.Errorf("%s: a summary of %d bytes", kind, len(c.Summary()))
		}
		raw, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := proof.Decode(kind, raw)
		if err != nil || again.Hash() != c.Hash() {
			t.Fatalf("%s: %x is encoded as %x: %v", kind, b, raw, err)
		}
		if found, err := proof.Check(c, prooftest.Genesis()); err == nil {
			found.Rows(func(...any) {})
		}
	})
}

// FuzzParseFile: reading and checking any file ends, and a file that is read is written to one that reads the same.
func FuzzParseFile(f *testing.F) {
	for _, c := range prooftest.All() {
		p, err := proof.New(c)
		if err != nil {
			f.Fatal(err)
		}
		x, err := proof.NewFile(prooftest.Genesis(), p)
		if err != nil {
			f.Fatal(err)
		}
		b, err := json.Marshal(x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":"starling-proof/1","kind":"fraud","body":"AQID"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := proof.ParseFile(b)
		if err != nil {
			return
		}
		_, _ = x.Check()
		out, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proof.ParseFile(out); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	})
}

// What does not fit is refused by its size alone.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, k := range proof.Kinds() {
		if k == proof.KindReceipts { // 256 MiB
			continue
		}
		if _, err := proof.Decode(k, make([]byte, 16<<20+1)); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", k, err)
		}
	}
	if _, err := proof.Decode("rumour", nil); !errors.Is(err, proof.ErrKind) {
		t.Error(err)
	}
	h := prooftest.History()
	for range proof.MaxDeals {
		h.Receipts = append(h.Receipts, h.Receipts[0])
	}
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Decode(proof.KindHistory, b); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
}
