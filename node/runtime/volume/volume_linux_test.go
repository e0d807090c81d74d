package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// needVolumes skips where there are none.
func needVolumes(t testing.TB) {
	t.Helper()
	if err := Try(context.Background(), t.TempDir(), os.Getpid()); errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// made is a volume of this many bytes that the test's end takes away.
func made(t testing.TB, bytes int64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a volume")
	t.Cleanup(func() {
		if err := Release(dir); err != nil {
			t.Error(err)
		}
	})
	if err := Make(context.Background(), dir, bytes); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fill writes files of this many bytes until that fails.
func fill(dir string, bytes int64) (files int, written int64, err error) {
	for ; ; files++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(files)))
		if err != nil {
			return files, written, err
		}
		n, err := io.CopyN(f, zeros{}, bytes)
		err = errors.Join(err, f.Close())
		if written += n; err != nil {
			return files, written, err
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestAttackVolumeIsFilled(t *testing.T) {
	t.Parallel()
	needVolumes(t)
	dir := made(t, 8*mib)
	_, written, err := fill(dir, mib)
	if !errors.Is(err, unix.ENOSPC) || written < 8*mib || written > Size(8*mib) {
		t.Errorf("%d bytes were written, then %v", written, err)
	}
}

func TestAttackVolumeFullOfEmptyFiles(t *testing.T) {
	t.Parallel()
	needVolumes(t)
	dir := made(t, 8*mib)
	files, _, err := fill(dir, 0)
	if !errors.Is(err, unix.ENOSPC) || int64(files) < Files(8*mib)-16 || int64(files) > Files(8*mib)+64 {
		t.Errorf("%d files were made, then %v", files, err)
	}
}

// A chain of directories that no removal could walk is gone with its volume, as is what somebody still has open.
func TestAttackVolumeCannotBeEmptied(t *testing.T) {
	t.Parallel()
	needVolumes(t)
	dir := made(t, 8*mib)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	held, err := root.Create("held")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := root.MkdirAll(strings.Repeat("d/", 500), 0); err != nil && !errors.Is(err, unix.EACCES) {
		t.Fatal(err)
	}
	if err := Release(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Error(err)
	}
}

// A process that makes volumes is killed again and again; whatever it was doing, one Release leaves nothing.
func TestVolumesOfKilledProcesses(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(killedEnv); dir != "" {
		for i := 0; ; i++ {
			_ = Make(context.Background(), filepath.Join(dir, fmt.Sprint(i)), mib)
			fmt.Println(i)
		}
	}
	needVolumes(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range 8 {
		below := filepath.Join(dir, fmt.Sprint(i))
		cmd := exec.Command(self, "-test.run=^TestVolumesOfKilledProcesses$")
		cmd.Env = append(os.Environ(), killedEnv+"="+below)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 1))                    // one has been made, or could not be
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // each at another place
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		mounted, err := Mounted(below)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(mounted)
		if err := Release(below); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := Mounted(dir); len(left) > 0 || err != nil {
		t.Errorf("%v are still there, %v", left, err)
	}
	if seen == 0 {
		t.Error("no process made a volume")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

const killedEnv = "STARLING_TEST_VOLUMES"

func TestVolumeWithoutRoom(t *testing.T) {
	t.Parallel()
	needVolumes(t)
	dir := filepath.Join(t.TempDir(), "v")
	if err := Make(t.Context(), dir, 1<<50); !errors.Is(err, ErrNoRoom) {
		t.Error(err)
	}
	if left, err := Mounted(dir); len(left) > 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}

func TestUnescape(t *testing.T) {
	t.Parallel()
	if got := Unescape(`/a\040b\134040\011c`); got != "/a b\\040\tc" {
		t.Errorf("%q", got)
	}
}

// BenchmarkMake is what a volume of the usual size costs before a program starts.
func BenchmarkMake(b *testing.B) {
	needVolumes(b)
	dir := b.TempDir()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		v := filepath.Join(dir, fmt.Sprint(i))
		began := time.Now()
		if err := Make(b.Context(), v, 1<<30); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		if err := Release(v); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
}

// A kept volume has its content after it was unmounted, as after a restart of the machine, and the same limits.
func TestKeptVolume(t *testing.T) {
	t.Parallel()
	needVolumes(t)
	home := t.TempDir()
	dir, file := filepath.Join(home, "data"), filepath.Join(home, "data.img")
	t.Cleanup(func() {
		if err := Release(home); err != nil {
			t.Error(err)
		}
	})
	if err := Keep(t.Context(), dir, file, 8*mib); err != nil {
		t.Fatal(err)
	}
	if err := Keep(t.Context(), filepath.Join(home, "other"), file, mib); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second volume in one file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Release(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one finds it mounted
		if err := Remount(dir, file); err != nil {
			t.Fatal(err)
		}
	}
	if mounted, err := Mounted(dir); err != nil || len(mounted) != 1 {
		t.Errorf("mounted: %v, %v", mounted, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(b) != "content" {
		t.Errorf("read %q, %v", b, err)
	}
	if _, written, err := fill(dir, mib); !errors.Is(err, unix.ENOSPC) || written < 7*mib || written > Size(8*mib) {
		t.Errorf("%d bytes were written, then %v", written, err)
	}
}
