// Package entries counts the files and folders that an archive makes, for all that unpack archives of strangers.
package entries

import (
	"path"
	"strings"
)

// Fresh is how many files and folders an entry of an archive makes after another: itself, and the folders above it that
// are not above the other nor the other itself. An archive that comes back to a folder has it counted again.
func Fresh(name, last string) int {
	n := 1
	for dir := path.Dir(name); dir != "." && dir != last && !strings.HasPrefix(last, dir+"/"); dir = path.Dir(dir) {
		n++
	}
	return n
}
