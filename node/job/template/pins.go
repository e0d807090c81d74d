package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/jsonfile"
	"github.com/starling-network/starling/node/wholefile"
)

const (
	pinsFormat = "starling/publishers/1"
	maxPins    = 1000
	maxPinFile = 8 << 20
)

var (
	// ErrUnknownPublisher means that the user has not accepted the publisher of an index.
	ErrUnknownPublisher = errors.New("publisher is not accepted")
	// ErrOldIndex means that an index has a lower sequence number than an earlier one of its publisher.
	ErrOldIndex = errors.New("index is older than one read before")
)

// Pins are the publishers that the user accepted, each for one index.
type Pins struct {
	Format string `json:"format"`
	Pins   []Pin  `json:"pins"`
}

// Pin is an accepted publisher.
type Pin struct {
	Index     string   `json:"index"` // its path or URL
	Publisher sign.Key `json:"publisher"`
	Sequence  uint64   `json:"sequence"` // the highest that was read
}

// LoadPins reads the file of pins. If it does not exist, there are none.
func LoadPins(path string) (Pins, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Pins{Format: pinsFormat}, nil
	}
	if err != nil {
		return Pins{}, fmt.Errorf("reading accepted publishers: %w", err)
	}
	p, err := jsonfile.Parse(b, maxPinFile, pinsFormat, func(p Pins) string { return p.Format })
	if err != nil {
		return Pins{}, fmt.Errorf("reading accepted publishers: %s: %w", path, err)
	}
	return p, nil
}

// Accept checks an index that was read from a place, and returns the pins with it. accepted is the key that the user
// accepts now; zero if none. It returns ErrUnknownPublisher if neither a pin nor accepted has the index's key, and
// ErrOldIndex.
func (p Pins) Accept(at string, i Index, accepted sign.Key) (Pins, error) {
	p.Pins = slices.Clone(p.Pins)
	n := slices.IndexFunc(p.Pins, func(pin Pin) bool { return pin.Index == at })
	switch {
	case !accepted.IsZero() && accepted != i.Publisher:
		return p, fmt.Errorf("%w: the index is of %s, want %s", ErrUnknownPublisher, i.Publisher, accepted)
	case n >= 0 && p.Pins[n].Publisher == i.Publisher:
		if i.Sequence < p.Pins[n].Sequence {
			return p, fmt.Errorf("%w: sequence: got %d, want %d or more", ErrOldIndex, i.Sequence, p.Pins[n].Sequence)
		}
		p.Pins[n].Sequence = i.Sequence
	case accepted.IsZero() && n >= 0:
		return p, fmt.Errorf("%w: the index was of %s and is of %s now", ErrUnknownPublisher, p.Pins[n].Publisher,
			i.Publisher)
	case accepted.IsZero():
		return p, fmt.Errorf("%w: the index is of %s", ErrUnknownPublisher, i.Publisher)
	case n >= 0:
		p.Pins[n] = Pin{at, i.Publisher, i.Sequence}
	case len(p.Pins) == maxPins:
		return p, fmt.Errorf("accepted publishers: %d, at most %d", len(p.Pins), maxPins)
	default:
		p.Pins = append(p.Pins, Pin{at, i.Publisher, i.Sequence})
	}
	return p, nil
}

// Save writes the file of pins if it differs.
func (p Pins) Save(path string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
		return nil
	}
	if err := wholefile.Write(path, b, 0o600); err != nil {
		return fmt.Errorf("writing accepted publishers: %w", err)
	}
	return nil
}
