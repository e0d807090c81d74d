package config

import (
	"fmt"
	"time"
)

// Guard is a peer's service for jobs with an absent owner. Jobs need guardians only if an escrow pays.
type Guard struct {
	// Accept means that the peer guards jobs.
	Accept bool `yaml:"accept"`
	// MaxJobs is how many at a time.
	MaxJobs int `yaml:"maxJobs"`
	// Share is the peer's fee as a part of the largest cost of a job's leases, such as 0.005.
	Share float64 `yaml:"share"`
	// MaxMiB bounds the files of one job, which the peer stores for the job's providers.
	MaxMiB int `yaml:"maxMiB"`
	// Longest is how long a job may last.
	Longest time.Duration `yaml:"longest"`
}

// maxShare bounds the share of one guardian, so that five together get at most a tenth.
const maxShare = 0.02

func (g Guard) check() error {
	switch {
	case g.MaxJobs < 0 || g.MaxJobs > 10_000:
		return fmt.Errorf("%w: guard.maxJobs: %d is not between 0 and 10000", ErrConfig, g.MaxJobs)
	case !(g.Share >= 0 && g.Share <= maxShare):
		return fmt.Errorf("%w: guard.share: %g is not between 0 and %g", ErrConfig, g.Share, maxShare)
	case g.MaxMiB < 0 || g.MaxMiB > 1<<24:
		return fmt.Errorf("%w: guard.maxMiB: %d is not between 0 and %d", ErrConfig, g.MaxMiB, 1<<24)
	case g.Longest < 0 || g.Longest > 365*24*time.Hour:
		return fmt.Errorf("%w: guard.longest: %v is not between 0 and a year", ErrConfig, g.Longest)
	}
	return nil
}
