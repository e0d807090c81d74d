//go:build unix

package userdocker

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script is a docker with some images, of which it saves one.
const script = `#!/bin/sh
[ "$DOCKER_HOST" = unix:///engine.sock ] && [ -z "$AWS_SECRET_ACCESS_KEY" ] || exit 3
id=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
if [ "$1 $2 $3" = "image save $id" ]; then echo archive; exit 0; fi
if [ "$1 $2" = "image save" ]; then echo half; echo "no space left" >&2; exit 1; fi
[ "$1 $2 $3 $4" = "image inspect --format {{.Id}} {{.Size}}" ] || exit 2
case $5 in
train:v1) echo $id 432013312;;
odd:v1) echo $id many;;
less:v1) echo $id -1;;
short:v1) echo 0123 12;;
*) echo "No such image: $5" >&2; exit 1;;
esac
`

const id = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// user is an environment with the script.
func user(t *testing.T) Env {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"PATH": "relative:" + dir + ":/usr/bin:/bin", "DOCKER_HOST": "unix:///engine.sock",
		"AWS_SECRET_ACCESS_KEY": "hush"}
	return func(name string) string { return env[name] }
}

func nothing(string) string { return "" }

// An image of the engine has its ID and size; other answers of docker are none.
func TestImage(t *testing.T) {
	t.Parallel()
	env := user(t)
	for image, want := range map[string]Found{"train:v1": {id, 432013312}, "odd:v1": {}, "less:v1": {}, "short:v1": {}, "other:v1": {}, "-v": {}} {
		found, ok := Image(t.Context(), env, image)
		if ok != (want.ID != "") || ok && found != want {
			t.Errorf("%s: got %+v, %v, want %+v", image, found, ok, want)
		}
	}
	if found, ok := Image(t.Context(), nothing, "train:v1"); ok {
		t.Errorf("without docker: got %+v", found)
	}
}

// An archive is read to its end. Docker's failure is an error of Close, unless the reader gave up.
func TestSave(t *testing.T) {
	t.Parallel()
	env := user(t)
	for of, want := range map[string]string{id: "", "sha256:other": "no space left"} {
		for _, all := range []bool{true, false} {
			r, err := Save(t.Context(), env, of)
			if err != nil {
				t.Fatal(err)
			}
			if all {
				if b, err := io.ReadAll(r); err != nil || len(b) == 0 {
					t.Errorf("%s: read %q, %v", of, b, err)
				}
			}
			err = r.Close()
			if failed := all && want != ""; (err != nil) != failed || failed && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, read to its end %v: %v", of, all, err)
			}
		}
	}
	if _, err := Save(t.Context(), nothing, id); err == nil {
		t.Error("saved without docker")
	}
}
