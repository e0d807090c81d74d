// Package settings is the section of the configuration about a peer's purchases for its user.
package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/service"
)

// Buy bounds the purchases of a peer for its user.
type Buy struct {
	// QuoteWindow is the maximum wait for the quotes of an order.
	QuoteWindow time.Duration `yaml:"quoteWindow"`
	// MaxJobs is the maximum number of jobs at a time. Jobs that only await settlement do not count.
	MaxJobs int `yaml:"maxJobs"`
	// MinReputation is the minimum reputation for a provider's quote, between 0 and 1; 0 accepts all, in the order of
	// the buyer's weights.
	MinReputation float64 `yaml:"minReputation"`
	// Limits bound the spending of all users together; `starling peer key add` sets more for others than the peer's own
	// user.
	Limits Limits `yaml:"limits"`
	// Webhooks bounds where jobs may have their webhooks.
	Webhooks Webhooks `yaml:"webhooks"`
}

// Default returns the section of a peer without limits on its spending.
func Default() Buy { return Buy{QuoteWindow: 2 * time.Second, MaxJobs: 64} }

// Check refuses a section that cannot work.
func (b Buy) Check() error {
	switch {
	case b.QuoteWindow <= 0 || b.QuoteWindow > time.Minute:
		return fmt.Errorf("%w: buy.quoteWindow: %v is not between 0 and 1m", service.ErrConfig, b.QuoteWindow)
	case !(b.MinReputation >= 0 && b.MinReputation < 1):
		return fmt.Errorf("%w: buy.minReputation: %g is not at least 0 and below 1", service.ErrConfig, b.MinReputation)
	case b.MaxJobs < 1:
		return fmt.Errorf("%w: buy.maxJobs: %d is not at least 1", service.ErrConfig, b.MaxJobs)
	}
	return b.Limits.check()
}

// Weights returns the preferences among providers on a network.
func (b Buy) Weights(g market.Genesis) match.Weights {
	w := match.DefaultWeights(g)
	w.MinReputation = uint32(1e6 * b.MinReputation)
	return w
}

// Limits bound the spending, as decimal numbers of tokens: "2.5". Empty is no limit. Days are those of UTC.
type Limits struct {
	// PerJob is the most that one job may cost.
	PerJob string `yaml:"perJob"`
	// PerDay is the most that the jobs submitted on one day may cost together. A running job counts with its largest
	// possible cost, an ended one with its real cost.
	PerDay string `yaml:"perDay"`
	// PerProviderPerDay is the same for the leases signed with one provider on one day.
	PerProviderPerDay string `yaml:"perProviderPerDay"`
}

// check refuses texts that are no amount of any token.
func (l Limits) check() error {
	for name, text := range map[string]string{
		"perJob": l.PerJob, "perDay": l.PerDay, "perProviderPerDay": l.PerProviderPerDay,
	} {
		if text != "" && (market.CheckDecimal(text) != nil || strings.Trim(text, "0.") == "") {
			return noLimit(name, text)
		}
	}
	return nil
}

func noLimit(name, text string) error {
	return fmt.Errorf("%w: buy.limits.%s: %.40q, want an amount above 0, such as 2.5", service.ErrConfig, name, text)
}

// Amounts parses the limits for a token with decimals decimals.
func (l Limits) Amounts(decimals uint8) (spend.Limits, error) {
	var out spend.Limits
	for _, f := range []struct {
		name, text string
		to         *market.Amount
	}{
		{"perJob", l.PerJob, &out.PerJob}, {"perDay", l.PerDay, &out.PerDay},
		{"perProviderPerDay", l.PerProviderPerDay, &out.PerProviderPerDay},
	} {
		if f.text == "" {
			continue
		}
		n, err := market.ParseDecimal(f.text, decimals)
		if err != nil || n == 0 {
			return out, noLimit(f.name, f.text)
		}
		*f.to = market.Amount(n)
	}
	return out, nil
}

// Webhooks bounds where a job's webhooks may be.
type Webhooks struct {
	// Private allows addresses of this machine and of private networks. A user that submits jobs can then have this
	// peer call services that only it can reach.
	Private bool `yaml:"private"`
}
