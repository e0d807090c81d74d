package proof

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/jsonfile"
)

// Limits of a proof file.
const (
	MaxFile = 256 << 20 // bytes
	format  = "starling-proof/1"
	tag     = "starling/proof-file/v1"
)

// ErrFile reports bytes that are no proof file.
var ErrFile = errors.New("not a proof file")

// File is a proof with the genesis of its network: the content of a file that can be checked offline. Digest detects
// accidental changes only; the signatures in the proof detect forgeries.
type File struct {
	Format  string         `json:"format"`
	Genesis market.Genesis `json:"genesis"`
	Proof
	Digest sign.Hash `json:"digest"` // of the file with this field zero, as compact JSON
}

// NewFile returns the file of a proof on a network.
func NewFile(g market.Genesis, p Proof) (File, error) {
	f := File{Format: format, Genesis: g, Proof: p}
	var err error
	f.Digest, err = f.digest()
	return f, err
}

// digest returns the value of Digest.
func (f File) digest() (sign.Hash, error) {
	f.Digest = sign.Hash{}
	b, err := json.Marshal(f)
	return sign.Sum([]byte(tag), b), err
}

// ParseFile reads a proof file: one JSON object without unknown fields, unchanged since it was written. It verifies no
// signature; Check does. It returns ErrFile.
func ParseFile(b []byte) (File, error) {
	f, err := jsonfile.Parse(b, MaxFile, format, func(f File) string { return f.Format })
	if err != nil {
		return f, fmt.Errorf("%w: %w", ErrFile, err)
	}
	c, err := f.Open()
	if err == nil {
		f.Proof, err = New(c) // the one form of it
	}
	var d sign.Hash
	if err == nil {
		d, err = f.digest()
	}
	if err != nil {
		return f, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if d != f.Digest {
		return f, fmt.Errorf("%w: changed after it was written: digest %s, want %s", ErrFile, f.Digest.Short(),
			d.Short())
	}
	return f, nil
}

// Check checks every rule of the proof that needs no chain. The error is a *BrokenRule where a rule has a name.
func (f File) Check() (Finding, error) {
	c, err := f.Open()
	if err != nil {
		return Finding{}, err
	}
	return Check(c, f.Genesis)
}
