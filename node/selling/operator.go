package selling

import (
	"context"
	"errors"
	"net/http"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/provider"
)

// OwnOffers returns the offers of this peer and their state.
func (s *Seller) OwnOffers() (api.OwnOffers, error) {
	now := s.provider.Status()
	out := api.OwnOffers{
		State: now.State, Reason: now.Reason, Until: now.Until, Hours: now.Hours, Leases: now.Leases,
		Offers: []api.OwnOffer{},
	}
	for _, l := range now.Lots {
		out.Offers = append(out.Offers, api.OwnOffer{
			Class: l.Class, Model: l.Model, Capability: l.Capability, Simulated: l.Simulated, Seq: l.Seq,
			Units: len(l.Units), Free: l.Free, Proven: l.Proven, Leased: l.Held, Withdrawn: l.Withdrawn,
			PerUnit: l.PerUnit, Price: l.Asked, Floor: l.Floor, Runtimes: now.Runtimes,
		})
	}
	for _, u := range now.Sick {
		out.Withdrawn = append(out.Withdrawn, api.WithdrawnUnit{
			Class: u.Unit.Class, Serial: u.Unit.Serial, Model: u.Unit.Model, Reason: u.Reason, Leased: u.Leased,
		})
	}
	return out, nil
}

// PauseOffers sells nothing new from now on.
func (s *Seller) PauseOffers(ctx context.Context, drain bool) error {
	if drain {
		return s.provider.Drain(ctx)
	}
	return s.provider.Pause(ctx)
}

// ResumeOffers sells again, or takes withdrawn devices back in.
func (s *Seller) ResumeOffers(ctx context.Context, devices []string) error {
	if len(devices) == 0 {
		return s.provider.Resume(ctx)
	}
	err := s.gpus.Readmit(ctx, devices)
	if err == nil {
		err = s.provider.Readmit(devices)
	}
	if err != nil {
		return &api.Error{Status: http.StatusConflict, Code: "not_withdrawn", Message: err.Error(),
			Hint: "`starling provider status` shows the withdrawn units and the reasons"}
	}
	return nil
}

// Images lists the images that were brought for executions and stay, those used last first.
func (s *Seller) Images(ctx context.Context) ([]api.ImageInfo, error) {
	all, err := s.provider.Shelved(ctx)
	out := []api.ImageInfo{}
	for _, i := range all {
		out = append(out, api.ImageInfo{ID: i.ID, Digest: i.Digest, Size: i.Size, Used: i.Used, InUse: i.InUse,
			Public: i.Open})
	}
	return out, err
}

// RemoveImage removes an image that nothing uses.
func (s *Seller) RemoveImage(ctx context.Context, id string) error {
	return s.provider.Unshelve(ctx, id)
}

// PriceOffer changes the price of a class.
func (s *Seller) PriceOffer(ctx context.Context, class market.Class, price market.Price) error {
	err := s.provider.SetPrice(ctx, class, price)
	switch {
	case errors.Is(err, provider.ErrNotSold):
		return &api.Error{Status: http.StatusNotFound, Code: "not_sold", Message: err.Error(),
			Hint: "`starling provider status` shows the classes that are sold"}
	case errors.Is(err, provider.ErrFloor):
		return &api.Error{Status: http.StatusConflict, Code: "floor", Message: err.Error(),
			Hint: "provide.floor in config.yaml sets the lowest price"}
	}
	return err
}
