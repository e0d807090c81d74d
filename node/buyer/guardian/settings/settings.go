// Package settings is the section of the configuration about guarding: a peer's service for jobs with an absent owner.
package settings

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/node/service"
)

// Guard bounds the jobs that a peer guards. Jobs need guardians only if an escrow pays.
type Guard struct {
	// Accept means that the peer guards jobs.
	Accept bool `yaml:"accept"`
	// MaxJobs is the maximum number of guarded jobs at a time.
	MaxJobs int `yaml:"maxJobs"`
	// Share is the peer's fee as a part of the largest cost of a job's leases, such as 0.005.
	Share float64 `yaml:"share"`
	// MaxMiB bounds the files of one job, which the peer stores for the job's providers.
	MaxMiB int `yaml:"maxMiB"`
	// Longest is the longest duration of a job.
	Longest time.Duration `yaml:"longest"`
}

// maxShare bounds the share of one guardian, so that five together get at most a tenth.
const maxShare = 0.02

// Default returns the section of a peer that guards jobs.
func Default() Guard {
	return Guard{Accept: true, MaxJobs: 64, Share: 0.005, MaxMiB: 4 << 10, Longest: 31 * 24 * time.Hour}
}

// Check refuses a section that cannot work.
func (g Guard) Check() error {
	switch {
	case g.MaxJobs < 0 || g.MaxJobs > 10_000:
		return fmt.Errorf("%w: guard.maxJobs: %d is not between 0 and 10000", service.ErrConfig, g.MaxJobs)
	case !(g.Share >= 0 && g.Share <= maxShare):
		return fmt.Errorf("%w: guard.share: %g is not between 0 and %g", service.ErrConfig, g.Share, maxShare)
	case g.MaxMiB < 0 || g.MaxMiB > 1<<24:
		return fmt.Errorf("%w: guard.maxMiB: %d is not between 0 and %d", service.ErrConfig, g.MaxMiB, 1<<24)
	case g.Longest < 0 || g.Longest > 365*24*time.Hour:
		return fmt.Errorf("%w: guard.longest: %v is not between 0 and a year", service.ErrConfig, g.Longest)
	}
	return nil
}
