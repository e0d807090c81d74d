package exclusive

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/starling-network/starling/market"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// MaxFile bounds a file of records, bytes.
const MaxFile = 16 << 20

// File is the records of probes with the genesis of their network, which is all that it takes to check them.
type File struct {
	Genesis market.Genesis `json:"genesis"`
	Records [][]byte       `json:"records"` // rules.Record
}

// NewFile is a file of records.
func NewFile(g market.Genesis, records []rules.Record) File {
	f := File{Genesis: g}
	for _, r := range records {
		f.Records = append(f.Records, r.Marshal())
	}
	return f
}

// ParseFile reads a file and the records in it. They are not checked.
func ParseFile(b []byte) (File, []rules.Record, error) {
	var f File
	if len(b) > MaxFile {
		return f, nil, fmt.Errorf("a file of %d bytes, at most %d are read", len(b), MaxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return f, nil, fmt.Errorf("reading records of probes: %w", err)
	}
	if err := f.Genesis.Validate(); err != nil {
		return f, nil, err
	}
	var records []rules.Record
	for i, raw := range f.Records {
		r, err := rules.UnmarshalRecord(raw)
		if err != nil {
			return f, nil, fmt.Errorf("record %d: %w", i, err)
		}
		records = append(records, r)
	}
	return f, records, nil
}
