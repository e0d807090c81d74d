package wasm

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/starling-network/starling/node/runtime"
)

// boxEnv passes a child its box, so that it is confined before it reads anything.
const boxEnv = "STARLING_WASM_BOX"

// box is what a child may have: a bug in the sandbox of the guest, or in its compiler, gets no further than this.
type box struct {
	Memory uint64 `json:"memory,omitempty"` // bytes; 0: as much as there is

	Read  []string `json:"read,omitempty"`  // directories
	Files []string `json:"files,omitempty"` // files that are read
	Write []string `json:"write,omitempty"` // directories
}

// Confined is the confinement of a child beside the guest's own sandbox.
type Confined struct {
	// Landlock is its enforced ABI; 0: this system has none, and files are not confined.
	Landlock int  `json:"landlock,omitempty"`
	Seccomp  bool `json:"seccomp,omitempty"` // no new privileges, and a list of system calls
}

// env is the box as a child reads it.
func (b box) env() string {
	text, _ := json.Marshal(b) // strings
	return boxEnv + "=" + string(text)
}

// readBox reads the box of this process and takes it out of its environment.
func readBox() (b box, err error) {
	text := os.Getenv(boxEnv)
	_ = os.Unsetenv(boxEnv)
	if text == "" {
		return b, nil // nothing may be opened
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return b, fmt.Errorf("reading what may be opened: %w", err)
	}
	return b, nil
}

// enterBox confines this process to its box.
func enterBox() (Confined, error) {
	b, err := readBox()
	if err != nil {
		return Confined{}, err
	}
	if b.Memory > 0 {
		if err := boundMemory(b.Memory); err != nil {
			return Confined{}, fmt.Errorf("bounding memory: %w", err)
		}
	}
	return confine(b)
}

// boxOf is the box of an execution's child.
func (r *Runtime) boxOf(s runtime.Spec) box {
	b := box{
		Memory: uint64(s.Limits.WithDefaults().MemoryMiB)<<20 + childMemory,
		Files:  []string{s.Module}, Write: []string{s.Dir, r.cfg.CacheDir},
	}
	for _, m := range s.Mounts {
		if m.ReadOnly {
			b.Read = append(b.Read, m.Host)
		} else {
			b.Write = append(b.Write, m.Host)
		}
	}
	return b
}

// sayConfined logs the confinement of the children of this runtime.
func (r *Runtime) sayConfined(c Confined) {
	if c.Landlock == 0 || !c.Seccomp {
		r.cfg.Logger.Warn("this system confines WASM programs by their own sandbox only, or by little more",
			"landlock", c.Landlock, "seccomp", c.Seccomp)
		return
	}
	r.cfg.Logger.Info("WASM programs are confined beside their own sandbox",
		"landlock", c.Landlock, "seccomp", c.Seccomp)
}
