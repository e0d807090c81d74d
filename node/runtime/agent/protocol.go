package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// Port is the TCP port of the peer at the service address of every cluster: the port of rsh.
	Port = 514
	// Address is service address and Port.
	Address = "10.77.255.254:514"

	// MaxRequest bounds an encoded request, bytes.
	MaxRequest = 256 << 10
	// MaxArgs and MaxEnv bound the number of arguments and of variables.
	MaxArgs = 1024
	MaxEnv  = 256
)

// ErrRequest reports a malformed request.
var ErrRequest = errors.New("malformed request of a cluster's rsh agent")

var (
	hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
	envPattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Request is a command to start, and its member.
type Request struct {
	Host string            `json:"host"` // a member's name or address
	Argv []string          `json:"argv"` // the words of a command for a shell, as rsh takes them
	Env  map[string]string `json:"env,omitempty"`
}

// Command is the program to attach: rsh gives its words, joined, to a shell.
func (r Request) Command() []string { return []string{"/bin/sh", "-c", strings.Join(r.Argv, " ")} }

// Check holds a request to its bounds. Errors are ErrRequest.
func (r Request) Check() error {
	if len(r.Host) > 253 || !hostPattern.MatchString(r.Host) {
		return fmt.Errorf("%w: %.80q is no host", ErrRequest, r.Host)
	}
	if len(r.Argv) == 0 || len(r.Argv) > MaxArgs {
		return fmt.Errorf("%w: a command of %d words, at least 1 and at most %d", ErrRequest, len(r.Argv), MaxArgs)
	}
	for _, a := range r.Argv {
		if !clean(a) {
			return fmt.Errorf("%w: %.80q is not text without NUL", ErrRequest, a)
		}
	}
	if len(r.Env) > MaxEnv {
		return fmt.Errorf("%w: %d variables, at most %d", ErrRequest, len(r.Env), MaxEnv)
	}
	for k, v := range r.Env {
		if len(k) > 256 || !envPattern.MatchString(k) || !clean(v) {
			return fmt.Errorf("%w: %.80q is no variable", ErrRequest, k)
		}
	}
	return nil
}

func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// WriteRequest sends a request with one Write.
func WriteRequest(w io.Writer, r Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(body) > MaxRequest {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrRequest, len(body), MaxRequest)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// ReadRequest reads no byte beyond the request. Errors are ErrRequest, or the reader's.
func ReadRequest(r io.Reader) (Request, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Request{}, fmt.Errorf("reading a request: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxRequest {
		return Request{}, fmt.Errorf("%w: %d bytes, at most %d", ErrRequest, n, MaxRequest)
	}
	var body bytes.Buffer // grows with the received bytes, not with the announced ones
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return Request{}, fmt.Errorf("reading a request: %w", err)
	}
	var req Request
	dec := json.NewDecoder(&body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Request{}, fmt.Errorf("%w: bytes after its end", ErrRequest)
	}
	return req, req.Check()
}
