//go:build linux

package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func fill(dir string, hidden, careful bool) {
	signal.Ignore(syscall.SIGXFSZ)
	block := make([]byte, 1<<20)
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if hidden {
			_ = os.Remove(f.Name())
		}
		for range 4 {
			if _, err := f.Write(block); err != nil {
				if fmt.Fprintln(os.Stderr, err); careful {
					os.Exit(1)
				}
			}
		}
		if !hidden {
			_ = f.Close()
		}
	}
}

func deny(dir string) {
	sub := filepath.Join(dir, "denied")
	f, err := os.MkdirTemp(dir, "x")
	if err == nil {
		err = os.Rename(f, sub)
	}
	var file *os.File
	if err == nil {
		file, err = os.Create(filepath.Join(sub, "f"))
	}
	if err == nil {
		err = os.Chmod(sub, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	block := make([]byte, 1<<20)
	for {
		_, _ = file.Write(block)
	}
}

func starve(dir string) {
	files := 0
	for ; files < 60_000; files++ {
		f, err := os.Create(filepath.Join(dir, "empty"+strconv.Itoa(files)))
		if err != nil {
			break
		}
		_ = f.Close()
	}
	for i := range min(files, 200) { // room for later files
		_ = os.Remove(filepath.Join(dir, "empty"+strconv.Itoa(i)))
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
			if err != nil {
				return
			}
			defer f.Close()
			for block := make([]byte, 64<<10); err == nil; {
				_, err = f.Write(block)
			}
		})
	}
	wg.Wait()
	fmt.Println(files)
}

func fsync(dir string) {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		n, began := 0, time.Now()
		for ; time.Since(began) < time.Second; n++ {
			if _, err = f.WriteAt([]byte{byte(n)}, int64(n%100)<<12); err == nil {
				err = f.Sync()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		fmt.Println(n)
	}
}

func owned(in, out string) {
	b, err := os.ReadFile(filepath.Join(in, "f"))
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "f"), b, 0o600)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(out, "d"), 0)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(os.Getuid(), os.Getenv("HOME"), os.Getenv("USER"))
}
