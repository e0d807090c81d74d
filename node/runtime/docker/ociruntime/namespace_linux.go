package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// userNamespace makes a user namespace with the range that begins at base. It belongs to the first user of the range
// and not to root of this machine: some things that the kernel bounds for each user, as instances of inotify, count for
// the owner of a namespace too.
//
// The thread of the caller must be locked: it traces, for a moment, the process that makes the namespace, so that the
// program of that process never begins.
func userNamespace(base uint32) (ns *os.File, err error) {
	if err := actAs(base); err != nil {
		return nil, fmt.Errorf("making user namespace: %w", err)
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(base), Size: RangeSize}}
	p, err := os.StartProcess("/proc/self/exe", []string{"namespace"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: ids, GidMappings: ids,
			GidMappingsEnableSetgroups: true,
			Ptrace:                     true, Pdeathsig: syscall.SIGKILL,
		},
	})
	if again := actAs(0); again != nil {
		return nil, fmt.Errorf("making user namespace: %w", again)
	}
	if err != nil {
		return nil, fmt.Errorf("making user namespace: %w", err)
	}
	ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, waited := p.Wait()
	if err = errors.Join(err, waited); err != nil {
		return nil, fmt.Errorf("making user namespace: %w", err)
	}
	return ns, nil
}

// Confirm checks that a process has the users of a runtime.Spec.User, without this machine's root.
func Confirm(pid int, user uint32) error {
	for _, name := range []string{"uid_map", "gid_map"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			return fmt.Errorf("looking at the users of a container: %w", err)
		}
		want := fmt.Sprint(0, " ", Base(user), " ", RangeSize)
		if got := strings.Join(strings.Fields(string(b)), " "); got != want {
			return fmt.Errorf("%s of a container: got %.80q, want %q", name, got, want)
		}
	}
	return nil
}

// actAs changes the effective user of this thread alone, and keeps its capabilities.
func actAs(user uint32) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(user), keep); errno != 0 {
		return fmt.Errorf("changing user: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	if err == nil {
		err = unix.Capset(&header, &data[0])
	}
	if err != nil {
		return fmt.Errorf("keeping capabilities: %w", err)
	}
	return nil
}

// ownMounts gives the caller's thread, which must be locked, its own mount namespace.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("making mount namespace: %w", err)
	}
	return nil
}

// joinNetwork moves the thread of the caller, which must be locked, into the network namespace at path.
func joinNetwork(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", path, err)
	}
	return nil
}

// mountSysfs mounts sysfs at a directory, as the network namespace of the thread sees it.
func mountSysfs(dir string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	if err := unix.Mount("sysfs", dir, "sysfs", flags, ""); err != nil {
		return fmt.Errorf("mounting sysfs: %w", err)
	}
	return nil
}
