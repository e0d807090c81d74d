//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// try prints an action and its outcome.
func try(what string, err error) {
	if err != nil {
		fmt.Println(what+":", err)
		return
	}
	fmt.Println(what + ": done")
}

func write(name string) error { return os.WriteFile(name, []byte("x"), 0o600) }

// asIs does typical operations of ordinary images, as their user and with a helper that is root's.
func asIs() {
	groups, _ := os.Getgroups()
	dir, _ := os.Getwd()
	fmt.Println("user", os.Getuid(), os.Getgid(), groups, os.Getenv("HOME"), dir)
	try("home", write(os.Getenv("HOME")+"/a"))
	_, err := os.ReadFile("/store/seed")
	try("read volume", err)
	try("volume", write("/store/a"))
	try("tmp", write("/tmp/a"))
	_, err = os.ReadFile("/run/app/seed")
	try("read of the image's run", err)
	try("run", write("/run/app/a"))
	_, err = os.ReadFile("/root/secret")
	try("read of root's", err)
	for _, dir := range []string{"/", "/tmp", "/store", "/run/app"} {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if err == nil && s.Type != unix.OVERLAYFS_SUPER_MAGIC {
			err = fmt.Errorf("it is on a file system of type %#x", s.Type)
		}
		try("layer has "+dir, err)
	}
	for _, name := range []string{"/dev/stdout", "/dev/stderr"} {
		try("open "+name, write(name))
	}
	_, err = net.LookupHost(os.Getenv("HOSTNAME"))
	try("find HOSTNAME", err)
	out, err := exec.Command("/helper", "root", "/root/secret", "/made").CombinedOutput()
	fmt.Print(string(out))
	try("helper", err)
}

// root reads the first file, and makes the second one another user's.
func root(files []string) {
	// A helper of root is root wholly, as su and sudo are.
	try("become root", syscall.Setuid(0))
	_, err := os.ReadFile(files[0])
	try("read "+files[0], err)
	try("write "+files[1], write(files[1]))
	try("give "+files[1], os.Chown(files[1], 5, 6))
	info, err := os.Stat(files[1])
	if err == nil {
		s := info.Sys().(*syscall.Stat_t)
		fmt.Println("owner", s.Uid, s.Gid)
	}
	try("make "+files[1]+".d", os.Mkdir(files[1]+".d", 0o700))
	try("remove /guest", os.Remove("/guest"))
	for _, f := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		err := write(f)
		if err == nil { // as packages' scripts do
			err = errors.Join(write(f+".new"), os.Rename(f+".new", f))
		}
		try("change "+f, err)
	}
}

// escape prints everything that root of a user namespace can do beyond it.
func escape() {
	say := func(what string, err error) {
		if err == nil {
			fmt.Println("could", what)
		}
	}
	say("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	say("bind", unix.Mount("/", "/mnt", "", unix.MS_BIND, ""))
	for _, at := range []string{"/", "/run/starling", "/run/starling/guard", "/sys", "/sys/fs/cgroup", "/proc/sys"} {
		say("remount "+at, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		say("unmount "+at, unix.Unmount(at, unix.MNT_DETACH))
	}
	_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
	say("clone its root", err)
	say("make a disk", unix.Mknod("/tmp/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))))
	say("make a memory device", unix.Mknod("/tmp/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))))
	for _, f := range []string{"/disk", "/dev/mem", "/dev/kmsg", "/proc/kcore"} { // the first is the image's
		h, err := os.Open(f)
		if err == nil {
			_, err = h.Read(make([]byte, 1))
			_ = h.Close()
		}
		say("read "+f, err)
	}
	for _, f := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/fs/inotify/max_user_instances",
		"/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger",
		"/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/run/starling/guard", "/run/starling/new", "/run/starling/stop",
	} {
		flags := os.O_WRONLY
		if strings.HasPrefix(f, "/run/starling/") {
			flags |= os.O_CREATE
		}
		h, err := os.OpenFile(f, flags, 0o644)
		if err == nil {
			_ = h.Close()
		}
		say("write "+f, err)
	}
	// Another directory in the place of the guard's would have the program taken for the guard.
	for _, dir := range []string{"/run", "/run/starling"} {
		say("rename "+dir, os.Rename(dir, dir+".old"))
		say("remove "+dir, unix.Unlinkat(unix.AT_FDCWD, dir, unix.AT_REMOVEDIR))
	}
	for name, flag := range map[string]uintptr{
		"user": syscall.CLONE_NEWUSER, "mount": syscall.CLONE_NEWNS, "network": syscall.CLONE_NEWNET,
		"pid": syscall.CLONE_NEWPID, "cgroup": unix.CLONE_NEWCGROUP,
	} {
		cmd := exec.Command("/proc/self/exe", "pwd")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flag}
		say("make a namespace: "+name, cmd.Run())
	}
	say("be a user of the machine", syscall.Setuid(100_000))
	say("set the clock", unix.Settimeofday(&unix.Timeval{Sec: 1}))
	say("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_ON))
	say("raise a limit", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
	say("count as trusted", unix.Setxattr("/tmp", "trusted.overlay.opaque", []byte("y"), 0))
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "CapBnd") || strings.HasPrefix(line, "Seccomp:") {
			fmt.Print(line)
		}
	}
	fmt.Println("done")
}
