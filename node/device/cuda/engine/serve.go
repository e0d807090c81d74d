package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/child"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

// maxText bounds the reported part of an error.
const maxText = 1000

// noLibrary marks the error of a machine without the driver's library.
type noLibrary struct{ error }

// NoLibrary marks an error as: libcuda.so.1 is not there.
func NoLibrary(err error) error { return noLibrary{err} }

// IsNoLibrary finds that mark.
func IsNoLibrary(err error) bool {
	_, is := errors.AsType[noLibrary](err)
	return is
}

// Serve answers questions from in on out until in ends: it is the whole work of a helper process. open is called once,
// at the first question. A failure of the driver is sent to the peer and ends Serve with its error: the driver can
// answer nothing after it. Only the goroutine that called Serve uses the GPU.
func Serve(in io.Reader, out io.Writer, open func() (GPU, wire.Description, error)) error {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	asked := make(chan question)
	var failed error // error of reading, set before asked is closed
	wg.Go(func() {
		defer close(asked)
		defer stop() // answers are no longer needed
		failed = receive(ctx, in, asked)
	})
	s := server{open: open, out: out}
	for q := range asked {
		err := s.answer(q)
		q.cancel()
		if err != nil {
			return err
		}
	}
	return failed
}

// question is a request with its cancellable context.
type question struct {
	wire.Question
	malformed error
	ctx       context.Context
	cancel    context.CancelFunc
}

// receive passes questions on, one at a time, and cancels the current one on request.
func receive(ctx context.Context, in io.Reader, asked chan<- question) error {
	r := bufio.NewReader(in)
	var last question
	for {
		b, err := wire.Read(r, wire.MaxQuestion)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading question: %w", err)
		}
		q := question{}
		q.Question, q.malformed = wire.UnmarshalQuestion(b)
		if q.malformed == nil && q.Op == wire.Cancel {
			if last.cancel != nil && last.ID == q.ID {
				last.cancel()
			}
			continue
		}
		q.ctx, q.cancel = context.WithCancel(ctx)
		last = q
		select {
		case asked <- q:
		case <-ctx.Done():
			q.cancel()
			return nil
		}
	}
}

type server struct {
	open   func() (GPU, wire.Description, error)
	out    io.Writer
	about  wire.Description
	engine *Engine
}

// answer answers one question. Its error ends the helper.
func (s *server) answer(q question) error {
	if q.malformed != nil {
		return s.write(wire.Answer{ID: q.ID, Form: wire.Failed, Code: wire.CodeQuestion, Text: text(q.malformed)})
	}
	if s.engine == nil {
		gpu, about, err := s.open()
		if err != nil {
			return errors.Join(err, s.write(failure(q, err)))
		}
		s.engine, s.about = New(gpu), about
	}
	a, err := s.perform(q)
	if err == nil {
		return s.write(a)
	}
	a = failure(q, err)
	if a.Code == wire.CodeDriver {
		return errors.Join(err, s.write(a))
	}
	return s.write(a)
}

func (s *server) perform(q question) (wire.Answer, error) {
	a := wire.Answer{ID: q.ID, Form: wire.Done}
	var err error
	switch q.Op {
	case wire.Describe:
		a.Form, a.About = wire.Described, s.about
		a.About.Free, a.About.Total, err = s.engine.Memory()
		a.About.Name = child.Tidy(a.About.Name, 120)
		return a, err
	case wire.Multiply:
		return s.multiply(q)
	case wire.Walk:
		a.Form = wire.Groups
		a.Raw, err = s.engine.Walk(q.ctx, q.Key, q.Dataset, q.Walk)
		return a, err
	case wire.Again:
		a.Form = wire.Ends
		a.Raw, err = s.engine.Ends(q.ctx, q.Key, q.Dataset, q.Walk, q.Group)
		return a, err
	case wire.Fill:
		err = s.engine.Fill(q.ctx, q.Dataset, q.Reserve)
	case wire.Evict:
		err = s.engine.Evict()
	}
	if err == nil {
		a.Free, _, err = s.engine.Memory()
	}
	return a, err
}

// multiply sends the hashes of tiles as they come, and gives the last.
func (s *server) multiply(q question) (wire.Answer, error) {
	a := wire.Answer{ID: q.ID, Form: wire.Part}
	left := q.Shape.Tiles() * sign.HashSize
	err := s.engine.Multiply(q.ctx, q.Seed, q.Shape, func(hashes []byte) error {
		left -= len(hashes)
		for part := range slices.Chunk(hashes, wire.MaxTiles*sign.HashSize) {
			if len(a.Raw) > 0 {
				if err := s.write(a); err != nil {
					return err
				}
			}
			a.Raw = part
		}
		if left == 0 { // the engine's memory becomes invalid, so the last hashes are copied
			a.Raw = slices.Clone(a.Raw)
			return nil
		}
		err := s.write(a)
		a.Raw = nil
		return err
	})
	a.Form = wire.Tiles
	return a, err
}

// failure is the answer for an error. One without a class is the driver's.
func failure(q question, err error) wire.Answer {
	a := wire.Answer{ID: q.ID, Form: wire.Failed, Code: wire.CodeDriver, Text: text(err)}
	switch {
	case IsNoLibrary(err):
		a.Code = wire.CodeLibrary
	case errors.Is(err, device.ErrMemory):
		a.Code = wire.CodeMemory
	case errors.Is(err, device.ErrNoDataset):
		a.Code = wire.CodeDataset
	case errors.Is(err, challenge.ErrShape):
		a.Code = wire.CodeQuestion
	case errors.Is(err, context.Canceled):
		a.Code = wire.CodeCancelled
	}
	return a
}

func text(err error) string { return child.Tidy(err.Error(), maxText) }

func (s *server) write(a wire.Answer) error {
	if _, err := a.WriteTo(s.out); err != nil {
		return fmt.Errorf("writing answer: %w", err)
	}
	return nil
}
