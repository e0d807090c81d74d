// Package entries counts the files and folders that an archive makes, for all that unpack archives of strangers.
package entries

import (
	"path"
	"strings"
)

// Fresh is the number of files and folders that an archive entry creates after another: itself, and its parent folders
// that the other does not have. An archive that comes back to a folder has it counted again.
func Fresh(name, last string) int {
	n := 1
	for dir := path.Dir(name); dir != "." && dir != last && !strings.HasPrefix(last, dir+"/"); dir = path.Dir(dir) {
		n++
	}
	return n
}
