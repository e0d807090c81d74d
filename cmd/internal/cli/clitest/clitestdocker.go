package clitest

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// PullSecret is the registry password of these tests: it must be in no error, log, journal or answer.
const PullSecret = "hush-registry-password"

// helpers are credential helpers as docker's: asked with "get", they read a registry and print JSON.
var helpers = map[string]string{
	"good": `read -r r; [ "$1" = get ] || exit 9
case "$r" in
registry.example|https://index.docker.io/v1/)
  echo "{\"ServerURL\":\"$r\",\"Username\":\"ada\",\"Secret\":\"` + PullSecret + `\"}" ;;
*) echo "credentials not found in native keychain"; exit 1 ;;
esac`,
	"token":   `echo '{"Username":"<token>","Secret":"` + PullSecret + `"}'`,
	"empty":   `echo '{}'`,
	"garbage": `echo 'your password is ` + PullSecret + ` {'`,
	"broken":  `echo '{"Username":"ada","Secret":"` + PullSecret + `"}'; echo '` + PullSecret + `' >&2; exit 3`,
	// The child that sleeps outlives these, and holds their output open.
	"hangs":  `echo '{"Username":"ada","Secret":"` + PullSecret + `"}'; sleep 600 & echo $! >>"$0.children"; wait`,
	"leaves": `echo '{"Username":"ada","Secret":"` + PullSecret + `"}'; sleep 600 & echo $! >>"$0.children"`,
	"floods": `while :; do echo '` + PullSecret + strings.Repeat("x", 1000) + `'; done`,
}

// HelperDir writes the helpers and returns a PATH on which they are.
func HelperDir(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("these helpers are shell scripts, which Windows does not run")
	}
	dir := t.TempDir()
	for name, body := range helpers {
		if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+body+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-plain"), []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // their processes and files
		files, _ := filepath.Glob(filepath.Join(dir, "*.children"))
		for _, f := range files {
			b, _ := os.ReadFile(f)
			for pid := range strings.FieldsSeq(string(b)) {
				if n, err := strconv.Atoi(pid); err == nil {
					if p, err := os.FindProcess(n); err == nil {
						_ = p.Kill()
					}
				}
			}
		}
	})
	return "relative:" + t.TempDir() + ":" + dir
}
