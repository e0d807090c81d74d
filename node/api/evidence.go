package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/starling-network/starling/node/evidence"
)

// Evidence is what the API asks of the part that keeps proofs of double sale, that results differ, and of lies in audits.
type Evidence interface {
	Kept(ctx context.Context) ([]evidence.Kept, error)
	Dissents(ctx context.Context) ([]evidence.Dissent, error)
	Lies(ctx context.Context) ([]evidence.KeptLie, error)
	Watching() []evidence.Watched
	Watch(ctx context.Context, w evidence.Watched) error
	Unwatch(ctx context.Context, w evidence.Watched) error
}

// evidenceRoutes are the routes of proofs.
func (s *Server) evidenceRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	// with refuses where there is none.
	with := func(do func(e Evidence, w http.ResponseWriter, r *http.Request) error) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			if s.proofs == nil {
				return &Error{Status: http.StatusConflict, Code: "light", Message: "a light client keeps no evidence: it takes no part in the network"}
			}
			return do(s.proofs, w, r)
		}
	}
	watching := func(change func(Evidence, context.Context, evidence.Watched) error) func(http.ResponseWriter, *http.Request) error {
		return with(func(e Evidence, w http.ResponseWriter, r *http.Request) error {
			var of evidence.Watched
			dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxWord))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&of); err != nil {
				return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "reading the request: " + err.Error()}
			}
			if err := change(e, r.Context(), of); errors.Is(err, evidence.ErrMany) {
				return &Error{Status: http.StatusConflict, Code: "too_many", Message: err.Error(), Hint: "starling evidence watch --end"}
			} else if err != nil {
				return err
			}
			return reply(w, e.Watching())
		})
	}
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/evidence": with(func(e Evidence, w http.ResponseWriter, r *http.Request) error {
			kept, err := e.Kept(r.Context())
			if err != nil {
				return err
			}
			return reply(w, kept)
		}),
		"GET /v1/evidence/dissents": with(func(e Evidence, w http.ResponseWriter, r *http.Request) error {
			kept, err := e.Dissents(r.Context())
			if err != nil {
				return err
			}
			return reply(w, kept)
		}),
		"GET /v1/evidence/lies": with(func(e Evidence, w http.ResponseWriter, r *http.Request) error {
			kept, err := e.Lies(r.Context())
			if err != nil {
				return err
			}
			return reply(w, kept)
		}),
		"GET /v1/evidence/watched": with(func(e Evidence, w http.ResponseWriter, _ *http.Request) error {
			return reply(w, e.Watching())
		}),
		"POST /v1/evidence/watched":   watching(Evidence.Watch),
		"DELETE /v1/evidence/watched": watching(Evidence.Unwatch),
	}
}

// Evidence lists the proofs of double sale that the peer keeps.
func (c *Client) Evidence(ctx context.Context) (kept []evidence.Kept, err error) {
	return kept, c.get(ctx, "/v1/evidence", &kept)
}

// Dissents lists the proofs that providers signed different results of one work.
func (c *Client) Dissents(ctx context.Context) (kept []evidence.Dissent, err error) {
	return kept, c.get(ctx, "/v1/evidence/dissents", &kept)
}

// Lies lists the proofs that somebody lied in an audit, and what became of each.
func (c *Client) Lies(ctx context.Context) (kept []evidence.KeptLie, err error) {
	return kept, c.get(ctx, "/v1/evidence/lies", &kept)
}

// Watched lists the units that the peer was asked to look after.
func (c *Client) Watched(ctx context.Context) (units []evidence.Watched, err error) {
	return units, c.get(ctx, "/v1/evidence/watched", &units)
}

// Watch has the peer look after a unit, or with end no longer.
func (c *Client) Watch(ctx context.Context, of evidence.Watched, end bool) (units []evidence.Watched, err error) {
	b, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	method := http.MethodPost
	if end {
		method = http.MethodDelete
	}
	resp, err := c.do(ctx, method, "/v1/evidence/watched", bytes.NewReader(b), http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return units, json.NewDecoder(resp.Body).Decode(&units)
}
