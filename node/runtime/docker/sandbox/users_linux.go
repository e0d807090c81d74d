package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
)

// FirstUser is the first of the users of this machine that programs have where the engine maps none: numbers that no
// distribution, systemd or range of subordinate users has.
const FirstUser = 2_000_000_000

// identity is a program's user.
type identity struct {
	name  string        // uid:gid, as its container numbers them
	owner *engine.Owner // on this machine, where that is not whom the peer is
	apart bool          // no program of another Spec.User is the same
}

// TryUsers finds out why programs cannot have users of their own, if so.
func (m *Maker) TryUsers(log *slog.Logger) {
	info, err := os.Stat(m.guard)
	switch {
	case os.Geteuid() != 0:
		err = errors.New("the peer is not root")
	case m.engine.Mapped && m.engine.Shift == nil:
		err = errors.New("the engine is rootless")
	case err == nil && info.Mode()&0o005 != 0o005:
		err = fmt.Errorf("%s: not executable for all users: chmod o+rx %s", m.guard, m.guard)
	}
	if err != nil {
		m.noUsers = err
		log.Warn("programs of all leases share one user and the kernel's limits per user",
			"reason", err)
	}
}

// NoUsers returns the reason why all programs have one user, or nil if each Spec.User has its own.
func (m *Maker) NoUsers() error { return m.noUsers }

// userOf is the user of a spec's program. The group stays the engine's: the kernel bounds nothing by it, and images let
// the group of root read the files that an unknown user needs.
func (m *Maker) userOf(s runtime.Spec) identity {
	if m.Layered(s) {
		return layeredUser(s)
	}
	e := m.engine
	if s.User == 0 || m.noUsers != nil {
		return identity{name: e.User, owner: e.Shift}
	}
	_, group, _ := strings.Cut(e.User, ":")
	n := int(s.User)
	if e.Shift != nil { // within the range that the engine maps
		return identity{fmt.Sprintf("%d:%s", n, group), &engine.Owner{UID: e.Shift.UID + n, GID: e.Shift.GID}, true}
	}
	n += FirstUser
	return identity{fmt.Sprintf("%d:%s", n, group), &engine.Owner{UID: n, GID: os.Getgid()}, true}
}

// admit makes a mount usable for the user. Writable files become the user's. Files that are only read may be shared, as
// a file of the store is: every user that reaches them may read them then. Links are not followed. The peer is root, so
// it loses no access.
func (u identity) admit(dir string, write bool) error {
	if u.owner == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	change := func(name string, info fs.FileInfo) error {
		var err error
		switch mode := info.Mode().Perm(); {
		case write || !u.apart:
			err = root.Lchown(name, u.owner.UID, u.owner.GID)
		case info.Mode()&fs.ModeSymlink != 0:
		case info.IsDir() || mode&0o100 != 0:
			err = root.Chmod(name, mode|0o555)
		default:
			err = root.Chmod(name, mode|0o444)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = change(".", info)
	}
	if err != nil {
		return err
	}
	return runtime.Walk(root, change)
}
