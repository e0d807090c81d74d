// Package confine limits a child process to the rights that a WASI program's sandbox needs, to contain a bug in that
// sandbox or its compiler. The parent passes a Box in the child's environment. The child enters it before it reads any
// input and cannot leave it.
//
// On Linux, Landlock confines files, TCP and signals, depending on the kernel, and seccomp allows a list of system
// calls. On other systems only memory is limited.
package confine

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// boxEnv is the environment variable with a child's box.
const boxEnv = "STARLING_WASM_BOX"

// Box is the part of the machine that a child may use.
type Box struct {
	Memory uint64 `json:"memory,omitempty"` // bytes of data; 0 means no bound

	Read  []string `json:"read,omitempty"`  // directories
	Files []string `json:"files,omitempty"` // files that are read
	Write []string `json:"write,omitempty"` // directories
	Until []string `json:"until,omitempty"` // directories that are written until Narrow
}

// Confinement is the set of the kernel's means that hold a child.
type Confinement struct {
	// Landlock is its enforced ABI; 0 means that this system has none, and files are not confined.
	Landlock int  `json:"landlock,omitempty"`
	Seccomp  bool `json:"seccomp,omitempty"`  // no new privileges, and a list of system calls
	Narrowed bool `json:"narrowed,omitempty"` // Landlock holds it outside Box.Until too
}

// Env returns the entry of a child's environment that passes the box.
func (b Box) Env() string {
	text, _ := json.Marshal(b) // strings and a number
	return boxEnv + "=" + string(text)
}

// Enter confines this process to the box in its environment, and removes the entry. Without one no file can be opened.
func Enter() (Confinement, Box, error) {
	b, err := fromEnv()
	if err != nil {
		return Confinement{}, b, err
	}
	if b.Memory > 0 {
		if err := boundMemory(b.Memory); err != nil {
			return Confinement{}, b, fmt.Errorf("bounding memory: %w", err)
		}
	}
	c, err := enter(b)
	return c, b, err
}

// Narrow takes the directories Until from this process, which is in the box, for good. Open files stay open. It returns
// its argument with Narrowed set if the kernel did so.
func (b Box) Narrow(c Confinement) (Confinement, error) {
	if c.Landlock == 0 {
		return c, nil
	}
	b.Until = nil
	if err := b.confineFiles(); err != nil {
		return c, fmt.Errorf("narrowing the confinement: %w", err)
	}
	c.Narrowed = true
	return c, nil
}

func fromEnv() (b Box, err error) {
	text := os.Getenv(boxEnv)
	_ = os.Unsetenv(boxEnv)
	if text == "" {
		return b, nil
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return b, fmt.Errorf("reading %s: %w", boxEnv, err)
	}
	return b, nil
}

// boundMemory limits this process to n bytes of data. A short module can declare gigabytes of locals or elements, which
// the compiler would allocate. At the limit, the Go runtime ends the process.
func boundMemory(n uint64) error {
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: n, Max: n})
}
