//go:build !unix

package home

import "os"

// tryLock leaves it to the journal, which one process has open at a time.
func tryLock(*os.File) (bool, error) { return true, nil }
