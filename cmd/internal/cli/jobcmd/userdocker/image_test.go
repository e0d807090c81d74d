//go:build unix

package userdocker

import (
	"os"
	"path/filepath"
	"testing"
)

// An image of the engine has its size; other answers of docker are none.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `#!/bin/sh
[ "$1 $2 $3 $4" = "image inspect --format {{.Size}}" ] || exit 2
[ "$DOCKER_HOST" = unix:///engine.sock ] && [ -z "$AWS_SECRET_ACCESS_KEY" ] || exit 3
case $5 in
train:v1) echo 432013312;;
odd:v1) echo many;;
less:v1) echo -1;;
*) echo "No such image: $5" >&2; exit 1;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"PATH": "relative:" + dir + ":/usr/bin:/bin", "DOCKER_HOST": "unix:///engine.sock",
		"AWS_SECRET_ACCESS_KEY": "hush"}
	for image, want := range map[string]int64{"train:v1": 432013312, "odd:v1": -1, "less:v1": -1, "other:v1": -1,
		"-v": -1} {
		size, ok := Image(t.Context(), func(name string) string { return env[name] }, image)
		if ok != (want >= 0) || ok && size != want {
			t.Errorf("%s: got %d, %v, want %d", image, size, ok, want)
		}
	}
	if size, ok := Image(t.Context(), func(string) string { return "" }, "train:v1"); ok {
		t.Errorf("without docker: got %d", size)
	}
}
