package ociruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Main is the OCI runtime when the binary was started as one; otherwise it returns at once. Call it first in main.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != Subcommand {
		return
	}
	c := parse(os.Args[2:])
	err := run(c)
	fmt.Fprintln(os.Stderr, "starling:", err)
	c.report(err)
	os.Exit(1)
}

// command is a command line of runc.
type command struct {
	args    []string
	creates bool   // a container
	bundle  string // its directory
	log     string // file for errors, in JSON; "" if none
}

// parse finds the parts of a command line that matter here: an engine writes each option and its value as two words.
func parse(args []string) command {
	c := command{args: args, bundle: "."}
	for i, a := range args {
		value := ""
		if i+1 < len(args) {
			value = args[i+1]
		}
		switch a {
		case "create", "run":
			c.creates = true
		case "--bundle", "-b":
			c.bundle = value
		case "--log":
			c.log = value
		}
	}
	return c
}

// run becomes runc, and returns only when that fails.
func run(c command) error {
	runc, err := findRunc()
	if err != nil {
		return err
	}
	if c.creates {
		if err := prepare(c); err != nil {
			return fmt.Errorf("preparing container: %w", err)
		}
	}
	// The calling thread may have its own mount namespace, in which runc must run.
	err = unix.Exec(runc, append([]string{runc}, c.args...), os.Environ())
	return fmt.Errorf("starting %s: %w", runc, err)
}

// findRunc returns the path of runc, which may be missing in the PATH of a service.
func findRunc() (string, error) {
	if path, err := exec.LookPath("runc"); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, "runc")); err == nil {
			return path, nil
		}
	}
	return "", errors.New("runc: not found in PATH")
}

// report writes an error to the file from which the engine reads runc's errors.
func (c command) report(err error) {
	if c.log == "" {
		return
	}
	line, failed := json.Marshal(map[string]string{
		"level": "error", "msg": "starling: " + err.Error(), "time": time.Now().Format(time.RFC3339),
	})
	if failed != nil {
		return
	}
	f, failed := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if failed != nil {
		return
	}
	_, _ = f.Write(append(line, '\n'))
	_ = f.Close()
}
