// Package passwd finds the user of a container in the files /etc/passwd and /etc/group of its image, as Docker does.
// The files are untrusted: their size and line lengths are bounded, and malformed lines are skipped.
//
// It reads files only through an fs.FS.
package passwd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxID is the largest user and group of a container.
	MaxID = 1<<16 - 1
	// MaxGroups bounds the supplementary groups, as the kernel of old did.
	MaxGroups = 32
	// maxFile and maxLine bound a file and a line of it, in bytes; the rest is not read.
	maxFile = 4 << 20
	maxLine = 64 << 10
)

// Account is a user with its groups.
type Account struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
	Home     string   // "/" if no file names one
}

// Find returns the account of a USER of an image: a user or "user:group", each a name or a number; "" is root. A number
// needs no entry. Supplementary groups are those of a user that comes without a group. It returns an error if a name is
// not in the files, or a number is larger than MaxID.
func Find(files fs.FS, user string) (Account, error) {
	name, group, grouped := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	a, entry, err := findUser(files, name)
	if err != nil {
		return Account{}, err
	}
	if grouped && group != "" {
		a.GID, err = findGroup(files, group)
		return a, err
	}
	a.Groups, err = groupsOf(files, entry, a.GID)
	return a, err
}

// findUser returns the account of a user without its groups, and its name; "" if it has none.
func findUser(files fs.FS, user string) (Account, string, error) {
	number, err := strconv.ParseUint(user, 10, 64)
	numeric := err == nil
	if numeric && number > MaxID {
		return Account{}, "", fmt.Errorf("user %.40s: out of range: want at most %d", user, MaxID)
	}
	a, name, found := Account{UID: uint32(number), Home: "/"}, "", false
	err = eachEntry(files, "etc/passwd", 7, func(f []string) bool {
		uid, badUser := strconv.ParseUint(f[2], 10, 32)
		gid, badGroup := strconv.ParseUint(f[3], 10, 32)
		if badUser != nil || badGroup != nil || f[0] != user && (!numeric || uid != number) {
			return true
		}
		a, name, found = Account{UID: uint32(uid), GID: uint32(gid), Home: f[5]}, f[0], true
		return false
	})
	switch {
	case err != nil:
		return Account{}, "", fmt.Errorf("user %.40s: %w", user, err)
	case !found && !numeric:
		return Account{}, "", fmt.Errorf("user %.40s: not in /etc/passwd of the image", user)
	case a.UID > MaxID || a.GID > MaxID:
		return Account{}, "", fmt.Errorf("user %.40s: out of range: got %d:%d, want at most %d",
			user, a.UID, a.GID, MaxID)
	}
	if !strings.HasPrefix(a.Home, "/") {
		a.Home = "/"
	}
	return a, name, nil
}

func findGroup(files fs.FS, group string) (uint32, error) {
	number, err := strconv.ParseUint(group, 10, 64)
	numeric, found := err == nil, false
	err = eachEntry(files, "etc/group", 3, func(f []string) bool {
		gid, bad := strconv.ParseUint(f[2], 10, 32)
		if bad != nil || f[0] != group {
			return true
		}
		number, found = gid, true
		return false
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("group %.40s: %w", group, err)
	case !found && !numeric:
		return 0, fmt.Errorf("group %.40s: not in /etc/group of the image", group)
	case number > MaxID:
		return 0, fmt.Errorf("group %.40s: out of range: want at most %d", group, MaxID)
	}
	return uint32(number), nil
}

// groupsOf returns the groups that name a user as a member, in addition to its own.
func groupsOf(files fs.FS, user string, own uint32) (groups []uint32, err error) {
	if user == "" {
		return nil, nil
	}
	err = eachEntry(files, "etc/group", 4, func(f []string) bool {
		gid, bad := strconv.ParseUint(f[2], 10, 32)
		if bad == nil && gid <= MaxID && uint32(gid) != own && !slices.Contains(groups, uint32(gid)) &&
			slices.Contains(strings.Split(f[3], ","), user) {
			groups = append(groups, uint32(gid))
		}
		return len(groups) < MaxGroups
	})
	if err != nil {
		return nil, fmt.Errorf("groups of user %.40s: %w", user, err)
	}
	return groups, nil
}

// eachEntry calls entry with the fields of each line with the given number of fields, until entry returns false. A
// missing file has no lines. Anything but a regular file is an error: it could be endless, or block.
func eachEntry(files fs.FS, name string, fields int, entry func([]string) bool) error {
	f, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading /%s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("reading /%s: not a file", name)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxFile))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		// Members of a group may be missing.
		parts := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(parts) >= fields && parts[0] != "" && !entry(parts) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading /%s: %w", name, err)
	}
	return nil
}
