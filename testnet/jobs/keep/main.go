// Command keep is a program with a large checkpoint: it fills the empty directory /ckpt with so many MiB, which follow
// from its seed, and stays until it is stopped. If files are there, it adds none. Built with GOOS=wasip1 GOARCH=wasm.
package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	dir = "/ckpt"
	// shards is the number of files, as of the weights of a model.
	shards = 4
)

func main() {
	fmt.Fprintln(os.Stderr, "keep:", keep(os.Args[1:]))
	os.Exit(1)
}

// keep returns its error only: the program stays.
func keep(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: keep SEED MIB")
	}
	seed, err := strconv.ParseUint(args[0], 10, 8)
	mib, wrong := strconv.Atoi(args[1])
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	fmt.Println("found", len(there), "files")
	if len(there) == 0 {
		if err := fill(byte(seed), int64(mib)<<20); err != nil {
			return err
		}
	}
	for {
		time.Sleep(time.Second)
	}
}

func fill(seed byte, size int64) error {
	content := rand.NewChaCha8([32]byte{seed})
	for i := range shards {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("shard-%d", i)))
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(f, io.LimitReader(content, size/shards), make([]byte, 1<<20))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
