package runtimetest

import (
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/storage"
)

// NewVolumes returns the runtime of volumes, without file systems of their own. It is of one process: the volumes of an
// earlier one are recovered.
func NewVolumes() runtime.Storer { return storage.New(storage.Config{Unbounded: true}) }
