package ociruntime

import "github.com/starling-network/starling/node/runtime"

const (
	// Subcommand is the first argument of a binary that is to stand in for runc.
	Subcommand = "oci-runtime"
	// Name is the name of this OCI runtime in an engine's daemon.json.
	Name = "starling"
	// LayerPath is the target of the mount that names a container's layer. The mount itself is never made.
	LayerPath = runtime.ControlDir + "/layer"

	// RangeSize is how many users and groups a container has.
	RangeSize = 1 << 16
	// FirstBase is the first user of the first range. The numbers up to the last range's end are above the users of
	// distributions, subordinate users, systemd's containers and SSSD's directories (up to 2,000,200,000). They are
	// below the users that systemd calls foreign (from 2,147,352,576).
	FirstBase = 2_000_224_256
	// lastBase is of runtime.MaxUser.
	lastBase = FirstBase + runtime.MaxUser*RangeSize
)

// Base returns the first user of the range of a runtime.Spec.User, on this machine: root in its containers.
func Base(user uint32) int { return FirstBase + int(user)*RangeSize }

// isBase reports whether a user is the first of a range.
func isBase(user uint32) bool {
	return user >= FirstBase && user <= lastBase && (user-FirstBase)%RangeSize == 0
}
