package audit

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/jsonfile"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Limits of an audit file.
const (
	MaxFile    = 128 << 10 // bytes
	fileFormat = "starling-audit/1"
)

// ErrFile says that a file is no audit file.
var ErrFile = errors.New("not an audit file")

// File is an audit record with the genesis of its network: anybody can check it without asking anyone.
type File struct {
	Format  string         `json:"format"`
	Genesis market.Genesis `json:"genesis"`
	Kept
}

// NewFile is the file of a record on a network, and of where it is anchored.
func NewFile(g market.Genesis, k Kept) File { return File{fileFormat, g, k} }

// ParseFile reads an audit file: one JSON object without unknown fields. It verifies nothing; Check does.
func ParseFile(b []byte) (File, error) {
	f, err := jsonfile.Parse(b, MaxFile, fileFormat, func(f File) string { return f.Format })
	if err != nil {
		return f, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return f, nil
}

// Check verifies everything in the file that needs nothing else: see audit.Record.Check. The error is an *audit.RuleError where
// a rule has a name.
func (f File) Check() (audit.Record, error) {
	if err := f.Genesis.Validate(); err != nil {
		return audit.Record{}, err
	}
	r, err := audit.UnmarshalRecord(f.Record)
	if err != nil {
		return audit.Record{}, err
	}
	if err := r.CheckRules(audit.NewRules(f.Genesis)); err != nil {
		return r, err
	}
	if err := r.Check(f.Genesis.Domain()); err != nil || len(f.Anchor) == 0 {
		return r, err
	}
	_, err = readAnchor(f.Anchor, r.Hash())
	return r, err
}

// Anchored is the anchor of a record with a checked file; false without one.
func (f File) Anchored() (chain.Inclusion, bool) {
	in, err := chain.UnmarshalInclusion(f.Anchor)
	return in, err == nil
}

// ByPlan is the Plan of every network: verify/audit's question for a class.
func ByPlan(c Claim) (Asked, error) {
	shape, walk, err := audit.Plan(c.Class, c.Resources)
	if err != nil {
		return Asked{}, err
	}
	floor, ok := audit.FloorOf(c.Class, c.Resources)
	if !ok {
		return Asked{}, fmt.Errorf("%w: class %s has no floor", challenge.ErrShape, c.Class)
	}
	product, walked := floor.Deadlines(shape, walk)
	return Asked{
		Shape: shape, Walk: walk, ProductLimit: duration(audit.Patience(product)), WalkLimit: duration(audit.Patience(walked)),
		SecondLimit: duration(audit.Within(c.Class, product)), WholeLimit: duration(audit.Whole(c.Class, product, walked)),
	}, nil
}
