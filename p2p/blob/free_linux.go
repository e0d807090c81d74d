package blob

import "golang.org/x/sys/unix"

// free returns the free and total bytes of dir's disk, and false if they are unknown.
func free(dir string) (left, all int64, ok bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, 0, false
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, true
}
