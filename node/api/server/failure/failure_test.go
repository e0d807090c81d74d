package failure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/server/failure"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

// Errors are found below their wrapping, and the more exact of two counts: a job that is refused for its wallet has the
// code of funds.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"limit":         {spend.ErrLimit, http.StatusPaymentRequired, api.CodePayment},
		"no job":        {record.ErrNoJob, http.StatusNotFound, "not_found"},
		"not running":   {record.ErrNotRunning, http.StatusConflict, "not_running"},
		"needed":        {record.ErrNeeded, http.StatusConflict, api.CodeNeeded},
		"funds":         {errors.Join(record.ErrRefused, record.ErrFunds), http.StatusPaymentRequired, api.CodePayment},
		"chain":         {errors.Join(record.ErrRefused, slots.ErrUnknown), http.StatusPaymentRequired, api.CodePayment},
		"refused":       {record.ErrRefused, http.StatusUnprocessableEntity, "refused"},
		"proof":         {proof.ErrFile, http.StatusBadRequest, "bad_proof"},
		"no room":       {store.ErrFull, http.StatusInsufficientStorage, api.CodeFull},
		"no file":       {blob.ErrNotFound, http.StatusNotFound, "not_found"},
		"journal":       {store.ErrBroken, http.StatusInternalServerError, api.CodePeer},
		"unreachable":   {stream.ErrUnreachable, http.StatusBadGateway, api.CodeUnreachable},
		"relay":         {&stream.Relayed{Err: stream.ErrUnreachable}, http.StatusBadGateway, api.CodeUnreachable},
		"provider":      {stream.Refuse("runtime", "cannot"), http.StatusConflict, "runtime"},
		"copy":          {&live.Error{Text: "no such file"}, http.StatusUnprocessableEntity, "failed"},
		"body":          {&http.MaxBytesError{Limit: 1}, http.StatusRequestEntityTooLarge, "too_large"},
		"an answer":     {&api.Error{Status: http.StatusTeapot, Code: "tea"}, http.StatusTeapot, "tea"},
		"anything else": {context.DeadlineExceeded, http.StatusInternalServerError, "internal"},
	} {
		if got := failure.Of(fmt.Errorf("asking: %w", c.err)); got.Status != c.status || got.Code != c.code || c.code != "tea" && got.Message == "" {
			t.Errorf("%s: got %+v, want status %d and code %s", name, got, c.status, c.code)
		}
	}
	if got := failure.Of(&stream.Relayed{Err: stream.ErrUnreachable}); got.Hint != api.HintRelay {
		t.Errorf("a relay that cuts: hint %q", got.Hint)
	}
}
