package workload

import (
	"io/fs"
	"path/filepath"
)

// DiskUse returns how many bytes the files beneath dir have.
func DiskUse(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone, or not there: it takes nothing
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
