package jobfile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/node/job"
)

// problems collects the problems of a job file, or of flags.
type problems []job.Problem

// problemsOf lists the problems of a job that Complete returned with err.
func problemsOf(err error) problems {
	if wrong, ok := errors.AsType[*job.Error](err); ok {
		return wrong.Problems
	}
	return nil
}

func (ps *problems) add(field, format string, args ...any) {
	*ps = append(*ps, job.Problem{Field: field, Text: fmt.Sprintf(format, args...), Kind: job.ErrInvalid})
}

// err returns the problems in the order of the file; nil if there are none.
func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b job.Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &job.Error{Problems: ps}
}

// notSupported is the text of a problem of that kind.
func notSupported(feature string) string { return job.ErrNotSupported.Error() + ": " + feature }
