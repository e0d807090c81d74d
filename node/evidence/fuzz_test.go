package evidence

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/verify/audit/audittest"
)

// FuzzParseProof: whatever is in a file, reading and checking it ends, and what was read is written as it was.
func FuzzParseProof(f *testing.F) {
	g := genesis
	g.AuditSlots, g.AuditOneIn = lieSlots, 1
	for _, l := range audittest.Lies(g.Domain(), private("provider"), private("member"), 3) {
		b, err := json.Marshal(NewLieProof(g, l.Marshal()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":"starling-evidence/1","conflict":"AQID"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProof(b)
		if err != nil {
			return
		}
		_, _ = p.Check()
		_, _ = p.CheckLie()
		_, _ = p.CheckDissent()
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProof(out); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	})
}
