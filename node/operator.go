package node

import (
	"context"
	"errors"
	"net/http"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/provider"
)

// selling is the provider, or the error that says that there is none.
func (n *Node) selling() (*provider.Provider, error) {
	if n.provider == nil {
		return nil, &api.Error{Status: http.StatusConflict, Code: "sells_nothing", Message: "this peer sells nothing",
			Hint: "set provide.enabled and a price in config.yaml, and start the peer again"}
	}
	return n.provider, nil
}

// OwnOffers tells what this peer sells and how it stands.
func (n *Node) OwnOffers() (api.OwnOffers, error) {
	p, err := n.selling()
	if err != nil {
		return api.OwnOffers{}, err
	}
	s := p.Status()
	out := api.OwnOffers{State: s.State, Reason: s.Reason, Until: s.Until, Hours: s.Hours, Leases: s.Leases, Offers: []api.OwnOffer{}}
	for _, l := range s.Lots {
		out.Offers = append(out.Offers, api.OwnOffer{
			Class: l.Class, Model: l.Model, Capability: l.Capability, Simulated: l.Simulated, Seq: l.Seq, Units: len(l.Units), Free: l.Free, Proven: l.Proven,
			Leased: l.Held, Withdrawn: l.Withdrawn, PerUnit: l.PerUnit, Price: l.Asked, Floor: l.Floor, Runtimes: s.Runtimes,
		})
	}
	for _, u := range s.Sick {
		out.Withdrawn = append(out.Withdrawn, api.WithdrawnUnit{Class: u.Unit.Class, Serial: u.Unit.Serial, Model: u.Unit.Model, Reason: u.Reason, Leased: u.Leased})
	}
	return out, nil
}

// PauseOffers sells nothing new from now on.
func (n *Node) PauseOffers(ctx context.Context, drain bool) error {
	p, err := n.selling()
	if err != nil {
		return err
	}
	if drain {
		return p.Drain(ctx)
	}
	return p.Pause(ctx)
}

// ResumeOffers sells again, or takes withdrawn devices back in.
func (n *Node) ResumeOffers(ctx context.Context, devices []string) error {
	p, err := n.selling()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return p.Resume(ctx)
	}
	if n.p.GPUs != nil {
		err = n.gpus.readmit(ctx, devices)
	}
	if err == nil {
		err = p.Readmit(devices)
	}
	if err != nil {
		return &api.Error{Status: http.StatusConflict, Code: "not_withdrawn", Message: err.Error(), Hint: "`starling provider status` shows what is withdrawn and why"}
	}
	return nil
}

// PriceOffer changes what is asked for a class.
func (n *Node) PriceOffer(ctx context.Context, class market.Class, price market.Price) error {
	p, err := n.selling()
	if err != nil {
		return err
	}
	err = p.SetPrice(ctx, class, price)
	switch {
	case errors.Is(err, provider.ErrNotSold):
		return &api.Error{Status: http.StatusNotFound, Code: "not_sold", Message: err.Error(), Hint: "`starling provider status` shows the classes that are sold"}
	case errors.Is(err, provider.ErrFloor):
		return &api.Error{Status: http.StatusConflict, Code: "floor", Message: err.Error(), Hint: "provide.floor in config.yaml sets the lowest price"}
	}
	return err
}
