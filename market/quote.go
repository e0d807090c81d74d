package market

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
)

// Quote is a provider's sealed answer to an order, with its price. It is not binding.
type Quote struct {
	Order    OrderID   `json:"order"`
	Provider sign.Key  `json:"provider"` // the signer
	Price    Price     `json:"price"`
	Leases   uint32    `json:"leases"` // how many leases of the order it could take now
	Payout   sign.Key  `json:"payout"` // owner wallet
	Expires  time.Time `json:"expires"`
	Region   Region    `json:"region"`
	OfferSeq uint64    `json:"offer_seq"` // the offer it stands on
	PerUnit  Resources `json:"per_unit"`
	Addrs    []string  `json:"addrs"`
	Version  string    `json:"version"`

	// Class, model and so on of the units, as in the provider's offer.
	Class      Class      `json:"class"`
	Model      string     `json:"model,omitempty"`
	Capability Capability `json:"capability,omitempty"`
	Simulated  bool       `json:"simulated,omitempty"`
}

// Hardware names the model for a person: "NVIDIA H200 (simulated)", "a unit" when it is not said.
func (q Quote) Hardware() string { return hardware(q.Model, q.Simulated) }

// Validate reports the first field out of range. Times are checked by DecodeQuote, against a clock.
func (q Quote) Validate() error {
	if q.Order.IsZero() {
		return malformed("quote order", "not set")
	}
	if q.Leases < 1 || q.Leases > MaxCount {
		return malformed("quote leases", "%d, want 1 to %d", q.Leases, MaxCount)
	}
	if q.Payout.IsZero() {
		return malformed("quote payout", "not set")
	}
	if q.Expires.IsZero() {
		return malformed("quote expires", "not set")
	}
	if err := q.Region.Check(); err != nil {
		return err
	}
	if err := q.Class.Check(); err != nil {
		return err
	}
	if err := checkHardware("quote", q.Model, q.Capability); err != nil {
		return err
	}
	if err := checkAddrs("quote addrs", q.Addrs); err != nil {
		return err
	}
	return checkVersion(q.Version)
}

// CheckFor refuses a quote that answers another order, is about units the order does not ask for, or comes from the
// buyer itself.
func (q Quote) CheckFor(o Order) error {
	if q.Order != o.ID {
		return malformed("quote order", "answers order %s, not %s", q.Order.Short(), o.ID.Short())
	}
	if !o.Class.Accepts(q.Class) {
		return malformed("quote class", "units of %s for an order of %s", q.Class, o.Class)
	}
	if q.Provider == o.Buyer || q.Provider == o.Agent {
		return Refuse(ReasonOwn, "the quote is the buyer's own")
	}
	return nil
}

// CheckOffer returns an error if the quote's units differ from those of the offer beside it.
func (q Quote) CheckOffer(o Offer) error {
	if q.Provider != o.Provider || q.Class != o.Class || q.Model != o.Model || q.Capability != o.Capability ||
		q.Simulated != o.Simulated {
		return malformed("quote",
			"got %s of class %s by %s; its offer is for %s of class %s by %s",
			q.Hardware(), q.Class, q.Provider.Short(), o.Hardware(), o.Class, o.Provider.Short())
	}
	return nil
}

// Encode validates the quote and returns it as an envelope signed by s. Provider is taken from s, times are cut to
// milliseconds.
func (q Quote) Encode(d sign.Domain, s sign.Signer) ([]byte, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	e, err := seal(d, sign.TagQuote, &marketpb.Quote{
		Order: q.Order[:], Price: uint64(q.Price), Leases: q.Leases, Payout: q.Payout[:], Expires: millis(q.Expires),
		Region: string(q.Region), OfferSeq: q.OfferSeq, PerUnit: ResourcesToPB(q.PerUnit), Addrs: q.Addrs,
		Version: q.Version, Class: string(q.Class), Model: q.Model, Capability: uint32(q.Capability),
		Simulated: q.Simulated,
	}, MaxQuotePayload, s)
	if err != nil {
		return nil, err
	}
	return e.Marshal(), nil
}

// DecodeQuote verifies and validates a quote as received. ErrMalformed, ErrBadSignature, ErrExpired or ErrNotYet.
func DecodeQuote(d sign.Domain, b []byte, now time.Time) (Quote, error) {
	var m marketpb.Quote
	e, err := open(d, sign.TagQuote, b, MaxQuotePayload, &m)
	if err != nil {
		return Quote{}, fmt.Errorf("quote: %w", err)
	}
	q := Quote{
		Provider: e.Key, Price: Price(m.Price), Leases: m.Leases, Region: Region(m.Region), OfferSeq: m.OfferSeq,
		PerUnit: ResourcesFromPB(m.PerUnit), Addrs: slices.Clone(m.Addrs), Version: m.Version,
		Class: Class(m.Class), Model: m.Model, Capability: Capability(m.Capability), Simulated: m.Simulated,
	}
	if q.Order, err = exactly[OrderID]("quote order", m.Order); err != nil {
		return Quote{}, err
	}
	if q.Payout, err = exactly[sign.Key]("quote payout", m.Payout); err != nil {
		return Quote{}, err
	}
	if q.Expires, err = fromMillis("quote expires", m.Expires); err != nil {
		return Quote{}, err
	}
	if err := q.Validate(); err != nil {
		return Quote{}, err
	}
	return q, checkTimes("quote", now, time.Time{}, q.Expires, MaxQuoteValidity)
}
