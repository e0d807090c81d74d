// Package jsonfile reads proofs in files: one JSON object with a named format. Unknown fields are refused, so that all
// readers check the same content.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Parse reads such an object of at most most bytes. Its format, as returned by format, must be want. The error
// describes the problem only; the caller adds the kind of file.
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
