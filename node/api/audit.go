package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
)

// Audits is what the API asks of the part that audits.
type Audits interface {
	// Audits is how the peer's units did, the newest of each first.
	Audits() ([]audit.Past, error)
	// Audit has them show now what they are.
	Audit(ctx context.Context) ([]audit.Past, error)
	// AuditRecord is a record of a peer's, of none of this one's, and where it is anchored.
	AuditRecord(ctx context.Context, of sign.Key, hash sign.Hash) (audit.Kept, error)
}

// auditRoutes are the routes of audits.
func (s *Server) auditRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/audits": func(w http.ResponseWriter, _ *http.Request) error {
			past, err := s.node.Audits()
			if err != nil {
				return err
			}
			return reply(w, past)
		},
		"POST /v1/audits": func(w http.ResponseWriter, r *http.Request) error {
			past, err := s.node.Audit(r.Context())
			if errors.Is(err, audit.ErrTooEarly) {
				return &Error{Status: http.StatusConflict, Code: "too_early", Message: err.Error(), Hint: "starling audit ls shows what was audited"}
			}
			if err != nil {
				return err
			}
			return reply(w, past)
		},
		"GET /v1/audits/{hash}": func(w http.ResponseWriter, r *http.Request) error {
			hash, err := sign.ParseHash(r.PathValue("hash"))
			if err != nil {
				return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: err.Error()}
			}
			of, err := ofPeer(r)
			if err != nil {
				return err
			}
			kept, err := s.node.AuditRecord(r.Context(), of, hash)
			if errors.Is(err, audit.ErrNoRecord) {
				return &Error{Status: http.StatusNotFound, Code: "not_found", Message: err.Error(), Hint: "only the newest record of each unit is kept"}
			}
			if err != nil {
				return err
			}
			return reply(w, kept)
		},
	}
}

// Audits is how the peer's units did.
func (c *Client) Audits(ctx context.Context) (past []audit.Past, err error) {
	return past, c.get(ctx, "/v1/audits", &past)
}

// Audit has the peer's units show now what they are, and waits.
func (c *Client) Audit(ctx context.Context) (past []audit.Past, err error) {
	res, err := c.do(ctx, http.MethodPost, "/v1/audits", nil, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return past, json.NewDecoder(res.Body).Decode(&past)
}

// AuditRecord is a record of a peer's; of none, of this one's.
func (c *Client) AuditRecord(ctx context.Context, of sign.Key, hash sign.Hash) (kept audit.Kept, err error) {
	return kept, c.get(ctx, "/v1/audits/"+hash.String()+askPeer(of), &kept)
}

// ofPeer is the peer that a request names; the zero key for none.
func ofPeer(r *http.Request) (sign.Key, error) {
	text := r.URL.Query().Get("peer")
	if text == "" {
		return sign.Key{}, nil
	}
	of, err := sign.ParseKey(text)
	if err != nil {
		return of, &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: err.Error()}
	}
	return of, nil
}

func askPeer(of sign.Key) string {
	if of.IsZero() {
		return ""
	}
	return "?peer=" + url.QueryEscape(of.String())
}
