package blob

import "golang.org/x/sys/unix"

// free gives what the disk that dir is on has free and in all, in bytes; false where that cannot be seen.
func free(dir string) (left, all int64, ok bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, 0, false
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, true
}
