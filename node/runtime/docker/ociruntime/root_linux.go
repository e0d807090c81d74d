package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime/volume"
)

// prepare changes the configuration of a container with a layer. Afterwards the caller's thread is in the container's
// mount namespace, and in the network namespace that the container joins, if any. From the user namespace, runc could
// not enter a network namespace of this machine.
func prepare(c command) error {
	cfg, err := readConfig(c.bundle)
	if err != nil {
		return err
	}
	source := cfg.takeLayer()
	if source == "" {
		return nil
	}
	if err := cfg.check(); err != nil {
		return err
	}
	goruntime.LockOSThread() // until runc
	if err := ownMounts(); err != nil {
		return err
	}
	l, err := openLayer(source)
	if err != nil {
		return err
	}
	defer l.dir.Close()
	image := cfg.root["path"].(string)
	lower, err := lowerDirs(image)
	if err != nil {
		return err
	}
	if err := l.fill(image); err != nil {
		return err
	}
	stage, err := emptyPlace(slices.Concat(c.args, []string{c.bundle, image}))
	if err != nil {
		return err
	}
	cfg.keepVolumes()
	b := &builder{stage: stage}
	if b.files, err = readFiles(cfg.takeFiles()); err != nil {
		return err
	}
	if b.users, err = userNamespace(l.base); err != nil {
		return err
	}
	defer b.close()
	if err := b.cloneImage(lower, l); err != nil {
		return err
	}
	if err := b.cloneMounts(cfg); err != nil {
		return err
	}
	if err := b.build(cfg, l); err != nil {
		return err
	}
	// A limit that runc and the container inherit needs no privilege over the user namespace, which is not root's. A
	// root without CAP_SYS_RESOURCE, as in some virtual machines, has none.
	if core, ok := cfg.takeCore(); ok {
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: core.Soft, Max: core.Hard}); err != nil {
			return fmt.Errorf("limiting core files: %w", err)
		}
	}
	return cfg.write(c.bundle)
}

// lowerDirs returns the directories of the overlay that the engine mounted at root, the uppermost first.
func lowerDirs(root string) ([]string, error) {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	return overlayAt(string(table), root)
}

// overlayAt finds the overlay at root in a table of mountinfo. Its directories are relative where an engine has many.
func overlayAt(table, root string) (dirs []string, err error) {
	for line := range strings.Lines(table) {
		place, super, _ := strings.Cut(line, " - ")
		at, kind := strings.Fields(place), strings.Fields(super)
		if len(at) < 5 || volume.Unescape(at[4]) != root || len(kind) < 3 || kind[0] != "overlay" {
			continue
		}
		var upper string
		dirs = nil // the newest mount is on top
		for _, option := range strings.Split(volume.Unescape(kind[2]), ",") {
			name, value, _ := strings.Cut(option, "=")
			switch name {
			case "lowerdir":
				dirs = append(dirs, strings.Split(value, ":")...)
			case "lowerdir+":
				dirs = append(dirs, value)
			case "upperdir":
				upper = value
			}
		}
		dirs = slices.DeleteFunc(append([]string{upper}, dirs...), func(d string) bool { return d == "" })
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("root %s: not an overlay: want the storage driver overlay2", root)
	}
	home := filepath.Dir(filepath.Dir(root)) // …/overlay2, of …/overlay2/<id>/merged
	for i, d := range dirs {
		if strings.Contains(d, `\`) {
			return nil, fmt.Errorf("directory of the image: unsupported character in %q", d)
		}
		if !filepath.IsAbs(d) {
			dirs[i] = filepath.Join(home, d)
		}
	}
	return dirs, nil
}

// places are world-accessible directories without system files. One of them holds the container's mounts, in its mount
// namespace only.
var places = []string{"/mnt", "/media", "/srv", "/boot", "/opt"}

// emptyPlace returns the first place that none of the used paths lies in.
func emptyPlace(used []string) (string, error) {
	for _, p := range places {
		info, err := os.Lstat(p)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o001 == 0 {
			continue
		}
		if !slices.ContainsFunc(used, func(u string) bool { return u == p || strings.HasPrefix(u, p+"/") }) {
			return p, nil
		}
	}
	return "", fmt.Errorf("mount directory: none of %s is a world-accessible directory that the engine does not use",
		strings.Join(places, ", "))
}

// clone is a detached copy of a mount.
type clone struct {
	tree *os.File
	file bool // not a directory
}

// builder makes the root of a container and the mounts in it, at a stage.
type builder struct {
	stage  string
	users  *os.File // the user namespace
	images []clone
	binds  map[int]clone // by their index in the configuration
	files  map[string][]byte
	layer  clone
}

func (b *builder) close() {
	_ = b.users.Close()
	for _, c := range append(b.images, b.layer) {
		_ = c.tree.Close()
	}
	for _, c := range b.binds {
		_ = c.tree.Close()
	}
}

// cloneTree clones the mount at a path, with attr in addition to its own attributes.
func cloneTree(path string, recursive bool, attr unix.MountAttr) (clone, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	set := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags, set = flags|unix.AT_RECURSIVE, set|unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if err != nil {
		return clone{}, fmt.Errorf("cloning mount of %s: %w", path, err)
	}
	c := clone{tree: os.NewFile(uintptr(fd), path)}
	var s unix.Stat_t
	if err = unix.Fstat(fd, &s); err == nil {
		c.file = s.Mode&unix.S_IFMT != unix.S_IFDIR
		if attr != (unix.MountAttr{}) {
			err = unix.MountSetattr(fd, "", set, &attr)
		}
	}
	if err != nil {
		_ = c.tree.Close()
		return clone{}, fmt.Errorf("cloning mount of %s: %w", path, err)
	}
	return c, nil
}

// cloneImage clones the directories of the image for the users of the layer, and the layer.
func (b *builder) cloneImage(lower []string, l *layer) (err error) {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(b.users.Fd())}
	for _, dir := range lower {
		c, err := cloneTree(dir, false, attr)
		if errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: the file system has no idmapped mounts", err)
		}
		if err != nil {
			return err
		}
		b.images = append(b.images, c)
	}
	b.layer, err = cloneTree(fmt.Sprintf("/proc/self/fd/%d", l.dir.Fd()), false, unix.MountAttr{})
	return err
}

// cloneMounts clones the bind mounts of a configuration.
func (b *builder) cloneMounts(cfg *config) error {
	b.binds = map[int]clone{}
	for i, m := range cfg.mounts {
		if !m.isBind() {
			continue
		}
		var attr unix.MountAttr
		for option, flag := range map[string]uint64{
			"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID,
			"nodev": unix.MOUNT_ATTR_NODEV, "noexec": unix.MOUNT_ATTR_NOEXEC,
		} {
			if slices.Contains(m.Options, option) {
				attr.Attr_set |= flag
			}
		}
		c, err := cloneTree(m.Source, slices.Contains(m.Options, "rbind"), attr)
		if err != nil {
			return err
		}
		b.binds[i] = c
	}
	return nil
}

// build mounts the clones and the overlay, and changes the configuration to them.
func (b *builder) build(cfg *config, l *layer) error {
	if err := unix.Mount("starling", b.stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting %s: %w", b.stage, err)
	}
	var lower []string
	for i, c := range b.images {
		at, err := b.attach(c, fmt.Sprint(i))
		if err != nil {
			return err
		}
		lower = append(lower, at)
	}
	upper, err := b.attach(b.layer, "layer")
	if err != nil {
		return err
	}
	for i, c := range b.binds {
		at, err := b.attach(c, fmt.Sprint("bind", i))
		if err != nil {
			return err
		}
		cfg.mounts[i].Type, cfg.mounts[i].Source = "bind", at
		cfg.mounts[i].Options = []string{"rbind", "rprivate"}
	}
	if err := b.joinNetwork(cfg); err != nil {
		return err
	}
	root := filepath.Join(b.stage, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return fmt.Errorf("making root: %w", err)
	}
	// Nothing is synced to the disk, since no layer outlives its container.
	options := "lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + upper + "/upper,workdir=" + upper + "/work" +
		",index=off,metacopy=off,volatile"
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV|unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("mounting overlay: %w", err)
	}
	if err := b.fillRoot(cfg, root, l.base); err != nil {
		return err
	}
	users := filepath.Join(b.stage, "users")
	err = os.WriteFile(users, nil, 0o600)
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", b.users.Fd()), users, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("mounting user namespace: %w", err)
	}
	return cfg.enter(users, l.base, root)
}

// attach mounts a clone at a name in the stage, and returns its path.
func (b *builder) attach(c clone, name string) (string, error) {
	at := filepath.Join(b.stage, name)
	var err error
	if c.file {
		err = os.WriteFile(at, nil, 0o600)
	} else {
		err = os.Mkdir(at, 0o700)
	}
	if err == nil {
		fd := int(c.tree.Fd())
		err = unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return "", fmt.Errorf("mounting %s: %w", c.tree.Name(), err)
	}
	return at, nil
}

// joinNetwork gives a container that joins another's network a mount of sysfs.
func (b *builder) joinNetwork(cfg *config) error {
	path := cfg.takeNetwork()
	if path == "" {
		return nil
	}
	if err := joinNetwork(path); err != nil {
		return err
	}
	i := slices.IndexFunc(cfg.mounts, func(m mount) bool { return m.Type == "sysfs" })
	if i < 0 {
		return nil
	}
	at := filepath.Join(b.stage, "sys")
	if err := os.Mkdir(at, 0o755); err != nil {
		return fmt.Errorf("making directory for sysfs: %w", err)
	}
	if err := mountSysfs(at); err != nil {
		return err
	}
	cfg.mounts[i].Type, cfg.mounts[i].Source = "bind", at
	cfg.mounts[i].Options = []string{"rbind", "rprivate"}
	return nil
}
