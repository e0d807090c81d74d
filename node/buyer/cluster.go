package buyer

import "time"

// Cluster is what a job has that is a cluster.
type Cluster struct {
	// Ready is since when its engine takes work; zero: it does not yet.
	Ready time.Time `json:"ready,omitzero"`
	// Version is that of the last plan that its members were told.
	Version uint64 `json:"version,omitempty"`
}
