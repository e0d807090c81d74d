//go:build linux

package ordinary

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// base is the name of the lowest image in the Dockerfiles, release the release of its packages.
const (
	base    = "debian:bookworm"
	release = "bookworm"
	mirror  = "http://deb.debian.org/debian"
)

//go:embed images
var contexts embed.FS

// image is an image built from images/<name>, with the output of a successful run.
type image struct {
	name string
	want string
	// slow images take several hundred MB of packages, and several minutes.
	slow bool
	// from is optional; if not nil, it writes the directory of the build instead of images/<name>.
	from func(dir string) error
}

// images are in the order of their runs.
var images = []image{
	{name: "user", want: "ml of /home/ml in /home/ml/app, data of ml"},
	{name: "packages", want: "Hello, world! Set-user-ID of root:messagebus:4754"},
	{name: "postgres", want: "rows 100000 of postgres at /var/run/postgresql"},
	{name: "nginx", want: "<h1>Welcome to nginx!</h1> by root www-data"},
	{name: "sshd", want: "logged in as guest"},
	{name: "ffmpeg", want: "h264,320,180,20"},
	{name: "blender", want: "rendered 64x36 lit by artist", slow: true},
	{name: "notebook", want: "sum 499500 by jovyan", slow: true},
}

// docker runs the engine's command line client, and returns its output.
func docker(ctx context.Context, host string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+host, "DOCKER_BUILDKIT=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		said := out.Bytes()
		return "", fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, said[max(0, len(said)-2000):])
	}
	return out.String(), nil
}

// build builds an image from its unchanged Dockerfile, through a proxy.
func (i image) build(ctx context.Context, host, proxy, dir, tag string) error {
	at := filepath.Join(dir, i.name)
	if err := i.write(at); err != nil {
		return fmt.Errorf("writing %s: %w", at, err)
	}
	scripts, err := filepath.Glob(filepath.Join(at, "*.sh"))
	for _, s := range scripts { // embedded files have no mode
		err = errors.Join(err, os.Chmod(s, 0o755))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", at, err)
	}
	args := []string{"build", "-q", "--network", "host", "-t", tag}
	for _, name := range []string{"http_proxy", "https_proxy"} {
		args = append(args, "--build-arg", name+"="+proxy)
	}
	_, err = docker(ctx, host, append(args, at)...)
	return err
}

// write writes the directory of the build.
func (i image) write(at string) error {
	if i.from != nil {
		return i.from(at)
	}
	from, err := fs.Sub(contexts, "images/"+i.name)
	if err != nil {
		return err
	}
	return os.CopyFS(at, from)
}

// runs runs an image by docker run, as the reference of a run by Starling.
func (i image) runs(ctx context.Context, host, tag string) error {
	out, err := docker(ctx, host, "run", "--rm", tag)
	if err == nil && !strings.Contains(out, i.want) {
		err = fmt.Errorf("docker run %s: output: got %q, want %q", tag, out, i.want)
	}
	return err
}

// makeBase makes a Debian from packages, once for each user of this machine, and loads it into an engine. The machine's
// local certificates are added, because the builds use its network.
func makeBase(ctx context.Context, host string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, "starling", "images")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(cache, release+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for another process to make %s: %w", base, err)
	}
	archive := filepath.Join(cache, release+"-"+runtime.GOARCH+".tar")
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		if err := bootstrap(ctx, archive); err != nil {
			return fmt.Errorf("making %s: %w", base, err)
		}
	}
	_, err = docker(ctx, host, "import", archive, base)
	return err
}

// bootstrap makes the archive of a Debian with the packages common to all images.
func bootstrap(ctx context.Context, archive string) error {
	dir, err := os.MkdirTemp(filepath.Dir(archive), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const script = `set -e
debootstrap --variant=minbase "$3" "$1/root" "$4"
chroot "$1/root" apt-get clean
rm -rf "$1"/root/var/lib/apt/lists/*
mkdir -p "$1/root/usr/local/share/ca-certificates"
cp /usr/local/share/ca-certificates/*.crt "$1/root/usr/local/share/ca-certificates/" 2>/dev/null || true
tar -c -C "$1/root" --numeric-owner -f "$2.new" . && mv "$2.new" "$2"`
	cmd := exec.CommandContext(ctx, "bash", "-c", script, "bash", dir, archive, release, mirror)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out[max(0, len(out)-2000):])
	}
	return nil
}
