package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery"
)

// Offer publishes the peer's offers in the DHT, under each class and its family. Without offers it withdraws the
// published ones.
func (x *Exchange) Offer(ctx context.Context, offers []market.Offer, envelopes [][]byte) error {
	if len(offers) == 0 {
		return x.cfg.Discovery.Withdraw(ctx)
	}
	list, err := market.MarshalOffers(envelopes)
	if err != nil {
		return err
	}
	var topics []discovery.Topic
	for _, role := range x.cfg.Roles {
		topics = append(topics, discovery.Topic{Class: role, Region: x.cfg.Region})
	}
	for _, o := range offers {
		for _, c := range []market.Class{o.Class, o.Class.Family()} {
			if t := (discovery.Topic{Class: string(c), Region: string(o.Region)}); !slices.Contains(topics, t) {
				topics = append(topics, t)
			}
		}
	}
	return x.cfg.Discovery.Publish(ctx, discovery.Record{Topics: topics, Payload: list})
}

// hints looks up peers in the DHT that may sell a class.
func (x *Exchange) hints(ctx context.Context, c market.Class, most int) ([]peer.AddrInfo, error) {
	return x.cfg.Discovery.Hints(ctx, discovery.Topic{Class: string(c)}, most)
}

// signedOffer is an offer and the envelope that its provider signed.
type signedOffer struct {
	market.Offer
	envelope []byte
}

// Find returns at most most offers of a class or family from the DHT.
func (x *Exchange) Find(
	ctx context.Context, c market.Class, regions []market.Region, most int,
) ([]market.Offer, error) {
	found, err := x.look(ctx, c, regions, most)
	out := make([]market.Offer, 0, len(found))
	for _, f := range found {
		out = append(out, f.Offer)
	}
	return out, err
}

// FindSigned is Find with the envelopes that the providers signed, for light clients.
func (x *Exchange) FindSigned(
	ctx context.Context, c market.Class, regions []market.Region, most int,
) ([][]byte, error) {
	found, err := x.look(ctx, c, regions, most)
	out := make([][]byte, 0, len(found))
	for _, f := range found {
		out = append(out, f.envelope)
	}
	return out, err
}

// offersOf reads the offers of one record. A record is not trusted: the signature, network and times of each offer are
// checked here, on every read. Valid offers are returned even if others are invalid.
func (x *Exchange) offersOf(f discovery.Found) (out []signedOffer, err error) {
	key, err := p2p.KeyFromPeerID(f.Peer.ID)
	if err != nil {
		return nil, err
	}
	envelopes, err := market.UnmarshalOffers(f.Record.Payload)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, env := range envelopes {
		o, err := market.DecodeOffer(x.cfg.Genesis.Domain(), env, time.Now())
		if err == nil {
			err = o.CheckGenesis(x.cfg.Genesis)
		}
		if err == nil && o.Provider != sign.Key(key) {
			err = fmt.Errorf("%w: offer of %s in the record of %s", market.ErrMalformed, o.Provider.Short(), f.Peer.ID)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, signedOffer{o, env})
	}
	return out, errors.Join(errs...)
}

// look looks up offers of a class or family in the DHT.
func (x *Exchange) look(ctx context.Context, c market.Class, regions []market.Region, most int) ([]signedOffer, error) {
	if len(regions) == 0 {
		regions = []market.Region{""}
	}
	var out []signedOffer
	var errs []error
	for _, r := range regions {
		found, err := x.cfg.Discovery.Find(ctx, discovery.Topic{Class: string(c), Region: string(r)}, most-len(out))
		if err != nil {
			errs = append(errs, err)
		}
		for _, f := range found {
			offers, err := x.offersOf(f)
			if err != nil {
				x.cfg.Log.Debug("an offer in the DHT is not good", "peer", f.Peer.ID, "err", err)
			}
			for _, o := range offers {
				if c.Accepts(o.Class) {
					out = append(out, o)
				}
			}
		}
		if len(out) >= most {
			break
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, errors.Join(errs...)
}
