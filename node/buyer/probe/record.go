package probe

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// keptProbes bounds the stored records of a lease: of the unremarkable ones the latest, and of the others.
const keptProbes = 64

// Records are the signed records of probes in the journal, by lease and place.
var Records = journal.Define[string, []byte]("probe")

// placeOf returns the place of a record: one of interest is not replaced by another.
func placeOf(l market.LeaseID, number uint64, special bool) string {
	kind := 'a'
	if special {
		kind = 's'
	}
	return fmt.Sprintf("%s/%c%02d", l, kind, number%keptProbes)
}

// Record is the signed record of one probe.
type Record = rules.Record

// List returns the records of leases' probes, by lease and number.
func List(ctx context.Context, s journal.Store, leases ...market.LeaseID) ([]Record, error) {
	var out []Record
	for _, l := range leases {
		err := Records.List(ctx, s, l.String()+"/", func(key string, value []byte) error {
			r, err := rules.UnmarshalRecord(value)
			if err != nil {
				return fmt.Errorf("reading probe %s: %w", key, err)
			}
			out = append(out, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(x, y rules.Record) int {
		a, b := x.Question, y.Question
		return cmp.Or(bytes.Compare(a.Lease[:], b.Lease[:]), cmp.Compare(a.Execution, b.Execution),
			cmp.Compare(a.Number, b.Number))
	})
	return out, nil
}
