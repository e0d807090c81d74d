package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/starling-network/starling/market"
)

// maxWord bounds what an operator says in one request, bytes.
const maxWord = 64 << 10

// Operator is what the API asks of the selling side for whoever runs the peer.
type Operator interface {
	OwnOffers() (OwnOffers, error)
	// PauseOffers sells nothing new; with drain, because the peer is to be stopped.
	PauseOffers(ctx context.Context, drain bool) error
	// ResumeOffers sells again. With devices it sells these again, which were withdrawn, and nothing else changes.
	ResumeOffers(ctx context.Context, devices []string) error
	PriceOffer(ctx context.Context, class market.Class, price market.Price) error
}

// OwnOffers is what this peer sells, and how it stands.
type OwnOffers struct {
	State     string          `json:"state"`            // selling, paused, draining, drained, closed or no fees
	Reason    string          `json:"reason,omitempty"` // of "no fees"
	Until     time.Time       `json:"until,omitzero"`   // when the hours begin or end; never when not set
	Hours     string          `json:"hours"`
	Leases    int             `json:"leases"` // live ones and holds
	Offers    []OwnOffer      `json:"offers"`
	Withdrawn []WithdrawnUnit `json:"withdrawn,omitempty"`
}

// OwnOffer is what is sold of one class.
type OwnOffer struct {
	Class      market.Class      `json:"class"`
	Model      string            `json:"model,omitempty"`
	Capability market.Capability `json:"capability,omitempty"`
	Simulated  bool              `json:"simulated,omitempty"`
	Seq        uint64            `json:"seq"` // of the last offer published; 0: none yet
	Units      int               `json:"units"`
	Free       int               `json:"free"`
	Proven     int               `json:"proven,omitempty"` // of those, with a fresh audit record
	Leased     int               `json:"leased"`
	Withdrawn  int               `json:"withdrawn"`
	PerUnit    market.Resources  `json:"perUnit"`
	Price      market.Price      `json:"price"`
	Floor      market.Price      `json:"floor"`
	Runtimes   []string          `json:"runtimes"`
}

// WithdrawnUnit is a unit that is not sold because something is wrong with it.
type WithdrawnUnit struct {
	Class  market.Class `json:"class"`
	Serial string       `json:"serial"`
	Model  string       `json:"model"`
	Reason string       `json:"reason"`
	Leased bool         `json:"leased"` // somebody has it still
}

// operatorWord is the body of an operator's request.
type operatorWord struct {
	Devices []string     `json:"devices,omitempty"`
	Class   market.Class `json:"class,omitempty"`
	Price   market.Price `json:"price,omitempty"`
}

// operatorRoutes are the routes of whoever runs the peer.
func (s *Server) operatorRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	said := func(do func(ctx context.Context, word operatorWord) error) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			var word operatorWord
			dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxWord))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&word); err != nil {
				return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "reading the request: " + err.Error()}
			}
			if err := do(r.Context(), word); err != nil {
				return err
			}
			return s.ownOffers(w, r)
		}
	}
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/offers/own": s.ownOffers,
		"POST /v1/offers/own/pause": said(func(ctx context.Context, _ operatorWord) error {
			return s.node.PauseOffers(ctx, false)
		}),
		"POST /v1/offers/own/drain": said(func(ctx context.Context, _ operatorWord) error {
			return s.node.PauseOffers(ctx, true)
		}),
		"POST /v1/offers/own/resume": said(func(ctx context.Context, word operatorWord) error {
			return s.node.ResumeOffers(ctx, word.Devices)
		}),
		"POST /v1/offers/own/price": said(func(ctx context.Context, word operatorWord) error {
			return s.node.PriceOffer(ctx, word.Class, word.Price)
		}),
	}
}

func (s *Server) ownOffers(w http.ResponseWriter, _ *http.Request) error {
	o, err := s.node.OwnOffers()
	if err != nil {
		return err
	}
	return reply(w, o)
}

// OwnOffers tells what the peer sells.
func (c *Client) OwnOffers(ctx context.Context) (o OwnOffers, err error) {
	return o, c.get(ctx, "/v1/offers/own", &o)
}

// PauseOffers takes the peer's offers back; what is sold goes on.
func (c *Client) PauseOffers(ctx context.Context) (OwnOffers, error) {
	return c.say(ctx, "pause", operatorWord{})
}

// DrainOffers is PauseOffers before the peer is stopped; OwnOffers shows how far it is.
func (c *Client) DrainOffers(ctx context.Context) (OwnOffers, error) {
	return c.say(ctx, "drain", operatorWord{})
}

// ResumeOffers sells again, or with devices takes these back in.
func (c *Client) ResumeOffers(ctx context.Context, devices ...string) (OwnOffers, error) {
	return c.say(ctx, "resume", operatorWord{Devices: devices})
}

// PriceOffer changes the price of a class.
func (c *Client) PriceOffer(ctx context.Context, class market.Class, price market.Price) (OwnOffers, error) {
	return c.say(ctx, "price", operatorWord{Class: class, Price: price})
}

func (c *Client) say(ctx context.Context, what string, word operatorWord) (o OwnOffers, err error) {
	b, err := json.Marshal(word)
	if err != nil {
		return o, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/offers/own/"+what, bytes.NewReader(b), http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	return o, json.NewDecoder(resp.Body).Decode(&o)
}
