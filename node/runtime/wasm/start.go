package wasm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/confine"
	"github.com/starling-network/starling/node/runtime/wasm/process"
)

// maxReadiness bounds the line a child reports with; a compiler's complaint can be long.
const maxReadiness = 64 << 10

// Start creates the directory, starts a child and returns when the guest is about to run its first instruction.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	h := runtime.Handle{Runtime: Name, ID: s.ID, Dir: s.Dir}
	if err := s.Check(); err != nil {
		return h, err
	}
	if !filepath.IsAbs(s.Module) {
		return h, &runtime.SpecError{Field: "Module", Reason: fmt.Sprintf("%q is not an absolute path", s.Module)}
	}
	if s.Overlay != nil {
		return h, &runtime.SpecError{Field: "Overlay", Reason: "needs a container: this runtime gives no network"}
	}
	if len(s.Secrets)+len(s.SecretEnv) > 0 {
		const reason = "need a container: this runtime would write them to disk"
		return h, &runtime.SpecError{Field: "Secrets", Reason: reason}
	}
	for i, m := range s.Mounts {
		if info, err := os.Stat(m.Host); err != nil || !info.IsDir() {
			return h, fmt.Errorf("%w: Mounts[%d]: %s is not a directory", runtime.ErrBadMount, i, m.Host)
		}
	}
	if err := r.mine.Open(); err != nil {
		return h, err
	}
	owner, err := r.prepareDir(s)
	if err != nil {
		return h, err
	}
	e := newExecution(s.ID, s.Dir, owner)
	if err = r.launch(ctx, e, s); err == nil {
		err = r.add(e)
	}
	if err != nil {
		if e.cmd != nil {
			_ = e.cmd.Process.Kill()
			_ = e.cmd.Wait()
		}
		_ = os.RemoveAll(s.Dir)
		e.disown()
		return h, fmt.Errorf("starting %s: %w", s.ID, err)
	}
	return h, nil
}

// prepareDir makes the directory with the child's files and takes its owner lock. The lock file's creation decides
// between two starts in one directory.
func (r *Runtime) prepareDir(s runtime.Spec) (*os.File, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating execution directory: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(s.Dir, ownerFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w in %s", runtime.ErrExists, s.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("creating lock: %w", err)
	}
	entries, err := os.ReadDir(s.Dir)
	switch {
	case err != nil:
	case len(entries) != 1:
		err = fmt.Errorf("%w: %s is not empty", runtime.ErrExists, s.Dir)
		_ = os.Remove(owner.Name())
		_ = owner.Close()
		return nil, err
	default:
		err = errors.Join(process.Lock(owner),
			os.Chmod(s.Dir, 0o700), os.Mkdir(filepath.Join(s.Dir, controlDir), 0o700),
			writeState(s.Dir, specFile, childSpec{Spec: s, CacheDir: r.cfg.CacheDir, Grace: r.cfg.Grace}))
	}
	if err != nil {
		_ = os.RemoveAll(s.Dir)
		_ = owner.Close()
		return nil, fmt.Errorf("preparing execution directory: %w", err)
	}
	return owner, nil
}

// launch starts the child and reads its readiness.
func (r *Runtime) launch(ctx context.Context, e *execution, s runtime.Spec) error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making pipe: %w", err)
	}
	defer ready.Close()
	last, err := os.OpenFile(filepath.Join(e.dir, childLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		_ = theirs.Close()
		return fmt.Errorf("opening log: %w", err)
	}
	defer last.Close()
	cmd := exec.Command(r.cfg.Command[0], append(slices.Clone(r.cfg.Command[1:]), e.dir)...)
	cmd.Dir, cmd.Env = e.dir, []string{"GOGC=off", "GOMAXPROCS=2", r.boxOf(s).Env()}
	cmd.Stdout, cmd.Stderr = last, last
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to the peer's terminal are not for it
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return fmt.Errorf("starting child: %w", err)
	}
	e.cmd = cmd
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(ready, maxReadiness)).ReadBytes('\n')
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ok readiness
	if err == nil {
		err = json.Unmarshal(line, &ok)
	}
	if err != nil {
		if outOfMemory(e.dir) {
			const most = childMemory >> 20
			return fmt.Errorf("%w: compiling takes more than %d MiB of memory", runtime.ErrBadModule, most)
		}
		if s, err := readStatus(e.dir); err == nil && s.Exit.Reason == runtime.ReasonTimeout {
			return nil // it has reached its wall-time limit already, as in its start section: Wait returns that
		}
		return fmt.Errorf("child ended before it was ready: %w: %s", err, lastWords(e.dir))
	}
	switch ok.Kind {
	case "":
		r.confined.Do(func() { r.logConfinement(ok.Confined) })
		return nil
	case failModule:
		return fmt.Errorf("%w: %s", runtime.ErrBadModule, ok.Error)
	case failMount:
		return fmt.Errorf("%w: %s", runtime.ErrBadMount, ok.Error)
	}
	return errors.New(ok.Error)
}

// outOfMemory reports whether the Go runtime ended a child because the kernel refused it memory.
func outOfMemory(dir string) bool {
	words, _ := readState(dir, childLog)
	return bytes.Contains(words, []byte("out of memory"))
}

// lastWords is the end of the child's own log.
func lastWords(dir string) string {
	b, err := readState(dir, childLog)
	if err != nil {
		return ""
	}
	b = bytes.TrimSpace(b)
	return strings.ToValidUTF8(string(b[max(0, len(b)-500):]), "?")
}

// boxOf returns the box of an execution's child.
func (r *Runtime) boxOf(s runtime.Spec) confine.Box {
	b := confine.Box{
		Memory: uint64(s.Limits.WithDefaults().MemoryMiB)<<20 + childMemory,
		Files:  []string{s.Module}, Write: []string{s.Dir}, Until: []string{r.cfg.CacheDir},
	}
	for _, m := range s.Mounts {
		if m.ReadOnly {
			b.Read = append(b.Read, m.Host)
		} else {
			b.Write = append(b.Write, m.Host)
		}
	}
	return b
}

// logConfinement logs the confinement of the children of this runtime.
func (r *Runtime) logConfinement(c confine.Confinement) {
	if c.Landlock == 0 || !c.Seccomp {
		r.cfg.Logger.Warn("this system confines WASM programs hardly beyond their own sandbox",
			"landlock", c.Landlock, "seccomp", c.Seccomp)
		return
	}
	r.cfg.Logger.Info("WASM programs are confined beyond their own sandbox",
		"landlock", c.Landlock, "seccomp", c.Seccomp)
}
