package wages

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// Where a wage lies is read from what any supervisor may have written.
func TestFundingIn(t *testing.T) {
	t.Parallel()
	me := sign.NewPrivate([32]byte{1}).Key()
	good, err := json.Marshal(record.Job{Detached: &record.Detached{Wages: map[string][]byte{me.String(): {1, 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := fundingIn(good, me); err != nil || string(b) != "\x01\x02" {
		t.Errorf("read %x, %v", b, err)
	}
	if b, err := fundingIn(good, sign.NewPrivate([32]byte{2}).Key()); err != nil || b != nil {
		t.Errorf("another's: %x, %v", b, err)
	}
	for _, none := range []string{`{}`, `{"detached":null}`, `{"detached":{"wages":null}}`, `null`} {
		if b, err := fundingIn([]byte(none), me); err != nil || b != nil {
			t.Errorf("%s: %x, %v", none, b, err)
		}
	}
	for _, bad := range []string{
		``, `[`, `{"detached":[]}`, `{"detached":{"wages":{"x":1}}}`, `{"detached":{"wages":{"x":"!"}}}`,
	} {
		if b, err := fundingIn([]byte(bad), me); err == nil {
			t.Errorf("%s was read as %x", bad, b)
		}
	}
}
