// Package sftpd is the SFTP server in the sandbox of a program: the guard's binary, which every container has, attached
// as a program with the buyer's stream as standard input and output. It has the rights of the image's user and nothing
// more. Relative paths begin at the program's working directory.
package sftpd

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"

	"github.com/starling-network/starling/node/runtime"
)

// Subcommand is the first argument of a binary that is to be the server.
const Subcommand = "sftp"

// Args returns the command of the server in a container.
func Args() []string { return []string{runtime.GuardPath, Subcommand} }

// Main is the server, when the binary was started as one; otherwise it returns at once. Call it first in main.
func Main() {
	if len(os.Args) != 2 || os.Args[1] != Subcommand {
		return
	}
	if err := Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve serves the files of this process's user until in ends.
func Serve(in io.Reader, out io.WriteCloser) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("sftp: working directory: %w", err)
	}
	s, err := sftp.NewServer(stdio{in, out}, sftp.WithServerWorkingDirectory(dir))
	if err != nil {
		return fmt.Errorf("sftp: %w", err)
	}
	defer s.Close()
	if err := s.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("sftp: %w", err)
	}
	return nil
}

type stdio struct {
	io.Reader
	io.WriteCloser
}
