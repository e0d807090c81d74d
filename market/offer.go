package market

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
)

// Offer is a provider's statement of the units of one class it has free, its price and terms. The highest Seq of a
// provider and class counts.
type Offer struct {
	Provider    sign.Key  `json:"provider"` // the signer
	Seq         uint64    `json:"seq"`
	Class       Class     `json:"class"`
	Region      Region    `json:"region"`
	Units       uint32    `json:"units"` // free now
	Total       uint32    `json:"total"`
	PerUnit     Resources `json:"per_unit"`
	Price       Price     `json:"price"`
	MinSlots    uint64    `json:"min_slots"` // shortest lease sold
	MaxSlots    uint64    `json:"max_slots"` // longest lease sold
	Runtimes    []string  `json:"runtimes"`  // 1 to 8: "wasm", "docker"
	Payout      sign.Key  `json:"payout"`    // owner wallet
	NotBefore   time.Time `json:"not_before"`
	Expires     time.Time `json:"expires"`
	Addrs       []string  `json:"addrs"` // multiaddrs, at most 8
	Version     string    `json:"version"`
	GenesisHash sign.Hash `json:"genesis_hash"`

	Model      string     `json:"model,omitempty"`      // "NVIDIA H200", at most MaxModel printable bytes; "" for a mix
	Capability Capability `json:"capability,omitempty"` // the least of its units
	Simulated  bool       `json:"simulated,omitempty"`  // the units are not hardware

	// Proven is the number of Units with a fresh audit record. Proof is the ProofRoot over the records of all the
	// class's units, leased or free, so that it does not change with every lease. Zero: no unit has one.
	Proven uint32    `json:"proven,omitempty"`
	Proof  sign.Hash `json:"proof,omitzero"`

	// Coordinate is the provider's own estimate of its place in the network; zero means unknown.
	Coordinate Coordinate `json:"coordinate,omitzero"`
	// NoClusters means that the provider takes part in no clusters.
	NoClusters bool `json:"no_clusters,omitempty"`
	// Egress is the network access of containers, Images the images that may run.
	Egress Egress      `json:"egress,omitempty"`
	Images ImagePolicy `json:"images,omitzero"`
	// Ready are public images that the provider has.
	Ready ReadyImages `json:"ready,omitempty"`
}

// Hardware returns the model for display: "NVIDIA H200 (simulated)", or "a unit" if the model is unknown.
func (o Offer) Hardware() string { return hardware(o.Model, o.Simulated) }

// Validate reports the first field out of range. Times are checked by DecodeOffer, against a clock.
func (o Offer) Validate() error {
	if err := o.Class.Check(); err != nil {
		return err
	}
	if err := o.Region.Check(); err != nil {
		return err
	}
	if o.Total < 1 || o.Units > o.Total {
		return malformed("offer units", "%d free of %d", o.Units, o.Total)
	}
	if o.Proven > o.Units || o.Proven > 0 && o.Proof.IsZero() {
		return malformed("offer proven", "%d of %d, with proof %s", o.Proven, o.Units, o.Proof.Short())
	}
	if !o.Coordinate.IsZero() {
		if err := o.Coordinate.Check(); err != nil {
			return fmt.Errorf("offer: %w", err)
		}
	}
	if o.MinSlots < 1 || o.MinSlots > o.MaxSlots || o.MaxSlots > MaxLeaseSlots {
		return malformed("offer slots", "%d to %d", o.MinSlots, o.MaxSlots)
	}
	if len(o.Runtimes) < 1 || len(o.Runtimes) > MaxRuntimes {
		return malformed("offer runtimes", "%d, want 1 to %d", len(o.Runtimes), MaxRuntimes)
	}
	for _, r := range o.Runtimes {
		if err := checkRuntime(r); err != nil {
			return err
		}
	}
	if err := checkHardware("offer", o.Model, o.Capability); err != nil {
		return err
	}
	if err := o.Egress.check("offer egress"); err != nil {
		return err
	}
	if _, err := o.Images.Patterns(); err != nil {
		return err
	}
	if err := o.Ready.Check(); err != nil {
		return malformed("offer images_ready", "%v", err)
	}
	if o.Payout.IsZero() {
		return malformed("offer payout", "not set")
	}
	if o.Expires.IsZero() || !o.Expires.After(o.NotBefore) {
		return malformed("offer expires", "not after its begin")
	}
	if err := checkAddrs("offer addrs", o.Addrs); err != nil {
		return err
	}
	return checkVersion(o.Version)
}

// CheckGenesis refuses an offer made under another genesis with ErrOtherNetwork, and one of simulated units with
// ErrSimulated unless the genesis is of a simulated network.
func (o Offer) CheckGenesis(g Genesis) error {
	if h := g.Hash(); o.GenesisHash != h {
		return fmt.Errorf("offer of %s: %w: genesis %s, ours is %s",
			o.Provider.Short(), ErrOtherNetwork, o.GenesisHash.Short(), h.Short())
	}
	if o.Simulated && !g.Simulated {
		return fmt.Errorf("offer of %s: %w: %s is on offer, network %s is real",
			o.Provider.Short(), ErrSimulated, o.Hardware(), g.Tag())
	}
	return nil
}

// Supersedes refuses, with ErrReplayed, an offer that is not newer than the known one of the same provider and class.
func (o Offer) Supersedes(known Offer) error {
	if o.Seq <= known.Seq {
		return fmt.Errorf("offer %d of %s: %w, %d", o.Seq, o.Provider.Short(), ErrReplayed, known.Seq)
	}
	return nil
}

// Encode validates the offer and returns it as an envelope signed by s. Provider is taken from s, times are cut to
// milliseconds.
func (o Offer) Encode(d sign.Domain, s sign.Signer) ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m := &marketpb.Offer{
		Seq: o.Seq, Class: string(o.Class), Region: string(o.Region), Units: o.Units, Total: o.Total,
		PerUnit: ResourcesToPB(o.PerUnit), Price: uint64(o.Price), MinSlots: o.MinSlots, MaxSlots: o.MaxSlots,
		Runtimes: o.Runtimes, Payout: o.Payout[:], NotBefore: millis(o.NotBefore), Expires: millis(o.Expires),
		Addrs: o.Addrs, Version: o.Version, GenesisHash: o.GenesisHash[:],
		Model: o.Model, Capability: uint32(o.Capability), Simulated: o.Simulated, Proven: o.Proven,
		NoClusters: o.NoClusters, Egress: uint32(o.Egress), ImagesAllow: o.Images.Allow, ImagesDeny: o.Images.Deny,
		ImagesMore: o.Images.More, ImagesReady: o.Ready.Bytes(),
	}
	if !o.Proof.IsZero() {
		m.Proof = o.Proof[:]
	}
	if !o.Coordinate.IsZero() {
		m.Coordinate = o.Coordinate.Marshal()
	}
	e, err := seal(d, sign.TagOffer, m, MaxOfferPayload, s)
	if err != nil {
		return nil, err
	}
	return e.Marshal(), nil
}

// DecodeOffer verifies and validates an offer as received. ErrMalformed, ErrBadSignature, ErrExpired or ErrNotYet.
func DecodeOffer(d sign.Domain, b []byte, now time.Time) (Offer, error) {
	var m marketpb.Offer
	e, err := open(d, sign.TagOffer, b, MaxOfferPayload, &m)
	if err != nil {
		return Offer{}, fmt.Errorf("offer: %w", err)
	}
	egress, err := egressFrom("offer egress", m.Egress)
	if err != nil {
		return Offer{}, err
	}
	o := Offer{
		Provider: e.Key, Seq: m.Seq, Class: Class(m.Class), Region: Region(m.Region), Units: m.Units, Total: m.Total,
		PerUnit: ResourcesFromPB(m.PerUnit), Price: Price(m.Price), MinSlots: m.MinSlots, MaxSlots: m.MaxSlots,
		Runtimes: slices.Clone(m.Runtimes), Addrs: slices.Clone(m.Addrs), Version: m.Version,
		Model: m.Model, Capability: Capability(m.Capability), Simulated: m.Simulated, Proven: m.Proven,
		NoClusters: m.NoClusters, Egress: egress, Images: ImagePolicy{Allow: slices.Clone(m.ImagesAllow),
			Deny: slices.Clone(m.ImagesDeny), More: m.ImagesMore},
	}
	if len(m.Proof) > 0 {
		if o.Proof, err = exactly[sign.Hash]("offer proof", m.Proof); err != nil {
			return Offer{}, err
		}
	}
	if o.Ready, err = images.ParseReady(m.ImagesReady); err != nil {
		return Offer{}, malformed("offer images_ready", "%v", err)
	}
	if len(m.Coordinate) > 0 {
		if o.Coordinate, err = UnmarshalCoordinate(m.Coordinate); err != nil {
			return Offer{}, fmt.Errorf("offer: %w", err)
		}
	}
	if o.Payout, err = exactly[sign.Key]("offer payout", m.Payout); err != nil {
		return Offer{}, err
	}
	if o.GenesisHash, err = exactly[sign.Hash]("offer genesis_hash", m.GenesisHash); err != nil {
		return Offer{}, err
	}
	if o.NotBefore, err = fromMillis("offer not_before", m.NotBefore); err != nil {
		return Offer{}, err
	}
	if o.Expires, err = fromMillis("offer expires", m.Expires); err != nil {
		return Offer{}, err
	}
	if err := o.Validate(); err != nil {
		return Offer{}, err
	}
	return o, checkTimes("offer", now, o.NotBefore, o.Expires, MaxOfferValidity)
}

// ImagePrefix is the beginning of an image's digest, and ReadyImages are the images that an offer names by it.
type (
	ImagePrefix = images.Prefix
	ReadyImages = images.Ready
)

// PrefixOf returns the prefix of an image in offers, zero if they do not name it.
func PrefixOf(image string) ImagePrefix { return images.PrefixOf(image) }

// MaxImagePolicy bounds the patterns of ImagePolicy in bytes, with one more for each of them.
const MaxImagePolicy = 240

// ImagePolicy is the part of images.Patterns that an offer has room for.
type ImagePolicy struct {
	Allow []string `json:"allow,omitempty"` // patterns as images.Parse reads them
	Deny  []string `json:"deny,omitempty"`
	// More means that there are patterns for which the offer has no room: the provider refuses a reservation for an
	// image that they do not let run.
	More bool `json:"more,omitempty"`
}

// NewImagePolicy is im as an offer carries it: all patterns, or none of them and More.
func NewImagePolicy(im images.Patterns) ImagePolicy {
	p := ImagePolicy{Allow: im.Allowed(), Deny: im.Denied()}
	if p.size() > MaxImagePolicy {
		return ImagePolicy{More: true}
	}
	return p
}

func (p ImagePolicy) size() (n int) {
	for _, x := range slices.Concat(p.Allow, p.Deny) {
		n += len(x) + 1
	}
	return n
}

// Size is the maximum size of the policy in an offer, in bytes.
func (p ImagePolicy) Size() int { return p.size() + 2*(len(p.Allow)+len(p.Deny)) + 16 }

// Equal reports whether two policies are the same.
func (p ImagePolicy) Equal(o ImagePolicy) bool {
	return p.More == o.More && slices.Equal(p.Allow, o.Allow) && slices.Equal(p.Deny, o.Deny)
}

// Patterns parses the patterns. It returns ErrMalformed for an invalid pattern, and for more than MaxImagePolicy bytes.
func (p ImagePolicy) Patterns() (images.Patterns, error) {
	if n := p.size(); n > MaxImagePolicy {
		return images.Patterns{}, malformed("offer images", "%d bytes, at most %d", n, MaxImagePolicy)
	}
	im, err := images.Parse(p.Allow, p.Deny)
	if err != nil {
		return images.Patterns{}, malformed("offer images", "%v", err)
	}
	return im, nil
}
