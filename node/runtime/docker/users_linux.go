package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/starling-network/starling/node/runtime"
)

// firstUser is the first of the users of this machine that programs have where the engine maps none: numbers that no distribution,
// systemd or range of subordinate users has.
const firstUser = 2_000_000_000

// identity is a program's user.
type identity struct {
	name  string // uid:gid, as its container numbers them
	owner *owner // on this machine, where that is not whom the peer is
	apart bool   // no program of another Spec.User is the same
}

// tryUsers finds out why programs cannot have users of their own, if so.
func (r *Runtime) tryUsers() {
	info, err := os.Stat(r.guard)
	switch {
	case os.Geteuid() != 0:
		err = errors.New("the peer is not root")
	case r.engine.mapped && r.engine.shift == nil:
		err = errors.New("the engine is rootless")
	case err == nil && info.Mode()&0o005 != 0o005:
		err = fmt.Errorf("%s cannot be run by everybody: chmod o+rx %s", r.guard, r.guard)
	}
	if err != nil {
		r.noUsers = err
		r.cfg.Logger.Warn("programs of all leases have one user, who can use up what the kernel gives to each user", "reason", err)
	}
}

// userOf is the user of a spec's program. The group stays the engine's: the kernel bounds nothing by it, and images let
// the group of root read the files that an unknown user needs.
func (r *Runtime) userOf(s runtime.Spec) identity {
	e := r.engine
	if s.User == 0 || r.noUsers != nil {
		return identity{name: e.user, owner: e.shift}
	}
	_, group, _ := strings.Cut(e.user, ":")
	n := int(s.User)
	if e.shift != nil { // within the range that the engine maps
		return identity{fmt.Sprintf("%d:%s", n, group), &owner{e.shift.uid + n, e.shift.gid}, true}
	}
	n += firstUser
	return identity{fmt.Sprintf("%d:%s", n, group), &owner{n, os.Getgid()}, true}
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
			err = root.Lchown(name, u.owner.uid, u.owner.gid)
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
