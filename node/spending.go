package node

import (
	"fmt"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
)

// Limits bound what is spent, as decimal numbers of tokens: "2.5". Empty is no limit. Days are those of UTC.
type Limits struct {
	// PerJob is the most that one job may cost.
	PerJob string `yaml:"perJob"`
	// PerDay is the most that the jobs submitted on one day may cost together; one that runs counts what it can cost at the
	// most, one that has ended what it did.
	PerDay string `yaml:"perDay"`
	// PerProviderPerDay is the same for the leases signed with one provider on one day.
	PerProviderPerDay string `yaml:"perProviderPerDay"`
}

// check refuses what is no amount of any token.
func (l Limits) check() error {
	for name, text := range map[string]string{"perJob": l.PerJob, "perDay": l.PerDay, "perProviderPerDay": l.PerProviderPerDay} {
		if text != "" && (market.CheckDecimal(text) != nil || strings.Trim(text, "0.") == "") {
			return noLimit(name, text)
		}
	}
	return nil
}

func noLimit(name, text string) error {
	return fmt.Errorf("%w: buy.limits.%s: %.40q is not an amount such as 2.5, above nothing", ErrConfig, name, text)
}

// amounts reads the limits for a token with so many decimals.
func (l Limits) amounts(decimals uint8) (buyer.Limits, error) {
	var out buyer.Limits
	for _, f := range []struct {
		name, text string
		to         *market.Amount
	}{{"perJob", l.PerJob, &out.PerJob}, {"perDay", l.PerDay, &out.PerDay}, {"perProviderPerDay", l.PerProviderPerDay, &out.PerProviderPerDay}} {
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
	// Private allows addresses of this machine and of private networks. Whoever may submit jobs can then have this peer call
	// services that only it can reach.
	Private bool `yaml:"private"`
}
