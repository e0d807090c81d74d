package executor

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

// Watch sends the states and the log of e until it has ended and all was sent.
func Watch(
	ctx context.Context, e *Execution, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items := make(chan *nodepb.WatchItem) // unbuffered: a slow buyer slows the reading, not the program
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	logs := make(chan struct{})
	following := false
	var last *nodepb.Execution
	for {
		s, h, wake := e.Snapshot()
		if !s.State.Ended() && !proto.Equal(s, last) {
			last = s
			if err := send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: s}}); err != nil {
				return err
			}
		}
		if h != nil && !following {
			following = true
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer close(logs)
				follow(ctx, e, *h, req, items)
			}()
		}
		ready := logs
		if !s.State.Ended() {
			ready = nil
		} else if !following {
			return send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: s}})
		}
		select {
		case <-ctx.Done():
			return stream.Refuse(stream.CodeClosing, "the peer is stopping")
		case <-e.x.ctx.Done():
			return stream.Refuse(stream.CodeClosing, "the peer is stopping")
		case it := <-items:
			if err := send(it); err != nil {
				return err
			}
		case <-wake:
		case <-ready:
			return send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: s}})
		}
	}
}

// follow reads both logs until the program has ended.
func follow(
	ctx context.Context, e *Execution, h runtime.Handle, req *nodepb.WatchRequest, items chan<- *nodepb.WatchItem,
) {
	logger, ok := e.Runtime().(runtime.Logger)
	if !ok {
		return
	}
	var wg sync.WaitGroup
	for s, offset := range map[runtime.Stream]uint64{
		runtime.Stdout: req.StdoutOffset, runtime.Stderr: req.StderrOffset,
	} {
		wg.Go(func() {
			if err := copyLog(ctx, logger, h, s, offset, items); err != nil {
				e.x.cfg.Log.Debug("reading a log failed", "lease", e.Lease, "err", err)
			}
		})
	}
	wg.Wait()
}

// copyLog sends one log from an offset until its end, or ctx ends.
func copyLog(
	ctx context.Context, from runtime.Logger, h runtime.Handle, s runtime.Stream, offset uint64,
	items chan<- *nodepb.WatchItem,
) error {
	if offset > 1<<62 {
		return nil
	}
	r, err := from.Logs(ctx, h, s, int64(offset))
	if err != nil {
		return err
	}
	defer r.Close()
	buf := make([]byte, protocol.MaxLogChunk)
	for at := offset; ; {
		n, err := r.Read(buf)
		if n > 0 {
			c := &nodepb.LogChunk{Stderr: s == runtime.Stderr, Offset: at, Data: append([]byte(nil), buf[:n]...)}
			at += uint64(n)
			select {
			case items <- &nodepb.WatchItem{Item: &nodepb.WatchItem_Log{Log: c}}:
			case <-ctx.Done():
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
