//go:build !unix

package keeper

import "errors"

// become fails: on these systems no container runs.
func become(string, []string) error { return errors.ErrUnsupported }
