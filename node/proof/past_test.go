package proof_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// Journals and answers of the local API have past audits by these names: one that a later version reads differently is
// an audit that is lost.
func TestPastAuditJSON(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0).UTC()
	for want, p := range map[string]proof.PastAudit{
		`"window":7,"at":"1970-01-01T00:16:40Z"`: {Window: 7, At: at},
		`"class":"h100"`:                         {Class: "h100", At: at},
		`"failed":"late","standing":"suspended"`: {Failed: "late", Standing: "suspended", At: at},
		`"standing":"listed","anchored":"tx"`:    {Record: sign.Hash{1}, Standing: "listed", Anchored: "tx", At: at},
		`"record":"` + sign.Hash{2}.String():     {Record: sign.Hash{2}, At: at},
		`"unit":"` + market.UnitID{3}.String():   {Unit: market.UnitID{3}, Rates: audit.Rates{Operations: 5}, At: at},
	} {
		b, err := json.Marshal(p)
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("got %s, %v; want %s in it", b, err, want)
		}
		var got proof.PastAudit
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s came back as %+v, %v; want %+v", b, got, err, p)
		}
	}
}
