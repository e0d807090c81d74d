package executions

import (
	"context"
	"fmt"
	"io"
	"path"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

type (
	// Conn is a stream to a program.
	Conn = live.Conn
	// Program is one more program to run beside a rank's own, in its sandbox.
	Program = live.Program
)

// open opens a stream into a running program.
func (c *Client) open(ctx context.Context, x Execution, req *nodepb.LiveRequest) (*stream.Conn, error) {
	req.Lease, req.Seq = x.Lease[:], x.Seq
	c.cfg.Host.Forgive(x.Peer)
	_, conn, err := protocol.Live.Open(ctx, c.cfg.Host, c.cfg.Tag, x.Peer, req)
	return conn, err
}

// Attach runs a program beside a running one, and returns the stream to it, which speaks the frames of node/live.
func (c *Client) Attach(ctx context.Context, x Execution, p Program) (*stream.Conn, error) {
	return c.open(ctx, x, &nodepb.LiveRequest{Op: &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{
		Args: p.Args, Env: p.Env, WorkDir: p.WorkDir, Tty: p.TTY, Rows: uint32(p.Rows), Cols: uint32(p.Cols),
	}}})
}

// Forward connects to a TCP port of a running program. The stream carries its bytes as they are.
func (c *Client) Forward(ctx context.Context, x Execution, port uint16) (*stream.Conn, error) {
	forward := &nodepb.LiveRequest_Forward{Port: uint32(port)}
	return c.open(ctx, x, &nodepb.LiveRequest{Op: &nodepb.LiveRequest_Forward_{Forward: forward}})
}

// CopyOut writes a tar archive of a file or directory of a running program to w: its first element has the name of the
// path's last. The provider sends at most the disk size of the lease.
func (c *Client) CopyOut(ctx context.Context, x Execution, l Lease, file string, w io.Writer) error {
	out := &nodepb.LiveRequest_CopyOut{Path: file}
	conn, err := c.open(ctx, x, &nodepb.LiveRequest{Op: &nodepb.LiveRequest_CopyOut_{CopyOut: out}})
	if err != nil {
		return err
	}
	defer conn.Abort()
	if err := live.Receive(conn, w, live.MaxArchive(l.Disk())); err != nil {
		return fmt.Errorf("copying %s: %w", path.Clean(file), err)
	}
	return nil
}

// CopyIn unpacks a tar archive beneath a path of a running program. If the path is a directory, the archive's content
// goes into it. Otherwise the path becomes the archive's single first element, unless directory requires a directory. r
// is closed, which must end a pending Read.
func (c *Client) CopyIn(ctx context.Context, x Execution, file string, directory bool, r io.ReadCloser) error {
	defer r.Close()
	in := &nodepb.LiveRequest_CopyIn{Path: file, Directory: directory}
	conn, err := c.open(ctx, x, &nodepb.LiveRequest{Op: &nodepb.LiveRequest_CopyIn_{CopyIn: in}})
	if err != nil {
		return err
	}
	defer conn.Abort()
	if err := live.Send(conn, r); err != nil {
		return fmt.Errorf("copying to %s: %w", path.Clean(file), err)
	}
	return nil
}
