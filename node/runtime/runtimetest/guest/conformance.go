package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// CodeNoSpace is the exit code of the commands that meet a full disk.
const CodeNoSpace = 28

// StopFile is runtime.StopFile, repeated here because a guest imports nothing of the peer; a test holds them equal.
const StopFile = "/run/starling/stop"

// Conformance is the program of the conformance test. Its first argument is the action:
//
//	hello ARG…         print the arguments, then "err" on stderr
//	environ            print the environment, sorted
//	exit N             exit with N
//	copy SRC DST       copy a file
//	write PATH         create a file; 1 if that fails
//	fill PATH          write until it fails; CodeNoSpace if the disk is full
//	refill PATH MiB    write and remove a file of that size four times
//	hog                take memory without end
//	spin               compute without end and without a system call
//	burn N             compute for about N ms
//	polite             compute until asked to stop, then print "bye" and exit 3
//	resign N PATH      compute for about N ms or until asked to stop, and write down which
//	log MiB            print that much
//	gate PATH          print "first", wait until PATH exists, print "second"
//	dial ADDR          0 if the address cannot be reached
//	escape PATH…       try to read and to write each; 1 and the path's name if one of them works
//	cat                copy the standard input to the standard output
//	show PATH          print a file
//	serve PORT         echo the data received at this port
//	random DIR         print the clock twice, two random numbers and a directory
func Conformance(p Process) int {
	args := p.Args()
	if len(args) == 0 {
		return fail(p, errors.New("no command"))
	}
	cmd, args := args[0], append(args[1:], "", "")
	switch cmd {
	case "hello":
		fmt.Fprintln(p.Stdout(), "hello", strings.Join(args[:len(args)-2], " "))
		fmt.Fprintln(p.Stderr(), "err")
	case "environ":
		env := p.Environ()
		slices.Sort(env)
		fmt.Fprintln(p.Stdout(), strings.Join(env, "\n"))
	case "exit":
		n, _ := strconv.Atoi(args[0])
		return n
	case "copy":
		b, err := ReadFile(p, args[0], 1<<20)
		if err == nil {
			err = WriteFile(p, args[1], b)
		}
		return fail(p, err)
	case "write":
		return fail(p, WriteFile(p, args[0], []byte("x")))
	case "fill":
		return fail(p, fill(p, args[0], 1<<40))
	case "refill":
		mib, _ := strconv.ParseInt(args[1], 10, 64)
		for range 4 {
			if err := fill(p, args[0], mib<<20); err != nil {
				return fail(p, err)
			}
			if err := p.Remove(args[0]); err != nil {
				return fail(p, err)
			}
		}
	case "escape":
		return escape(p, args[:len(args)-2])
	case "random":
		return random(p, args[0])
	case "cat":
		_, err := io.Copy(p.Stdout(), p.Stdin())
		return fail(p, err)
	case "show":
		b, err := ReadFile(p, args[0], 1<<20)
		_, _ = p.Stdout().Write(b)
		return fail(p, err)
	case "serve":
		port, _ := strconv.ParseUint(args[0], 10, 16)
		return fail(p, p.Listen(uint16(port), func(c io.ReadWriteCloser) {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}))
	default:
		return endless(p, cmd, args)
	}
	return 0
}

func endless(p Process, cmd string, args []string) int {
	switch cmd {
	case "hog":
		for {
			p.Grow(8)
		}
	case "spin":
		for {
			p.Burn()
		}
	case "burn":
		n, _ := strconv.Atoi(args[0])
		for range n {
			p.Burn()
		}
	case "polite":
		for !Exists(p, StopFile) {
			p.Burn()
		}
		fmt.Fprintln(p.Stdout(), "bye")
		return 3
	case "resign":
		n, _ := strconv.Atoi(args[0])
		asked := false
		for i := 0; i < n && !asked; i++ {
			asked = Exists(p, StopFile)
			p.Burn()
		}
		return fail(p, WriteFile(p, args[1], fmt.Append(nil, "asked to stop: ", asked)))
	case "nan": // the bits of 0/0, which the processor chooses
		zero, err := strconv.ParseFloat(args[0], 64)
		if err != nil {
			return fail(p, err)
		}
		fmt.Fprintf(p.Stdout(), "%x\n", math.Float64bits(zero/zero))
	case "log":
		mib, _ := strconv.Atoi(args[0])
		line := append(bytes.Repeat([]byte("x"), 1023), '\n')
		for range mib << 10 {
			if _, err := p.Stdout().Write(line); err != nil {
				return fail(p, err)
			}
		}
	case "gate":
		fmt.Fprintln(p.Stdout(), "first")
		for !Exists(p, args[0]) {
			p.Burn()
		}
		fmt.Fprintln(p.Stdout(), "second")
	case "dial":
		if err := p.Dial(args[0]); err == nil {
			return fail(p, errors.New("reached "+args[0]))
		}
	default:
		return fail(p, fmt.Errorf("unknown command %q", cmd))
	}
	return 0
}

func fail(p Process, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(p.Stderr(), err)
	if errors.Is(err, syscall.ENOSPC) {
		return CodeNoSpace
	}
	return 1
}

func fill(p Process, name string, size int64) error {
	f, err := p.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	chunk := make([]byte, 64<<10)
	for done := int64(0); done < size && err == nil; done += int64(len(chunk)) {
		_, err = f.Write(chunk)
	}
	return errors.Join(err, f.Close())
}

func escape(p Process, paths []string) int {
	code := 0
	for _, name := range paths {
		if b, err := ReadFile(p, name, 100); err == nil {
			fmt.Fprintf(p.Stdout(), "read %s: %q\n", name, b)
			code = 1
		}
		if f, err := p.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			_, _ = io.WriteString(f, "escaped")
			_ = f.Close()
			fmt.Fprintf(p.Stdout(), "wrote %s\n", name)
			code = 1
		}
	}
	return code
}

func random(p Process, dir string) int {
	names, err := p.ReadDir(dir)
	if err != nil {
		return fail(p, err)
	}
	a, b := p.Now(), p.Now()
	fmt.Fprintln(p.Stdout(), a.UnixNano(), b.UnixNano(), p.Random(), p.Random(), names)
	return 0
}
