package job

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/gpu"
)

// parseGPUs reads how a person asks for GPUs, as for docker's --gpus and with a model and minimums, into the units of every
// rank: "2", "h100:8", "2,vram>=24".
func parseGPUs(text string) (Resources, error) {
	s, err := gpu.ParseSelector(text)
	if err == nil {
		err = s.ForOrder()
	}
	if err != nil {
		return Resources{}, err
	}
	r := Resources{Class: "gpu", Units: s.Count}
	if s.Model != "" {
		r.Class = market.Class(gpu.ClassPrefix + s.Model)
	}
	r.PerUnit.VRAMMiB = uint32(s.MinVRAMMiB) // the selector bounds it
	if s.MinCapability != "" {
		n, err := market.ParseDecimal(s.MinCapability, 1)
		if err != nil || n > uint64(market.MaxCapability) {
			return Resources{}, fmt.Errorf("%.20q is not a compute capability such as 8.0", s.MinCapability)
		}
		r.MinCapability = market.Capability(n)
	}
	return r, nil
}

// ask puts what was asked of GPUs beside what was asked of each unit's processor, memory and disk.
func (r *Resources) ask(gpus Resources) {
	r.Class, r.Units, r.PerUnit.VRAMMiB, r.MinCapability = gpus.Class, gpus.Units, gpus.PerUnit.VRAMMiB, gpus.MinCapability
}

// fieldGPUs is the field that sets class and units from one text.
const fieldGPUs = "spec.resources.gpus"

const gpusSay = "gpus says it already: write gpus, or class and units"
