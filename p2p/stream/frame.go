package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/p2p/stream/streampb"
)

const (
	requestHeader = 4
	answerHeader  = 6
)

// marshal encodes m behind head reserved bytes, refusing more than max encoded bytes.
func marshal(m proto.Message, head, max int) ([]byte, error) {
	size := proto.Size(m)
	if size > max {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, max)
	}
	buf, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, head, head+size), m)
	if err != nil {
		return nil, fmt.Errorf("encoding message: %w", err)
	}
	return buf, nil
}

// encodeRequest is the request frame of m.
func encodeRequest(m proto.Message, max int) ([]byte, error) {
	buf, err := marshal(m, requestHeader, max)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-requestHeader))
	return buf, nil
}

// encodeAnswer is the answer frame of a status and m; a nil m is an empty body.
func encodeAnswer(st Status, m proto.Message, max int) ([]byte, error) {
	buf := make([]byte, answerHeader)
	if m != nil {
		var err error
		if buf, err = marshal(m, answerHeader, max); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint16(buf, uint16(st))
	binary.BigEndian.PutUint32(buf[2:], uint32(len(buf)-answerHeader))
	return buf, nil
}

// encodeError is the answer frame with err instead of a response. Details that are not for the caller are left out.
func encodeError(err error) []byte {
	st, body := StatusInternal, &streampb.Refusal{Code: "internal", Reason: "internal error"}
	var refused *Refused
	var malformed *Malformed
	switch {
	case errors.As(err, &refused):
		st, body = StatusRefused, &streampb.Refusal{Code: clean(refused.Code, maxCode),
			Reason: clean(refused.Reason, maxReason)}
	case errors.As(err, &malformed):
		st, body = StatusMalformed, &streampb.Refusal{Code: "malformed", Reason: clean(malformed.Reason, maxReason)}
	}
	buf, _ := encodeAnswer(st, body, maxRefusal) // both strings are cut to fit
	return buf
}

// readRequest reads one request frame.
func readRequest(r io.Reader, max int) ([]byte, error) {
	var head [requestHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("reading request header: %w", err)
	}
	return readBody(r, binary.BigEndian.Uint32(head[:]), max)
}

// readAnswer reads one answer frame. The error of a class other than ok and end is the corresponding typed error.
func readAnswer(r io.Reader, max int) (Status, []byte, error) {
	var head [answerHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("reading answer header: %w", err)
	}
	st, n := Status(binary.BigEndian.Uint16(head[:])), binary.BigEndian.Uint32(head[2:])
	switch st {
	case StatusOK:
		body, err := readBody(r, n, max)
		return st, body, err
	case StatusEnd:
		if n != 0 {
			return st, nil, fmt.Errorf("%w: end of feed with a body", ErrBadReply)
		}
		return st, nil, nil
	case StatusRefused, StatusMalformed, StatusInternal:
		body, err := readBody(r, n, maxRefusal)
		if err != nil {
			return st, nil, err
		}
		return st, nil, decodeError(st, body)
	}
	return st, nil, fmt.Errorf("%w: unknown status %d", ErrBadReply, st)
}

// decodeError is the inverse of encodeError.
func decodeError(st Status, body []byte) error {
	var r streampb.Refusal
	if err := proto.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	switch st {
	case StatusRefused:
		return &Refused{Code: clean(r.GetCode(), maxCode), Reason: clean(r.GetReason(), maxReason)}
	case StatusMalformed:
		return &Malformed{Reason: clean(r.GetReason(), maxReason)}
	}
	return ErrInternal
}

// readBody reads n announced bytes. Memory for a large body grows with the received bytes, so that an announcement
// alone costs nothing.
func readBody(r io.Reader, n uint32, max int) ([]byte, error) {
	if int64(n) > int64(max) {
		return nil, fmt.Errorf("%w: %d bytes announced, at most %d", ErrTooLarge, n, max)
	}
	if n <= directAlloc {
		buf := make([]byte, n)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, fmt.Errorf("reading body: %w", noEOF(err))
		}
		return buf, nil
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return nil, fmt.Errorf("reading body: %w", noEOF(err))
	}
	return buf.Bytes(), nil
}

// noEOF turns an end in the middle of a frame into the error that it is.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
