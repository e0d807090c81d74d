// Package wire is the protocol between the peer and its CUDA helper, over the helper's standard input and output.
//
// Frames, integers little-endian:
//
//	offset  size  field
//	     0     4  n, length of the rest
//	     4     1  version
//	     5     1  kind
//	     6     8  number of the question, that of the question in its answer
//	    14  n−10  body
//
//	question   kind  body
//	describe      1  —
//	multiply      2  seed[32] ‖ shape[16]
//	fill          3  dataset[44] ‖ reserve u64, bytes to leave free
//	evict         4  —
//	walk          5  key u64 ‖ dataset[44] ‖ walk[24]
//	cancel        6  —; the number is that of the question to end. It has no separate answer
//	again         7  as walk, and then group u32: one group
//
//	answer     kind  body
//	described     1  capability u32 ‖ driver u32 ‖ free u64 ‖ total u64 ‖ uuid[16] ‖ name, at most 128 bytes,
//	                 printable
//	part          6  k × hash[32]: tiles, and more of them follow under the same number
//	tiles         2  k × hash[32]: the last ones
//	groups        7  k × hash[32]: of the ends of a walk, group by group
//	ends          3  k × u64: of one group
//	done          4  free u64
//	failed        5  code u8 ‖ text, at most 1024 bytes, printable
//
// A dataset is seed[32] ‖ cells u64 ‖ work u32. Each message has one encoding. Peer and helper are built from one tree:
// a different version means that one of them is old.
package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
)

// Version is the version in both directions.
const Version = 2

// MaxTiles is how many tiles an answer has at most: hashes come as products are done, and a peer hashes them meanwhile.
const MaxTiles = 1 << 15

// Bounds of frames: every question is short, and the longest answer is the hashes of all groups of the longest walk.
const (
	headSize      = 10
	MaxQuestion   = headSize + 128
	MaxAnswer     = headSize + max(MaxTiles, challenge.MaxWalkers/challenge.Group)*sign.HashSize
	maxName       = 128
	maxText       = 1024
	datasetSize   = sign.HashSize + 12
	describedSize = 4 + 4 + 8 + 8 + 16
)

// ErrMalformed means that bytes are no message; its text has the reason.
var ErrMalformed = errors.New("malformed message")

// Op is the operation of a question.
type Op uint8

// The operations.
const (
	Describe Op = 1 + iota
	Multiply
	Fill
	Evict
	Walk
	Cancel
	Again
)

// Question is a message to the helper. Only the fields of its operation are sent.
type Question struct {
	ID      uint64
	Op      Op
	Seed    sign.Hash       // multiply
	Shape   challenge.Shape // multiply
	Dataset device.Dataset  // fill, walk, again
	Reserve uint64          // fill
	Key     uint64          // walk, again
	Walk    challenge.Walk  // walk, again
	Group   uint32          // again
}

// Marshal is the question's frame.
func (q Question) Marshal() []byte {
	b := begin(uint8(q.Op), q.ID)
	switch q.Op {
	case Multiply:
		shape := q.Shape.Marshal()
		b = append(append(b, q.Seed[:]...), shape[:]...)
	case Fill:
		b = binary.LittleEndian.AppendUint64(appendDataset(b, q.Dataset), q.Reserve)
	case Walk, Again:
		walk := q.Walk.Marshal()
		b = append(appendDataset(binary.LittleEndian.AppendUint64(b, q.Key), q.Dataset), walk[:]...)
		if q.Op == Again {
			b = binary.LittleEndian.AppendUint32(b, q.Group)
		}
	}
	return end(b)
}

// UnmarshalQuestion reads a frame without its length. It returns ErrMalformed for a shape or walk out of bounds.
func UnmarshalQuestion(b []byte) (Question, error) {
	kind, id, body, err := head(b)
	if err != nil {
		return Question{}, err
	}
	q := Question{ID: id, Op: Op(kind)}
	want := map[Op]int{
		Describe: 0, Evict: 0, Cancel: 0,
		Multiply: sign.HashSize + challenge.ShapeSize,
		Fill:     datasetSize + 8,
		Walk:     8 + datasetSize + challenge.WalkSize,
		Again:    8 + datasetSize + challenge.WalkSize + 4,
	}
	if n, ok := want[q.Op]; !ok || len(body) != n {
		return q, fmt.Errorf("%w: question of kind %d with %d bytes", ErrMalformed, kind, len(body))
	}
	switch q.Op {
	case Multiply:
		q.Seed = sign.Hash(body)
		q.Shape, err = challenge.UnmarshalShape(body[sign.HashSize:])
	case Fill:
		q.Dataset = readDataset(body)
		q.Reserve = binary.LittleEndian.Uint64(body[datasetSize:])
	case Walk, Again:
		q.Key = binary.LittleEndian.Uint64(body)
		q.Dataset = readDataset(body[8:])
		q.Walk, err = challenge.UnmarshalWalk(body[8+datasetSize:][:challenge.WalkSize])
		if q.Op == Again && err == nil {
			q.Group = binary.LittleEndian.Uint32(body[8+datasetSize+challenge.WalkSize:])
			if int64(q.Group) >= int64(q.Walk.Groups()) {
				err = fmt.Errorf("group %d of %d", q.Group, q.Walk.Groups())
			}
		}
	}
	if err != nil {
		return q, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if q.Op == Fill && (q.Dataset.Cells < 1 || q.Dataset.Cells > challenge.MaxCells ||
		q.Dataset.Work < 1 || q.Dataset.Work > challenge.MaxWork) {
		return q, fmt.Errorf("%w: a dataset of %d cells of work %d", ErrMalformed, q.Dataset.Cells, q.Dataset.Work)
	}
	return q, nil
}

// Form is the form of an answer.
type Form uint8

// The forms.
const (
	Described Form = 1 + iota
	Tiles
	Ends
	Done
	Failed
	Part
	Groups
)

// Code is a class of failure.
type Code uint8

// The classes. After CodeDriver the helper ends, since a failed driver cannot be used.
const (
	CodeQuestion  Code = 1 + iota // the question is nonsense, or the helper older than the peer
	CodeMemory                    // device.ErrMemory
	CodeDataset                   // device.ErrNoDataset
	CodeCancelled                 // as requested
	CodeDriver                    // the driver failed
	CodeLibrary                   // libcuda.so.1 is not there
)

// Description is the driver's description of its GPU.
type Description struct {
	Capability  uint32 // major·10 + minor
	Driver      uint32 // CUDA version that the driver runs, major·1000 + minor·10
	Free, Total uint64 // bytes
	UUID        [16]byte
	Name        string
}

// Answer is a message from the helper. Only the fields of its form are sent.
type Answer struct {
	ID    uint64
	Form  Form
	About Description // described
	Raw   []byte      // part, tiles, groups and ends, as they are sent; see Hashes and States
	Free  uint64      // done: bytes free
	Code  Code        // failed
	Text  string      // failed
}

// WriteTo writes the answer's frame. Texts must be printable and within their bounds.
func (a Answer) WriteTo(w io.Writer) (int64, error) {
	b := a.head()
	n, err := w.Write(b)
	if err == nil && len(a.Raw) > 0 { // written separately: it may have megabytes, and the prover is timed
		var more int
		more, err = w.Write(a.Raw)
		n += more
	}
	return int64(n), err
}

// head is the frame without Raw.
func (a Answer) head() []byte {
	b := begin(uint8(a.Form), a.ID)
	switch a.Form {
	case Described:
		b = binary.LittleEndian.AppendUint32(b, a.About.Capability)
		b = binary.LittleEndian.AppendUint32(b, a.About.Driver)
		b = binary.LittleEndian.AppendUint64(b, a.About.Free)
		b = binary.LittleEndian.AppendUint64(b, a.About.Total)
		b = append(append(b, a.About.UUID[:]...), a.About.Name...)
	case Done:
		b = binary.LittleEndian.AppendUint64(b, a.Free)
	case Failed:
		b = append(append(b, byte(a.Code)), a.Text...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4+len(a.Raw)))
	return b
}

// Hashes are the hashes of tiles.
func Hashes(raw []byte) []sign.Hash {
	out := make([]sign.Hash, len(raw)/sign.HashSize)
	for i := range out {
		out[i] = sign.Hash(raw[i*sign.HashSize:])
	}
	return out
}

// States are the ends of walkers.
func States(raw []byte) []uint64 {
	out := make([]uint64, len(raw)/8)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return out
}

// UnmarshalAnswer reads a frame without its length. Raw is a part of the frame.
func UnmarshalAnswer(b []byte) (Answer, error) {
	kind, id, body, err := head(b)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{ID: id, Form: Form(kind)}
	bad := fmt.Errorf("%w: answer of kind %d with %d bytes", ErrMalformed, kind, len(body))
	switch a.Form {
	case Described:
		if len(body) < describedSize || !printable(body[describedSize:], maxName) {
			return a, bad
		}
		a.About = Description{
			Capability: binary.LittleEndian.Uint32(body), Driver: binary.LittleEndian.Uint32(body[4:]),
			Free: binary.LittleEndian.Uint64(body[8:]), Total: binary.LittleEndian.Uint64(body[16:]),
			UUID: [16]byte(body[24:]), Name: string(body[describedSize:]),
		}
	case Part, Tiles, Groups:
		most := MaxTiles
		if a.Form == Groups {
			most = challenge.MaxWalkers / challenge.Group
		}
		if len(body)%sign.HashSize != 0 || len(body) > most*sign.HashSize {
			return a, bad
		}
		a.Raw = body
	case Ends:
		if len(body)%8 != 0 || len(body)/8 > challenge.Group {
			return a, bad
		}
		a.Raw = body
	case Done:
		if len(body) != 8 {
			return a, bad
		}
		a.Free = binary.LittleEndian.Uint64(body)
	case Failed:
		if len(body) < 1 || body[0] < byte(CodeQuestion) || body[0] > byte(CodeLibrary) ||
			!printable(body[1:], maxText) {
			return a, bad
		}
		a.Code, a.Text = Code(body[0]), string(body[1:])
	default:
		return a, bad
	}
	return a, nil
}

// Read reads one frame of at most most bytes and returns it without its length. It returns io.EOF if there is no
// further frame. A frame with a false length costs at most the first part of one.
func Read(r *bufio.Reader, most int) ([]byte, error) {
	const part = 64 << 10
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(size[:]))
	if n < headSize || n > int64(most) {
		return nil, fmt.Errorf("%w: a frame of %d bytes, %d to %d are read", ErrMalformed, n, headSize, most)
	}
	b := make([]byte, min(n, part))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	if n > part {
		whole := make([]byte, n)
		if _, err := io.ReadFull(r, whole[copy(whole, b):]); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		b = whole
	}
	return b, nil
}

func begin(kind uint8, id uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{0, 0, 0, 0, Version, kind}, id)
}

func end(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func head(b []byte) (kind uint8, id uint64, body []byte, err error) {
	if len(b) < headSize {
		return 0, 0, nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != Version {
		return 0, 0, nil, fmt.Errorf("%w: protocol version: got %d, want %d: "+
			"build starling and its helper from one tree, with make build",
			ErrMalformed, b[0], Version)
	}
	return b[1], binary.LittleEndian.Uint64(b[2:]), b[headSize:], nil
}

func appendDataset(b []byte, d device.Dataset) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, d.Seed[:]...), d.Cells)
	return binary.LittleEndian.AppendUint32(b, d.Work)
}

func readDataset(b []byte) device.Dataset {
	return device.Dataset{
		Seed:  sign.Hash(b),
		Cells: binary.LittleEndian.Uint64(b[sign.HashSize:]),
		Work:  binary.LittleEndian.Uint32(b[sign.HashSize+8:]),
	}
}

func printable(b []byte, most int) bool {
	return len(b) <= most && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r > '~' })
}
