package job

import "testing"

// A reference to an image is told from a file by its tag, also where its registry has a port.
func TestIsImage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"python:3.12": true, "localhost:5000/me/app:v1": true, "registry.example:443/a/b/c:latest": true, "ghcr.io/acme/train": true,
		"localhost:5000/me/app": true, "[::1]:5000/app": false, "localhost:port/app": false, "train.wasm": false, "./a:b/c": false, "cid:bafy": false, "docker://alpine": true,
	} {
		if got := IsImage(text); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
