package gauge

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

// Subcommand is the first argument of a binary that is to be a gauge; the second is how many threads it computes with,
// 0 for as many as its control group has processors.
const Subcommand = "gauge"

const (
	ready    = "ready\n"
	question = sign.HashSize + challenge.ShapeSize
)

// ErrAnswer reports that the computing program in a sandbox broke off or answered nonsense.
var ErrAnswer = errors.New("no answer from inside the sandbox")

// Main is a gauge, when the binary was started as one; otherwise it returns at once. Call it first in main.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != Subcommand {
		return
	}
	threads, err := strconv.Atoi(os.Args[2])
	if err == nil {
		hide()
		err = Serve(os.Stdin, os.Stdout, threads)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve answers until the input ends.
func Serve(in io.Reader, out io.Writer, threads int) error {
	d := cpu.New(cpu.Config{Threads: max(threads, 0)})
	defer d.Close()
	ctx := context.Background()
	block := challenge.Shape{
		Rows: challenge.TileSide, Columns: challenge.TileSide, Depth: challenge.BlockSize, Products: 1,
	}
	if _, err := d.Multiply(ctx, sign.Hash{}, block); err != nil {
		return err
	}
	if _, err := io.WriteString(out, ready); err != nil {
		return err
	}
	for {
		var q [question]byte
		if _, err := io.ReadFull(in, q[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		shape, err := challenge.UnmarshalShape(q[sign.HashSize:])
		if err != nil {
			return err
		}
		if err := (exclusive.Question{Execution: 1, Number: 1, Shape: shape}).Check(); err != nil {
			return err
		}
		tiles, err := d.Multiply(ctx, sign.Hash(q[:sign.HashSize]), shape)
		if err != nil {
			return err
		}
		b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(tiles)*sign.HashSize), uint32(len(tiles)))
		for _, h := range tiles {
			b = append(b, h[:]...)
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
}

// Client is the peer's end. Its owner ends the program, which ends all calls that wait here.
type Client struct {
	in  io.Writer
	out *bufio.Reader
}

// NewClient speaks to a gauge over its input and output. It returns when the gauge is ready. ErrAnswer.
func NewClient(in io.Writer, out io.Reader) (*Client, error) {
	c := &Client{in: in, out: bufio.NewReader(out)}
	var b [len(ready)]byte
	if _, err := io.ReadFull(c.out, b[:]); err != nil || string(b[:]) != ready {
		return nil, fmt.Errorf("%w: it did not begin: %q", ErrAnswer, b[:])
	}
	return c, nil
}

// GPU implements runtime.Gauge: the processor computes.
func (*Client) GPU() bool { return false }

// Devices is 1.
func (c *Client) Devices() int { return 1 }

// Multiply requests one product. It returns ErrAnswer.
func (c *Client) Multiply(seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	shape := s.Marshal()
	if _, err := c.in.Write(append(seed[:], shape[:]...)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	var head [4]byte
	if _, err := io.ReadFull(c.out, head[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if n := binary.LittleEndian.Uint32(head[:]); uint64(n) != uint64(s.Tiles()) {
		return nil, fmt.Errorf("%w: %d tiles instead of %d", ErrAnswer, n, s.Tiles())
	}
	tiles := make([]sign.Hash, s.Tiles())
	for i := range tiles {
		if _, err := io.ReadFull(c.out, tiles[i][:]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
	}
	return tiles, nil
}
