package inventory

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/service"
)

// Provide is the section of the configuration about selling: the operator's units, prices and limits.
type Provide struct {
	Enabled bool `yaml:"enabled"`
	// Units is how many units of CPU class are sold, each as large as Unit.
	Units uint32 `yaml:"units"`
	Unit  Unit   `yaml:"unit"`
	// Price per unit-hour of CPU, a decimal number of tokens: "0.05".
	Price string `yaml:"price"`
	// MinTime and MaxTime bound one lease.
	MinTime time.Duration `yaml:"minTime"`
	MaxTime time.Duration `yaml:"maxTime"`
	// Retain is how long outputs and logs of work that ended are kept for a buyer that is away, RetainMiB how much they
	// may take together: of more, the buyer that has most there loses its largest first.
	Retain    time.Duration `yaml:"retain"`
	RetainMiB uint32        `yaml:"retainMiB"`
	// StartWhen is "funded" to begin work when the buyer's escrow was seen on chain, or "optimistic" to begin it at
	// once for buyers that paid this provider in the last 30 days, with the first payment's amount at risk, at most
	// 16 times an hour. Other buyers wait.
	StartWhen string `yaml:"startWhen"`
	// Claim sets when payments are claimed from escrows during work; the rest is claimed at the end.
	Claim Claim `yaml:"claim"`
	// GPU selects the GPUs for sale; without a price there are none.
	GPU GPU `yaml:"gpu"`
	// Disk is kept for buyers' volumes, which outlive their jobs; without a size there is none.
	Disk Disk `yaml:"disk"`

	// Floor is the price that a unit-hour is never sold under, by class or family: {cpu: "0.01", gpu: "1.00"}.
	Floor map[string]string `yaml:"floor"`
	// Hours are when something new may be sold and leases may run: ["Mon-Fri 18:00-08:00", "Sat,Sun"]; none means
	// always.
	Hours []string `yaml:"hours"`
	// TimeZone is where Hours are meant, as Europe/Berlin; empty means the machine's own zone.
	TimeZone string `yaml:"timeZone"`
	// Share bounds the part of the machine that is sold.
	Share Share `yaml:"share"`
	// MaxLeasesPerBuyer bounds the leases of one buyer at a time; 0 means no bound.
	MaxLeasesPerBuyer int `yaml:"maxLeasesPerBuyer"`
	// MinReputation is the least reputation of a served buyer, between 0 and 1; 0 means that all are served.
	MinReputation float64 `yaml:"minReputation"`
	// Images selects the container images that may run here.
	Images Images `yaml:"images"`
	// Block are buyers that are not served; Only, when not empty, are all that are.
	Block []Blocked `yaml:"block"`
	Only  []string  `yaml:"only"`
}

// Default returns the section of a peer that sells nothing.
func Default() Provide {
	return Provide{
		Units: 1, Unit: Unit{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 2048},
		Price: "0.05", MinTime: time.Second, MaxTime: 24 * time.Hour,
		Retain: 24 * time.Hour, RetainMiB: 20 << 10,
		Disk:      Disk{MaxTime: 30 * 24 * time.Hour},
		StartWhen: StartOptimistic, Claim: Claim{Amount: "1", Every: time.Hour},
	}
}

// Unit is the size of one unit.
type Unit struct {
	MilliCPU  uint32 `yaml:"milliCPU"`
	MemoryMiB uint32 `yaml:"memoryMiB"`
	DiskMiB   uint32 `yaml:"diskMiB"`
}

// The values of Provide.StartWhen.
const (
	StartOptimistic = "optimistic"
	StartFunded     = "funded"
)

// Claim sets when to claim: the first payment early, then at an unclaimed amount or after an interval.
type Claim struct {
	Amount string        `yaml:"amount"` // a decimal number of tokens; empty: by the time alone
	Every  time.Duration `yaml:"every"`
}

// When reads it for a network.
func (c Claim) When(g market.Genesis) (escrow.When, error) {
	w := escrow.When{Amount: math.MaxUint64, Slots: g.SlotsIn(c.Every)}
	if c.Amount == "" {
		return w, nil
	}
	n, err := market.ParseDecimal(c.Amount, g.Decimals)
	if err != nil || n == 0 {
		return w, fmt.Errorf("%w: provide.claim.amount: %.40q, want an amount above 0, such as 2.5",
			service.ErrConfig, c.Amount)
	}
	w.Amount = market.Amount(n)
	return w, nil
}

// GPU is the machine's GPUs that are sold, one unit each, in a class for each model: gpu/h100.
type GPU struct {
	// Price per unit-hour; Prices has others for single classes: {gpu/h100: "2.50"}.
	Price  string            `yaml:"price"`
	Prices map[string]string `yaml:"prices"`
	// In addition to its GPU, each unit has this share of the machine.
	MilliCPU  uint32 `yaml:"milliCPU"`
	MemoryMiB uint32 `yaml:"memoryMiB"`
	DiskMiB   uint32 `yaml:"diskMiB"`
	// Devices selects the devices for sale, like --gpus: "all", "2", "device=0,1", "h100", "vram>=24".
	Devices string `yaml:"devices"`
	// Mock sells devices of NVIDIA's own mock instead, dgxh100 or another; only on a simulated network.
	Mock string `yaml:"mock"`
}

// Disk is the part of the machine's disk that is sold for volumes, in units of market.DiskUnitMiB.
type Disk struct {
	GiB   uint32 `yaml:"giB"`
	Price string `yaml:"price"` // per unit-hour
	// MaxTime bounds one lease of it, instead of Provide.MaxTime.
	MaxTime time.Duration `yaml:"maxTime"`
}

// units returns the number of units that are sold.
func (d Disk) units() int { return int(d.GiB / (market.DiskUnitMiB >> 10)) }

// Share bounds the part of the machine that is sold. A percentage of 0 means no bound.
type Share struct {
	Units  uint32 `yaml:"units"`  // percent of the units of each class
	CPU    uint32 `yaml:"cpu"`    // percent of the machine's processors, all units together
	Memory uint32 `yaml:"memory"` // percent of the machine's memory, all units together
	// Keep holds back a number of units of a class or family: {cpu: 1, gpu: 2}.
	Keep map[string]uint32 `yaml:"keep"`
}

// Images are patterns on repositories and digests; images.Parse has their form.
type Images struct {
	Allow []string `yaml:"allow"`
	Deny  []string `yaml:"deny"`
}

// Blocked is a buyer that is not served. The reason is the operator's note to itself.
type Blocked struct {
	Buyer  string `yaml:"buyer"`
	Reason string `yaml:"reason"`
}

const (
	// maxUnits bounds the units one peer sells: one tranche's leaves.
	maxUnits = 256
	// maxListed bounds the buyers of one list.
	maxListed = 4096
	// minRetain and maxRetain bound how long results are kept: buyers must have the time to fetch them, and disks do
	// not grow.
	minRetain = time.Minute
	maxRetain = 30 * 24 * time.Hour
)

// Check refuses a section that cannot work on any network and machine.
func (p Provide) Check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%w: provide.%s: %s", service.ErrConfig, field, fmt.Sprintf(format, args...))
	}
	if p.Enabled {
		switch {
		case p.Disk.GiB > 0 && (p.Disk.units() < 1 || p.Disk.units() > maxUnits):
			return bad("disk.giB", "%d is not between 10 and %d", p.Disk.GiB, 10*maxUnits)
		case p.Disk.GiB > 0 && p.Disk.MaxTime < p.MinTime:
			return bad("disk.maxTime", "%v is under minTime, %v", p.Disk.MaxTime, p.MinTime)
		case p.Units > maxUnits || p.Units == 0 && p.GPU.Price == "" && p.Disk.GiB == 0:
			return bad("units", "%d is not between 1 and %d", p.Units, maxUnits)
		case p.Units > 0 && (p.Unit.MilliCPU == 0 || p.Unit.MemoryMiB == 0 || p.Unit.DiskMiB == 0):
			return bad("unit", "milliCPU, memoryMiB and diskMiB must all be given")
		case p.MinTime <= 0 || p.MaxTime < p.MinTime:
			return bad("minTime and maxTime", "%v to %v is no range", p.MinTime, p.MaxTime)
		case p.Retain < minRetain || p.Retain > maxRetain:
			return bad("retain", "%v is not between %v and %v", p.Retain, minRetain, maxRetain)
		case p.StartWhen != StartOptimistic && p.StartWhen != StartFunded:
			return bad("startWhen", "got %.40q, want %s or %s", p.StartWhen, StartOptimistic, StartFunded)
		case p.Claim.Every < time.Second || p.Claim.Amount != "" && market.CheckDecimal(p.Claim.Amount) != nil:
			return bad("claim", "amount %.40q, every %v: want an amount such as 2.5, and at least 1s",
				p.Claim.Amount, p.Claim.Every)
		case p.RetainMiB == 0:
			return bad("retainMiB", "want at least 1 MiB, for buyers' results")
		case p.GPU.Price != "" && (p.GPU.MilliCPU == 0 || p.GPU.MemoryMiB == 0 || p.GPU.DiskMiB == 0):
			return bad("gpu", "milliCPU, memoryMiB and diskMiB of a unit must all be given")
		}
	}
	for _, share := range []uint32{p.Share.Units, p.Share.CPU, p.Share.Memory} {
		if share > 100 {
			return bad("share", "%d is no percentage", share)
		}
	}
	for field, classes := range map[string][]string{
		"floor": keys(p.Floor), "gpu.prices": keys(p.GPU.Prices), "share.keep": keys(p.Share.Keep),
	} {
		for _, c := range classes {
			if err := market.Class(c).Check(); err != nil {
				return bad(field, "%v", err)
			}
		}
	}
	if p.MaxLeasesPerBuyer < 0 {
		return bad("maxLeasesPerBuyer", "%d is below 0", p.MaxLeasesPerBuyer)
	}
	if !(p.MinReputation >= 0 && p.MinReputation < 1) {
		return bad("minReputation", "%g is not at least 0 and below 1", p.MinReputation)
	}
	if _, err := p.Policy(); err != nil {
		return err
	}
	return nil
}

func keys[K ~string, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Policy returns the rules of the provider, without the lots.
func (p Provide) Policy() (policy.Policy, error) {
	bad := func(field string, err error) (policy.Policy, error) {
		return policy.Policy{}, fmt.Errorf("%w: provide.%s: %w", service.ErrConfig, field, err)
	}
	pol := policy.Policy{
		MaxLeasesPerBuyer: p.MaxLeasesPerBuyer, MinReputation: uint32(1e6 * p.MinReputation),
		Block: map[sign.Key]string{},
	}
	var err error
	if pol.Hours, err = policy.ParseHours(p.Hours, p.TimeZone); err != nil {
		return bad("hours", err)
	}
	if pol.Images, err = images.Parse(p.Images.Allow, p.Images.Deny); err != nil {
		return bad("images", err)
	}
	if len(p.Block) > maxListed || len(p.Only) > maxListed {
		err := fmt.Errorf("%d and %d buyers, at most %d each", len(p.Block), len(p.Only), maxListed)
		return bad("block and only", err)
	}
	for i, b := range p.Block {
		k, err := sign.ParseKey(b.Buyer)
		if err != nil {
			return bad(fmt.Sprintf("block[%d]", i), err)
		}
		pol.Block[k] = b.Reason
	}
	for i, text := range p.Only {
		k, err := sign.ParseKey(text)
		if err != nil {
			return bad(fmt.Sprintf("only[%d]", i), err)
		}
		pol.Only = append(pol.Only, k)
	}
	return pol, nil
}

// of returns the entry of a class, or else of its family.
func of[V any](m map[string]V, c market.Class) (v V, ok bool) {
	if v, ok = m[string(c)]; !ok {
		v, ok = m[string(c.Family())]
	}
	return v, ok
}

// prices are price and floor of a class.
func (p Provide) prices(c market.Class, price string, decimals uint8) (ask, floor market.Price, err error) {
	n, err := market.ParseDecimal(price, decimals)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: provide: the price of class %s: %w", service.ErrConfig, c, err)
	}
	if text, ok := of(p.Floor, c); ok {
		f, err := market.ParseDecimal(text, decimals)
		if err != nil {
			return 0, 0, fmt.Errorf("%w: provide.floor: class %s: %w", service.ErrConfig, c, err)
		}
		floor = market.Price(f)
	}
	if market.Price(n) < floor {
		return 0, 0, fmt.Errorf("%w: provide: price of %s: got %s, want at least the floor of %s", service.ErrConfig,
			c, price, market.Decimal(uint64(floor), decimals))
	}
	return market.Price(n), floor, nil
}

// sold returns how many of n units of a class are sold when the operator's share is kept.
func (s Share) sold(c market.Class, n int) int {
	if s.Units > 0 {
		n = n * int(s.Units) / 100
	}
	keep, _ := of(s.Keep, c)
	return max(n-int(keep), 0)
}
