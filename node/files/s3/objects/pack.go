package objects

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/starling-network/starling/p2p/blob"
)

const (
	// small is the size up to which objects are read ahead, ahead the number of them.
	small = 4 << 20
	ahead = 2 * atOnce
)

// Pack writes the archive of a folder with the objects of List. It equals the one that blob.Pack makes of the same
// files. Small objects are read ahead, several at a time. progress is optional and gets the bytes so far.
func (c *Client) Pack(ctx context.Context, w io.Writer, all []Object, progress func(done int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	queue := make(chan chan content, ahead)
	readers.Go(func() {
		defer close(queue)
		slots := make(chan struct{}, atOnce)
		for _, o := range all {
			one := make(chan content, 1)
			select {
			case queue <- one:
			case <-ctx.Done():
				return
			}
			if o.Size > small {
				one <- content{} // is read in its turn
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			readers.Go(func() {
				one <- c.whole(ctx, o)
				<-slots
			})
		}
	})
	p := packer{c: c, tw: tar.NewWriter(w), made: map[string]bool{".": true}, progress: progress}
	for _, o := range all {
		var got content
		select {
		case one := <-queue:
			select {
			case got = <-one:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		if err := errors.Join(ctx.Err(), got.err); err != nil {
			return err
		}
		if err := p.file(ctx, o, got.data); err != nil {
			return err
		}
	}
	return p.tw.Close()
}

// content is a small object.
type content struct {
	data []byte
	err  error
}

// whole reads a small object.
func (c *Client) whole(ctx context.Context, o Object) content {
	body, err := c.Open(ctx, o)
	if err != nil {
		return content{err: err}
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return content{data, err}
}

type packer struct {
	c        *Client
	tw       *tar.Writer
	made     map[string]bool // folders in the archive
	done     int64
	progress func(done int64)
}

// file writes one object; data is its content if it is small.
func (p *packer) file(ctx context.Context, o Object, data []byte) error {
	if err := p.folder(path.Dir(o.Rel)); err != nil {
		return err
	}
	h := blob.Header(o.Rel)
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, o.Size, 0o644
	if err := p.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("archiving %s: %w", o.Name, err)
	}
	var from io.Reader = bytes.NewReader(data)
	if o.Size > small {
		body, err := p.c.Open(ctx, o)
		if err != nil {
			return err
		}
		defer body.Close()
		from = body
	}
	if _, err := io.Copy(p.tw, counted{from, p}); err != nil {
		return fmt.Errorf("archiving: %w", err)
	}
	return nil
}

// folder writes a folder and those above it, once.
func (p *packer) folder(name string) error {
	if p.made[name] {
		return nil
	}
	p.made[name] = true
	if err := p.folder(path.Dir(name)); err != nil {
		return err
	}
	h := blob.Header(strings.TrimSuffix(name, "/") + "/")
	h.Typeflag, h.Mode = tar.TypeDir, 0o755
	return p.tw.WriteHeader(h)
}

// counted reports the bytes that are read.
type counted struct {
	io.Reader
	p *packer
}

func (r counted) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.p.done += int64(n); r.p.progress != nil && n > 0 {
		r.p.progress(r.p.done)
	}
	return n, err
}
