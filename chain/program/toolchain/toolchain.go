// Package toolchain builds the on-chain program from its source with Debian's Rust compiler and LLVM: no root, no
// Solana tools. `.ci/deps rust` unpacks the packages into the user's cache.
//
//	src/*.rs ─rustc─▶ program.bc ┐
//	                             ├─llvm-link─▶ opt ─▶ llc ─▶ program.o ─sbpf.Link─▶ starling.so
//	core ─────rustc─▶ core.bc ───┘               ir.go: repairs code that LLVM's BPF cannot do
//
// Core, Rust's library without an operating system, is built once for each compiler and kept beside it.
package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/chain/program/sbpf"
)

// ErrMissing: there is no compiler.
var ErrMissing = errors.New("no Rust compiler for the on-chain program; " +
	"run .ci/deps rust on Debian 12 or later, which unpacks one")

// Toolchain is a compiler that works.
type Toolchain struct {
	root    string // of the unpacked packages
	rustc   string
	llvm    string // folder of its tools
	version string
}

const (
	coreSource     = "usr/src/rustc-*/library/core/src/lib.rs"
	builtinsSource = "#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![no_std]\n#![allow(internal_features)]\n"
	maxOutput      = 4000 // bytes of a tool's complaints that are shown
)

// settings of rustc, machine of LLVM's tools: BPF of version 2 has no 32-bit arithmetic; Solana's machine allows
// unaligned reads.
var (
	settings = []string{"--target", "bpfel-unknown-none", "-Zunstable-options", "-Cpanic=immediate-abort",
		"-Copt-level=3", "-Ccodegen-units=1", "-Cdebuginfo=0", "-Coverflow-checks=on"}
	machine = []string{"-march=bpfel", "-mcpu=v2", "-mattr=+allows-misaligned-mem-access"}
)

// Dir is where `.ci/deps rust` unpacks: $XDG_CACHE_HOME/starling/rust.
func Dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	return filepath.Join(base, "starling", "rust"), nil
}

// Find finds the compiler in the cache and reads its version. It returns ErrMissing if the cache has no compiler.
func Find(ctx context.Context) (*Toolchain, error) {
	root, err := Dir()
	if err != nil {
		return nil, err
	}
	t := &Toolchain{root: root, rustc: filepath.Join(root, "usr", "bin", "rustc")}
	llc, err := filepath.Glob(filepath.Join(root, "usr", "lib", "llvm-*", "bin", "llc"))
	if err != nil || len(llc) != 1 {
		return nil, ErrMissing
	}
	t.llvm = filepath.Dir(llc[0])
	rustc, err := t.run(ctx, "", t.rustc, "--version")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrMissing, err)
	}
	llvm, err := t.run(ctx, "", llc[0], "--version")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrMissing, err)
	}
	first, _, _ := strings.Cut(llvm, "\n")
	t.version = strings.TrimSpace(rustc) + ", " + strings.TrimSpace(first)
	return t, nil
}

// Version names compiler and LLVM; the same version makes the same bytes.
func (t *Toolchain) Version() string { return t.version }

// Build compiles the crate in folder crate and links it.
func (t *Toolchain) Build(ctx context.Context, crate string, v sbpf.Version) ([]byte, error) {
	object, err := t.Compile(ctx, crate)
	if err != nil {
		return nil, err
	}
	so, err := sbpf.Link(object, v)
	if err != nil {
		return nil, fmt.Errorf("linking: %w", err)
	}
	return so, nil
}

// Compile makes the relocatable object of the crate in folder crate.
func (t *Toolchain) Compile(ctx context.Context, crate string) ([]byte, error) {
	core, err := t.core(ctx)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "starling-program-")
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	defer os.RemoveAll(work)
	file := func(name string) string { return filepath.Join(work, name) }
	rustc := append([]string{"--crate-name", "starling", "--crate-type", "lib", "--edition", "2021"}, settings...)
	rustc = append(rustc, "-Dwarnings", "--remap-path-prefix", core+"=/core", "--extern",
		"noprelude:core="+filepath.Join(core, "libcore.rmeta"), "--extern",
		"noprelude:compiler_builtins="+filepath.Join(core, "libcompiler_builtins.rmeta"), "-L", core, "--emit",
		"llvm-bc="+file("program.bc"), filepath.Join("src", "lib.rs"))
	steps := []step{
		{append([]string{t.rustc}, rustc...), "", nil},
		{[]string{t.tool("llvm-link"), file("program.bc"), filepath.Join(core, "core.bc"), "-o", file("linked.bc")}, "",
			nil},
		{append([]string{t.tool("opt"), "-S", "-passes=internalize,globaldce",
			"-internalize-public-api-list=entrypoint", file("linked.bc"), "-o", file("used.ll")}, machine...),
			file("used.ll"), callable},
		// -O2, as -O3 turns data behind pointers into arguments, of which a function here has at most five.
		{append([]string{t.tool("opt"), "-S", "-passes=default<O2>,globaldce", file("used.ll"), "-o", file("small.ll")},
			machine...), file("small.ll"), afterwards},
		{append([]string{t.tool("llc"), "-O2", "-relocation-model=static", "-bpf-stack-size=4096",
			"-bpf-min-jump-table-entries=1000000", "-filetype=obj", file("small.ll"), "-o", file("program.o")},
			machine...), "", nil},
	}
	for _, s := range steps {
		if _, err := t.run(ctx, crate, s.command[0], s.command[1:]...); err != nil {
			return nil, err
		}
		if s.rewrite == nil {
			continue
		}
		if err := rewriteFile(s.file, s.rewrite); err != nil {
			return nil, err
		}
	}
	object, err := os.ReadFile(file("program.o"))
	if err != nil {
		return nil, fmt.Errorf("reading the compiled program: %w", err)
	}
	return object, nil
}

// step runs a tool, and then rewrites a file that it wrote.
type step struct {
	command []string
	file    string
	rewrite func(string) (string, error)
}

func rewriteFile(path string, rewrite func(string) (string, error)) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading LLVM's output: %w", err)
	}
	after, err := rewrite(string(before))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
		return fmt.Errorf("changing LLVM's output: %w", err)
	}
	return nil
}

// core is the folder of the built core library.
func (t *Toolchain) core(ctx context.Context) (string, error) {
	name := sha256.Sum256([]byte(t.version + builtinsSource + strings.Join(settings, " ")))
	dir := filepath.Join(t.root, "core-"+hex.EncodeToString(name[:8]))
	if _, err := os.Stat(filepath.Join(dir, "core.bc")); err == nil {
		return dir, nil
	}
	source, err := filepath.Glob(filepath.Join(t.root, coreSource))
	if err != nil || len(source) != 1 {
		return "", ErrMissing
	}
	next, err := os.MkdirTemp(t.root, "core.new-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the core library: %w", err)
	}
	defer os.RemoveAll(next)
	library := filepath.Join(t.root, "usr", "src")
	args := append([]string{"--crate-name", "core", "--crate-type", "lib", "--edition", "2024", "--cap-lints", "allow",
		"--remap-path-prefix", library + "=/rust", "--emit",
		"metadata=" + filepath.Join(next, "libcore.rmeta") + ",llvm-bc=" + filepath.Join(next, "core.bc"), source[0]},
		settings...)
	if _, err := t.run(ctx, next, t.rustc, args...); err != nil {
		return "", fmt.Errorf("building the core library: %w", err)
	}
	// rustc needs the crate with the compiler's support functions by name. The functions that our program uses are in
	// its builtins.rs.
	if err := os.WriteFile(filepath.Join(next, "builtins.rs"), []byte(builtinsSource), 0o644); err != nil {
		return "", fmt.Errorf("building the core library: %w", err)
	}
	args = append([]string{"--crate-name", "compiler_builtins", "--crate-type", "lib", "--edition", "2024", "--extern",
		"noprelude:core=libcore.rmeta", "--emit", "metadata=libcompiler_builtins.rmeta", "builtins.rs"}, settings...)
	if _, err := t.run(ctx, next, t.rustc, args...); err != nil {
		return "", fmt.Errorf("building the core library: %w", err)
	}
	// Another process may have been quicker; its result is the same.
	if err := os.Rename(next, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("keeping the core library: %w", err)
	}
	return dir, nil
}

func (t *Toolchain) tool(name string) string { return filepath.Join(t.llvm, name) }

// run runs one tool and returns its output. Its error output is in the error.
func (t *Toolchain) run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(t.root, "usr", "lib", "x86_64-linux-gnu"),
		"RUSTC_BOOTSTRAP=1")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(complaints.String())
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, text[:min(len(text), maxOutput)])
	}
	return out.String(), nil
}
