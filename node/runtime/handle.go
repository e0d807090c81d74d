package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// MaxHandle bounds the encoded form of a Handle, in bytes.
const MaxHandle = 16 << 10

// Handle is the journalled reference to an execution. Only the runtime that made it understands Data.
type Handle struct {
	Runtime string `json:"runtime"`
	ID      string `json:"id"`
	Dir     string `json:"dir"`
	Data    []byte `json:"data,omitempty"`
}

// Marshal encodes the handle for the journal.
func (h Handle) Marshal() ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding handle: %w", err)
	}
	if len(b) > MaxHandle {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrBadHandle, len(b), MaxHandle)
	}
	return b, nil
}

// UnmarshalHandle decodes and checks the output of Marshal. All errors are ErrBadHandle.
func UnmarshalHandle(b []byte) (Handle, error) {
	var h Handle
	if len(b) > MaxHandle {
		return h, fmt.Errorf("%w: %d bytes, at most %d", ErrBadHandle, len(b), MaxHandle)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return Handle{}, fmt.Errorf("%w: %w", ErrBadHandle, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Handle{}, fmt.Errorf("%w: bytes after its end", ErrBadHandle)
	}
	if err := h.Check(); err != nil {
		return Handle{}, err
	}
	return h, nil
}

// Check holds a handle to the rules of Spec.
func (h Handle) Check() error {
	switch {
	case h.Runtime == "":
		return fmt.Errorf("%w: names no runtime", ErrBadHandle)
	case !validID(h.ID):
		return fmt.Errorf("%w: id %q", ErrBadHandle, h.ID)
	}
	if err := checkHostPath("Dir", h.Dir); err != nil {
		return fmt.Errorf("%w: %w", ErrBadHandle, err)
	}
	return nil
}
