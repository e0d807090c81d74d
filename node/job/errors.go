package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrInvalid means that a job breaks a rule; the text names every field that does, with its line.
	ErrInvalid = errors.New("job is not valid")
	// ErrNotSupported means that a job uses a field of the format that this version does not implement.
	ErrNotSupported = errors.New("not supported yet by this version")
)

// maxProblems bounds how many problems one error lists.
const maxProblems = 20

// Problem is one thing wrong with a job.
type Problem struct {
	Field  string // "spec.inputs[0].dst", or a flag: "--count"
	Line   int    // of the job file, from 1; 0 without a file
	Column int
	Text   string // the problem, and a right value
	Kind   error  // ErrInvalid or ErrNotSupported
}

// String is "12:5: spec.count: want a whole number" or, without a file, "--count: want a whole number".
func (p Problem) String() string {
	text := p.Text
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Line > 0 {
		text = fmt.Sprintf("%d:%d: %s", p.Line, p.Column, text)
	}
	return text
}

// Error lists everything wrong with a job, in the order of the file. It is ErrInvalid or ErrNotSupported or both.
type Error struct {
	Problems []Problem
}

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for i, p := range e.Problems {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("and %d more", len(e.Problems)-i))
			break
		}
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// Unwrap lists the kinds of the problems.
func (e *Error) Unwrap() []error {
	var kinds []error
	for _, p := range e.Problems {
		if !slices.Contains(kinds, p.Kind) {
			kinds = append(kinds, p.Kind)
		}
	}
	return kinds
}

// problems collects the problems of a job.
type problems []Problem

func (ps *problems) add(field, format string, args ...any) {
	*ps = append(*ps, Problem{Field: field, Text: fmt.Sprintf(format, args...), Kind: ErrInvalid})
}

// err returns nil if there are no problems.
func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return &Error{Problems: ps}
}

// notSupported is the text of a problem of that kind.
func notSupported(what string) string { return ErrNotSupported.Error() + ": " + what }

// Printable keeps a field's name readable in an error.
func Printable(key string) string {
	if len(key) > 64 {
		key = key[:64] + "…"
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '?'
		}
		return c
	}, key)
}
