// Package keeper is the program of a container that waits for its user: starling run -it. The runtime puts the command
// that the container would run otherwise after it, and a terminal is attached to that command:
//
//	guard keep COMMAND…    runs until SIGTERM
//	guard enter            becomes the COMMAND of the container's keeper, or /bin/sh if it has none
package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// codeMissing is the exit code if the command is not in the image, as of a shell.
	codeMissing = 127
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Main is the keeper or its command, when the binary was started as one; otherwise it returns at once. Call it first in
// main.
func Main() {
	switch {
	case len(os.Args) >= 2 && os.Args[1] == runtime.KeepCommand:
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, os.Interrupt)
		<-end
		os.Exit(0)
	case len(os.Args) == 2 && os.Args[1] == runtime.EnterCommand:
		fmt.Fprintln(os.Stderr, "starling:", enter("/proc"))
		os.Exit(codeMissing)
	}
}

// enter replaces this process by the keeper's command. It returns an error or never.
func enter(proc string) error {
	argv, err := command(proc)
	if err != nil {
		return err
	}
	if os.Getenv("PATH") == "" {
		_ = os.Setenv("PATH", defaultPath)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return fmt.Errorf("%s: not in the image", argv[0])
	}
	return fmt.Errorf("running %s: %w", argv[0], become(path, argv))
}

// command is the command of the keeper among the processes of a proc file system.
func command(proc string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return nil, err
	}
	prefix := []byte(strings.Join(runtime.Keeper(), "\x00") + "\x00")
	for _, f := range files {
		b, err := os.ReadFile(f)
		rest, found := bytes.CutPrefix(b, prefix)
		if err != nil || !found {
			continue // it may have ended
		}
		if len(rest) == 0 {
			return []string{"/bin/sh"}, nil
		}
		return strings.Split(strings.TrimSuffix(string(rest), "\x00"), "\x00"), nil
	}
	return nil, errors.New("the job's program is no keeper: it was not started by run -it")
}
