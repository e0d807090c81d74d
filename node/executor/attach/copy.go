package attach

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// CopyOut archives a file or directory below a mount of the program.
func CopyOut(ctx context.Context, e Execution, guest string, take Accept) error {
	w, limits := e.Program()
	at, err := e.Stage().Open(w, guest, false)
	if err != nil {
		return refusePath(guest, err)
	}
	defer at.Root.Close()
	if _, err := at.Root.Stat(at.Name); err != nil {
		return refusePath(guest, err)
	}
	conn, err := take(&nodepb.LiveReply{})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	to := live.NewWriter(conn)
	buffered := bufio.NewWriterSize(to.Stream(live.Stdout), live.MaxBody)
	err = live.Pack(buffered, at.Root, at.Name, path.Base(path.Clean(guest)), int64(limits.DiskMiB)<<20)
	if err == nil {
		err = buffered.Flush()
	}
	return finishCopy(to, err)
}

// finishCopy sends the outcome of a copy. When the stream itself is broken this fails too, and resets it.
func finishCopy(w *live.Writer, err error) error {
	if err != nil {
		return w.Fail(copyText(err))
	}
	return w.Exit(0)
}

// CopyIn unpacks an archive below an output of the program, within the lease's disk limit.
func CopyIn(ctx context.Context, e Execution, c *nodepb.LiveRequest_CopyIn, take Accept) error {
	guest := c.GetPath()
	w, _ := e.Program()
	at, err := e.Stage().Open(w, guest, true)
	if err != nil {
		return refusePath(guest, err)
	}
	defer at.Root.Close()
	dir, as, err := target(at, c.GetDirectory())
	if err != nil {
		return refusePath(guest, err)
	}
	room, err := room(e)
	if err != nil {
		return err
	}
	conn, err := take(&nodepb.LiveReply{})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	_, err = live.Unpack(live.Input(conn), at.Root, dir, as, room, true)
	return finishCopy(live.NewWriter(conn), err)
}

// target returns the directory for an archive, and the name of its first element there: a path that is no directory is
// the new name of the archive's only file or directory.
func target(at workload.Place, directory bool) (dir, as string, err error) {
	info, err := at.Root.Stat(at.Name)
	switch {
	case err == nil && info.IsDir():
		return at.Name, "", nil
	case err == nil && directory:
		return "", "", stream.Refuse("path", path.Join(at.Mount, at.Name)+" is not a directory")
	case err != nil && (directory || !errors.Is(err, fs.ErrNotExist)):
		return "", "", err
	}
	dir, as = path.Dir(at.Name), path.Base(at.Name)
	if info, err = at.Root.Stat(dir); err == nil && !info.IsDir() {
		err = stream.Refuse("path", path.Join(at.Mount, dir)+" is not a directory")
	}
	return dir, as, err
}

// room is how many bytes the lease's disk has left in the mounts of an execution.
func room(e Execution) (int64, error) {
	w, limits := e.Program()
	left := int64(limits.DiskMiB) << 20
	for _, m := range e.Stage().Mounts(w) {
		if m.ReadOnly {
			continue
		}
		at, err := e.Stage().Open(w, m.Guest, true)
		if err != nil {
			return 0, refusePath(m.Guest, err)
		}
		used, err := live.Usage(at.Root, left)
		_ = at.Root.Close()
		if err != nil {
			return 0, fmt.Errorf("measuring %s: %w", m.Guest, err)
		}
		left -= used
	}
	return max(left, 0), nil
}

// refusePath explains the problem of a path without its place on this machine.
func refusePath(guest string, err error) error {
	var no *stream.Refused
	var at *fs.PathError
	switch {
	case errors.As(err, &no):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return stream.Refuse("path", guest+" is not there")
	case errors.As(err, &at):
		return stream.Refuse("path", fmt.Sprintf("%s: %v", guest, at.Err))
	}
	return stream.Refuse("path", err.Error())
}

// copyText explains the problem of a copy without the files' places on this machine.
func copyText(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return fmt.Sprintf("copying %s: %v", at.Path, at.Err)
	}
	return "copying: " + err.Error()
}
