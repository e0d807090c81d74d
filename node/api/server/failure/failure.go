// Package failure has the answers of a peer's local API to errors: for each a status, a code for programs, and a hint.
package failure

import (
	"errors"
	"net/http"
	"os"
	"slices"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/notices"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	hintLog   = "see the peer's log"
	hintNode  = "`starling peer status` shows the chain's state and the balance"
	hintSpend = "`starling wallet spend` shows the spending and the limits"
)

// class is the answer to some errors of the peer.
type class struct {
	of     []error
	status int
	code   string
	hint   string
}

// The first class that fits an error counts: those of own, then those of streams, then those of others.
var own = []class{
	{[]error{spend.ErrLimit}, http.StatusPaymentRequired, api.CodePayment, hintSpend},
	{[]error{record.ErrQuery, block.ErrEntry}, http.StatusBadRequest, "bad_request", ""},
	{[]error{spend.ErrKey}, http.StatusBadRequest, "bad_key", "`starling peer key ls` lists them"},
	{[]error{block.ErrNotListed}, http.StatusNotFound, "not_found", "`starling peer block ls` lists them"},
	{[]error{record.ErrNoJob, os.ErrNotExist}, http.StatusNotFound, "not_found",
		"`starling ps -a` lists all jobs with their ids, which name them; the beginning of an id is enough"},
	{[]error{record.ErrNoCopies}, http.StatusNotFound, api.CodeNoCopies, "`starling run --copies` requests them"},
	{[]error{record.ErrNoKeeper}, http.StatusBadGateway, api.CodeUnreachable, "`starling job copies` lists them"},
	{[]error{record.ErrNotRunning}, http.StatusConflict, "not_running", ""},
	{[]error{record.ErrNeeded}, http.StatusConflict, api.CodeNeeded, ""},
	{[]error{notices.ErrLight}, http.StatusConflict, "light", ""},
	{[]error{notices.ErrMany}, http.StatusConflict, "too_many", "starling proof watch --end"},
	{[]error{audit.ErrTooEarly}, http.StatusConflict, "too_early",
		"starling proof audit shows the audits of the units"},
	{[]error{proof.ErrUnknown}, http.StatusNotFound, "not_found",
		"`starling proof ls` lists the proofs; of audits, the newest record of each unit"},
	{[]error{proof.ErrKind, proof.ErrFile}, http.StatusBadRequest, "bad_proof", ""},
	{[]error{proof.ErrFull}, http.StatusConflict, "full", ""},
}

var others = []class{
	{[]error{runtime.ErrNoImage}, http.StatusNotFound, "not_found", "`starling image ls` lists the images"},
	{[]error{runtime.ErrImageUsed}, http.StatusConflict, "in_use", "`starling image ls` shows the uses"},
	{[]error{runtime.ErrCredentials}, http.StatusUnprocessableEntity, api.CodeImageAuth, ""},
	{[]error{record.ErrImage}, http.StatusUnprocessableEntity, api.CodeNoImage, ""},
	{[]error{stream.ErrUnreachable, live.ErrCut}, http.StatusBadGateway, api.CodeUnreachable, api.HintAway},
	{[]error{blob.ErrNotFound}, http.StatusNotFound, "not_found", ""},
	{[]error{blob.ErrBadCID}, http.StatusBadRequest, "bad_cid", ""},
	{[]error{blob.ErrFull, blob.ErrDiskFull, store.ErrFull}, http.StatusInsufficientStorage, api.CodeFull, ""},
	{[]error{store.ErrBroken, store.ErrCorrupt, store.ErrClosed}, http.StatusInternalServerError, api.CodePeer,
		hintLog},
	{[]error{record.ErrFunds, slots.ErrUnknown}, http.StatusPaymentRequired, api.CodePayment, hintNode},
	{[]error{record.ErrRefused}, http.StatusUnprocessableEntity, "refused", ""},
	{nil, http.StatusInternalServerError, "internal", ""},
}

// Of returns the answer to an error of the peer. An error that is an answer already is returned as it is.
func Of(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &api.Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: err.Error()}
	}
	for _, find := range []func(error) *api.Error{among(own), ofStream, among(others)} {
		if e := find(err); e != nil {
			return e
		}
	}
	return nil
}

func among(classes []class) func(error) *api.Error {
	return func(err error) *api.Error {
		for _, c := range classes {
			if c.of == nil || slices.ContainsFunc(c.of, func(e error) bool { return errors.Is(err, e) }) {
				return &api.Error{Status: c.status, Code: c.code, Message: err.Error(), Hint: c.hint}
			}
		}
		return nil
	}
}

// ofStream returns the answer to an error that a provider sent, or to a broken relay.
func ofStream(err error) *api.Error {
	if refused, ok := errors.AsType[*stream.Refused](err); ok {
		return &api.Error{Status: http.StatusConflict, Code: refused.Code, Message: refused.Reason}
	}
	if malformed, ok := errors.AsType[*stream.Malformed](err); ok {
		return route.BadRequest("bad_request", "%s", malformed.Reason)
	}
	if _, ok := errors.AsType[*live.Error](err); ok || errors.Is(err, live.ErrCopy) || errors.Is(err, live.ErrRoom) {
		return &api.Error{Status: http.StatusUnprocessableEntity, Code: "failed", Message: err.Error()}
	}
	if _, ok := errors.AsType[*stream.Relayed](err); ok {
		return &api.Error{Status: http.StatusBadGateway, Code: api.CodeUnreachable, Message: err.Error(),
			Hint: api.HintRelay}
	}
	return nil
}
