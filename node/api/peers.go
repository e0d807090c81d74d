package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	book "github.com/starling-network/starling/node/reputation"
)

// MaxPings is how many round trips one request measures at most.
const MaxPings = 100

const maxPingBody = 4 << 10

// ConnInfo is one connection to a peer.
type ConnInfo struct {
	Path      string    `json:"path"`          // direct, punched (direct through NATs) or relayed
	Via       string    `json:"via,omitempty"` // peer id of the relay
	Addr      string    `json:"addr"`
	Direction string    `json:"direction"` // in or out
	Limited   bool      `json:"limited,omitempty"`
	Opened    time.Time `json:"opened,omitzero"`
}

// Reach is how this peer can be reached, as far as it knows.
type Reach struct {
	State   string      `json:"state"` // public, relayed, private, unknown or local
	Text    string      `json:"text"`  // a sentence
	Addrs   []ReachAddr `json:"addrs"`
	Relays  []string    `json:"relays,omitempty"`         // peer ids of the relays that have a place for it
	Serving *Serving    `json:"serving,omitempty"`        // what it relays for others
	Private bool        `json:"privateNetwork,omitempty"` // it has a pre-shared key
}

// ReachAddr is one address of this peer.
type ReachAddr struct {
	Addr   string `json:"addr"`
	Class  string `json:"class"` // public, private, loopback or relayed
	State  string `json:"state"` // public, private, unknown, local or relayed
	Mapped bool   `json:"mapped,omitempty"`
}

// Serving is what a relay has done.
type Serving struct {
	Circuits int    `json:"circuits"` // open now
	Opened   uint64 `json:"opened"`
	Refused  uint64 `json:"refused"`
	Bytes    uint64 `json:"bytes"` // carried by circuits that have ended
}

// PingRequest asks for the way to a peer: a full multiaddr, a peer id or a key.
type PingRequest struct {
	Peer  string `json:"peer"`
	Count int    `json:"count"` // 1 to MaxPings
}

// PingResult is the way to a peer, or why there is none.
type PingResult struct {
	Peer    string    `json:"peer"`
	Conn    ConnInfo  `json:"conn,omitzero"`
	RTTs    []float64 `json:"rttMillis,omitempty"`
	Problem *Problem  `json:"problem,omitempty"`
}

// Problem is why a peer cannot be talked to.
type Problem struct {
	Reason string    `json:"reason"` // one stable word: offline, blocked, behind-nat, …
	Text   string    `json:"text"`
	Advice string    `json:"advice"`
	Seen   time.Time `json:"lastSeen,omitzero"`
	Detail string    `json:"detail,omitempty"` // what each address said
}

// Reputation explains what the peer makes of another one, given by id or key.
func (c *Client) Reputation(ctx context.Context, peer string) (p PeerReputation, err error) {
	return p, c.get(ctx, "/v1/peers/"+url.PathEscape(peer), &p)
}

func (s *Server) reputation(w http.ResponseWriter, r *http.Request) error {
	p, err := s.node.Reputation(r.PathValue("peer"))
	if err != nil {
		return err
	}
	return reply(w, p)
}

// AnchoredFacts are the receipts of others that count for or against a peer, given by id or key, with their anchors.
func (c *Client) AnchoredFacts(ctx context.Context, peer string) (f book.File, err error) {
	return f, c.get(ctx, "/v1/peers/"+url.PathEscape(peer)+"/facts", &f)
}

func (s *Server) anchoredFacts(w http.ResponseWriter, r *http.Request) error {
	f, err := s.node.AnchoredFacts(r.Context(), r.PathValue("peer"))
	if err != nil {
		return err
	}
	return reply(w, f)
}

// Ping measures the way from the peer to another one.
func (c *Client) Ping(ctx context.Context, target string, count int) (r PingResult, err error) {
	b, err := json.Marshal(PingRequest{Peer: target, Count: count})
	if err != nil {
		return r, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/ping", bytes.NewReader(b), nil)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

func (s *Server) ping(w http.ResponseWriter, r *http.Request) error {
	var req PingRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPingBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "reading the request: " + err.Error()}
	}
	if req.Count < 1 || req.Count > MaxPings {
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: fmt.Sprintf("count: %d is not between 1 and %d", req.Count, MaxPings)}
	}
	res, err := s.node.Ping(r.Context(), req.Peer, req.Count)
	if err != nil {
		return err
	}
	return reply(w, res)
}
