package provider

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

// watch sends the states and the log of e until it has ended and all was sent.
func (x *executor) watch(ctx context.Context, e *execution, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error) error {
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
		s, h, wake := e.snapshot()
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
				x.follow(ctx, e, *h, req, items)
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
		case <-x.ctx.Done():
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
func (x *executor) follow(ctx context.Context, e *execution, h runtime.Handle, req *nodepb.WatchRequest, items chan<- *nodepb.WatchItem) {
	logger, ok := x.runtimes[e.work.Runtime].(runtime.Logger)
	if !ok {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range []struct {
		stream runtime.Stream
		offset uint64
	}{{runtime.Stdout, req.StdoutOffset}, {runtime.Stderr, req.StderrOffset}} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if s.offset > 1<<62 {
				return
			}
			r, err := logger.Logs(ctx, h, s.stream, int64(s.offset))
			if err != nil {
				x.log.Debug("reading a log failed", "lease", e.rec.Lease, "err", err)
				return
			}
			defer r.Close()
			buf := make([]byte, protocol.MaxLogChunk)
			for at := s.offset; ; {
				n, err := r.Read(buf)
				if n > 0 {
					c := &nodepb.LogChunk{Stderr: s.stream == runtime.Stderr, Offset: at, Data: append([]byte(nil), buf[:n]...)}
					at += uint64(n)
					select {
					case items <- &nodepb.WatchItem{Item: &nodepb.WatchItem_Log{Log: c}}:
					case <-ctx.Done():
						return
					}
				}
				if err != nil {
					if !errors.Is(err, io.EOF) {
						x.log.Debug("reading a log failed", "lease", e.rec.Lease, "err", err)
					}
					return
				}
			}
		}()
	}
}
