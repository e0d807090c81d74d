package local_test

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/device/local"
	"github.com/starling-network/starling/verify/audit"
)

// A processor answers; a simulated GPU does not, unless the audits of the build are interpreted.
func TestOpen(t *testing.T) {
	t.Parallel()
	d, err := local.Open(t.Context(), market.Unit{Class: local.Processors, Model: "a processor"}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if audit.Interpreted() {
		return
	}
	if _, err := local.Open(t.Context(), market.Unit{Class: "gpu/l4", Model: "a GPU", Simulated: true}, 0); err == nil {
		t.Error("a simulated GPU answers")
	}
}
