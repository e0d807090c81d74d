package inventory

import (
	"fmt"

	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/service"
)

// Clusters is the section of the configuration about the conditions of a seller for clusters. Their members send to
// one another through its network.
type Clusters struct {
	// Accept is false if no units are sold to clusters. Offers contain it.
	Accept bool `yaml:"accept"`
	// MaxMembers is how many members of clusters run here at a time; 0 is no limit.
	MaxMembers int `yaml:"maxMembers"`
}

// DefaultClusters returns the section of a seller that accepts clusters.
func DefaultClusters() Clusters { return Clusters{Accept: true} }

// Check refuses a section that cannot work.
func (c Clusters) Check() error {
	if c.MaxMembers < 0 {
		return fmt.Errorf("%w: clusters.maxMembers: %d is below 0", service.ErrConfig, c.MaxMembers)
	}
	return nil
}

// Policy returns the permissions of the section.
func (c Clusters) Policy() policy.Clusters {
	return policy.Clusters{No: !c.Accept, MaxMembers: c.MaxMembers}
}
