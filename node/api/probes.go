package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/exclusive"
)

// ProbeRecords is what the API asks of the part that has records of probes that are public.
type ProbeRecords interface {
	// ProbeRecord is a record that a peer gives to everybody; of none, this one.
	ProbeRecord(ctx context.Context, of sign.Key, hash sign.Hash) ([]byte, error)
	// ProbeRecords are the hashes of all that it gives.
	ProbeRecords(ctx context.Context, of sign.Key) ([]sign.Hash, error)
}

// probeRoutes are the routes of records of probes that are public.
func (s *Server) probeRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/probes": func(w http.ResponseWriter, r *http.Request) error {
			of, err := ofPeer(r)
			if err != nil {
				return err
			}
			all, err := s.node.ProbeRecords(r.Context(), of)
			if err != nil {
				return err
			}
			return reply(w, append([]sign.Hash{}, all...))
		},
		"GET /v1/probes/{hash}": func(w http.ResponseWriter, r *http.Request) error {
			hash, err := sign.ParseHash(r.PathValue("hash"))
			if err != nil {
				return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: err.Error()}
			}
			of, err := ofPeer(r)
			if err != nil {
				return err
			}
			b, err := s.node.ProbeRecord(r.Context(), of, hash)
			if errors.Is(err, exclusive.ErrNoRecord) {
				return &Error{Status: http.StatusNotFound, Code: "not_found", Message: err.Error(), Hint: "starling probe ls --of PEER lists what a peer gives"}
			}
			if err != nil {
				return err
			}
			return reply(w, b)
		},
	}
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

// ProbeRecord is a record of a probe that a peer gives to everybody.
func (c *Client) ProbeRecord(ctx context.Context, of sign.Key, hash sign.Hash) (record []byte, err error) {
	return record, c.get(ctx, "/v1/probes/"+hash.String()+askPeer(of), &record)
}

// ProbeRecords are the hashes of all that a peer gives.
func (c *Client) ProbeRecords(ctx context.Context, of sign.Key) (all []sign.Hash, err error) {
	return all, c.get(ctx, "/v1/probes"+askPeer(of), &all)
}
