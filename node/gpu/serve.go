package gpu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Backend is a helper process's access to GPUs: a driver, or a mock. Its errors are sent to the peer. An error for
// which IsNoLibrary returns true means that the machine has no such driver.
type Backend interface {
	// Inventory lists the devices with their health. Vendor, Simulated and Refused are the peer's to set.
	Inventory() (Inventory, error)
	// Health returns the health of the given devices; unknown devices are omitted.
	Health(uuids []string) (map[string]Health, error)
}

// noLibrary marks the error of a machine without the driver's library.
type noLibrary struct{ error }

// NoLibrary marks an error as: the driver's library is not there.
func NoLibrary(err error) error { return noLibrary{err} }

// Serve answers requests from in on out until in ends: it is the whole work of a helper process. open is called once,
// at the first request. If it fails, the peer receives the error and Serve returns it. The process must end then,
// because no call into a driver's library is allowed after its initialisation failed.
func Serve(in io.Reader, out io.Writer, open func() (Backend, error)) error {
	r := bufio.NewReader(in)
	var backend Backend
	for {
		line, err := readLine(r, maxRequest)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading request: %w", err)
		}
		q, err := decodeRequest(line)
		if err != nil {
			if err := answer(out, reply{ID: q.ID, Error: &replyError{failRequest, err.Error()}}); err != nil {
				return err
			}
			continue
		}
		if backend == nil {
			if backend, err = open(); err != nil {
				return errors.Join(err, answer(out, reply{ID: q.ID, Error: failure(err)}))
			}
		}
		if err := answer(out, perform(backend, q)); err != nil {
			return err
		}
	}
}

func perform(b Backend, q request) reply {
	p := reply{ID: q.ID}
	switch q.Op {
	case opInventory:
		inv, err := b.Inventory()
		if err != nil {
			p.Error = failure(err)
		} else {
			p.Inventory = &inv
		}
	case opHealth:
		health, err := b.Health(q.UUIDs)
		if err != nil {
			p.Error = failure(err)
		}
		p.Health = health
	}
	return p
}

func failure(err error) *replyError {
	if _, none := errors.AsType[noLibrary](err); none {
		return &replyError{failNoLibrary, err.Error()}
	}
	return &replyError{failNVML, err.Error()}
}

func answer(out io.Writer, p reply) error {
	p.Version = HelperVersion
	b, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("writing reply: %w", err)
	}
	if _, err := out.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("writing reply: %w", err)
	}
	return nil
}

// HelperName is the name of the helper program. It lies beside the peer's own binary.
const HelperName = "starling-nvml"

// HelperBuild is how the helper is built: go-nvml needs cgo, and the tag keeps it out of everything else.
const HelperBuild = "CGO_ENABLED=1 go build -tags nvml ./cmd/" + HelperName

// HelperUsage is a helper's message to a user that starts it by hand.
const HelperUsage = HelperName +
	` queries NVIDIA's driver for this machine's GPUs. Starling starts it.
To see the GPUs: starling provider gpus
`
