// Package span has lengths of time in the form in which people write them.
package span

import "time"

// Span is a length of time that JSON has as people write it: "1h30m0s".
type Span time.Duration

// String is "1h30m0s".
func (s Span) String() string { return time.Duration(s).String() }

// MarshalText writes String.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form of time.ParseDuration.
func (s *Span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = Span(d)
	return err
}
