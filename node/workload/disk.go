package workload

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/node/runtime"
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

// Used returns how many bytes the inputs and the writable files of a running program have. It returns runtime.ErrDeep
// for directories too deep in each other.
func (s Stage) Used() (sum int64, err error) {
	for _, dir := range []string{s.disk(), filepath.Join(s.Dir, "mnt")} {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		err = runtime.Walk(root, func(_ string, info fs.FileInfo) error {
			if info.Mode().IsRegular() {
				sum += info.Size()
			}
			return nil
		})
		if err = errors.Join(err, root.Close()); err != nil {
			return 0, err
		}
	}
	return sum, nil
}
