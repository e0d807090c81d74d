// Package jsonfile reads proofs that somebody wrote into a file for others to check: one JSON object, of a format that
// it names, without fields that the reader does not know, or one reader would check what another does not see.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Parse reads such an object of at most so many bytes. Its format is what format says of it, and must be want. It says
// what is wrong with the file and not what the file should have been: the caller wraps it.
func Parse[T any](b []byte, most int, want string, format func(T) string) (v T, err error) {
	if len(b) > most {
		return v, fmt.Errorf("%d bytes, at most %d", len(b), most)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return v, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more than one JSON value")
	}
	if f := format(v); f != want {
		return v, fmt.Errorf("format %.40q, want %q", f, want)
	}
	return v, nil
}
