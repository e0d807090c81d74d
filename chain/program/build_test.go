package program_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/sbpf"
	"github.com/starling-network/starling/chain/program/toolchain"
	"github.com/starling-network/starling/testnet/programtest"
)

// compiler is the one in the cache, or the test is skipped.
func compiler(t *testing.T) *toolchain.Toolchain {
	t.Helper()
	tools, err := toolchain.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	return tools
}

// TestCommitted: the sum beside the program is the program's.
func TestCommitted(t *testing.T) {
	t.Parallel()
	sum, err := os.ReadFile(toolchain.SumFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := toolchain.Sum(program.ELF); string(sum) != want {
		t.Errorf("%s says %s, the program's is %s", toolchain.SumFile, sum, want)
	}
}

// compiled is the program of the source as it is in another folder, before it is linked.
var compiled = sync.OnceValues(func() ([]byte, error) {
	tools, err := toolchain.Find(context.Background())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "starling-rebuild-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	elsewhere := filepath.Join(dir, "a folder of another name")
	if err := os.CopyFS(filepath.Join(elsewhere, "src"), os.DirFS("src")); err != nil {
		return nil, err
	}
	return tools.Compile(context.Background(), elsewhere)
})

// linked is that program in a format.
func linked(t *testing.T, v sbpf.Version) []byte {
	t.Helper()
	object, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := sbpf.Link(object, v)
	if err != nil {
		t.Fatal(err)
	}
	return elf
}

// TestRebuild: the program that is committed is the one that the source makes, byte for byte, wherever the source lies.
func TestRebuild(t *testing.T) {
	t.Parallel()
	tools := compiler(t)
	built := linked(t, sbpf.V0)
	by, err := os.ReadFile(toolchain.VersionFile)
	if err != nil {
		t.Fatal(err)
	}
	if have := tools.Version() + "\n"; have != string(by) {
		t.Skipf("it builds, into %d bytes, but by %swhile the committed one was built by %s: nothing to compare", len(built), have, by)
	}
	if !bytes.Equal(built, program.ELF) {
		t.Errorf("the source makes a program of %d bytes, other than the one committed of %d: run go run ./chain/program/build", len(built), len(program.ELF))
	}
}

// TestV3: the same source in the newer format does the same.
func TestV3(t *testing.T) {
	t.Parallel()
	compiler(t)
	e := programtest.LiteSVM(t)
	b := newBench(t, e, programtest.Deploy(t, e, linked(t, sbpf.V3)), "anchorer", 10*sol)
	b.anchorAndProve()
	b.refusals()
}

// TestBroken: what the compiler and the linker refuse is said, and nothing is written.
func TestBroken(t *testing.T) {
	t.Parallel()
	tools := compiler(t)
	for name, c := range map[string]struct{ source, want string }{
		"no Rust":           {"fn", "rustc"},
		"writable data":     {"#![no_std]\n" + handler + "static mut N: u64 = 1;\n" + entry("unsafe { N = N.wrapping_add(a as u64); N }"), ".data"},
		"unknown syscall":   {"#![no_std]\n" + handler + "extern \"C\" { fn sol_secret(a: *mut u8) -> u64; }\n" + entry("unsafe { sol_secret(a) }"), `"sol_secret"`},
		"a frame too large": {"#![no_std]\n" + handler + "extern \"C\" { fn sol_memset_(a: *mut u8, b: u8, n: u64); }\n" + entry("let mut b = [0u8; 5000]; unsafe { sol_memset_(b.as_mut_ptr(), 1, 5000) }; b[a as usize % 5000] as u64"), "stack"},
		"128 bits":          {"#![no_std]\n" + handler + "extern \"C\" { fn sol_log_(a: u128) -> u64; }\n" + entry("unsafe { sol_log_(a as u128 * a as u128) }"), "llc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crate := t.TempDir()
			if err := os.Mkdir(filepath.Join(crate, "src"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(crate, "src", "lib.rs"), []byte(c.source), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := tools.Build(t.Context(), crate, sbpf.V0); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d bytes, %v, want an error with %q", len(out), err, c.want)
			}
		})
	}
}

const handler = "#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n"

func entry(body string) string {
	return "#[no_mangle] pub extern \"C\" fn entrypoint(a: *mut u8) -> u64 { " + body + " }\n"
}

// minCargo is rust-version of Cargo.toml.
const minCargo = 84

// TestOnTheHost runs the program's own tests, of the parts that need no chain.
func TestOnTheHost(t *testing.T) {
	t.Parallel()
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		t.Skip("no cargo: the tests in Rust are not run")
	}
	if err := exec.CommandContext(t.Context(), "cc", "--version").Run(); err != nil {
		t.Skip("no C compiler to link with: the tests in Rust are not run")
	}
	version, err := exec.CommandContext(t.Context(), cargo, "--version").Output()
	var minor int
	if _, scan := fmt.Sscanf(string(version), "cargo 1.%d.", &minor); err != nil || scan != nil || minor < minCargo {
		t.Skipf("cargo is %q, 1.%d is needed: the tests in Rust are not run", version, minCargo)
	}
	cmd := exec.CommandContext(t.Context(), cargo, "test", "--quiet", "--offline", "--lib", "--target-dir", t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text := string(out); !strings.Contains(text, "test result: ok.") || strings.Contains(text, " 0 passed") {
		t.Errorf("no test was run:\n%s", text)
	}
}
