package template

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job/jobfile"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	jobText = "apiVersion: v1\nkind: Job\nsmoke: {prints: x}\nspec:\n  image: acme/a:1\n" +
		"  inputs: [{src: data, dst: /in/data}]\n"
	readmeText = "Does something.\nNeeds: nothing.\nExample: starling run --template a\n"
)

// files is a small valid template, with changes; an empty text removes a file.
func files(changes map[string]string) fstest.MapFS {
	all := map[string]string{FileJob: jobText, FileReadme: readmeText, "data/a": "a", "data/b/c": "c", "data-2": "d"}
	maps.Copy(all, changes)
	out := fstest.MapFS{}
	for name, text := range all {
		if text != "" {
			out[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	return out
}

func read(t *testing.T, changes map[string]string) Template {
	t.Helper()
	tm, err := ReadFS("a", files(changes))
	if err != nil {
		t.Fatal(err)
	}
	return tm
}

// Every built-in template is valid, has an example of itself, and its recorded run is of these very files.
func TestBuiltin(t *testing.T) {
	t.Parallel()
	recorded := ranIn(ran)
	for _, name := range BuiltinNames() {
		tm, err := Builtin(name)
		if err != nil {
			t.Error(name, err)
			continue
		}
		d, err := tm.Check()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text := string(tm.File(FileReadme)); !strings.Contains(text, "--template "+name+" ") ||
			!strings.Contains(text, "--max-price ") {
			t.Errorf("%s: no example of it: %s", name, text)
		}
		for _, p := range d.Parameters {
			if p.Required && !strings.Contains(string(tm.File(FileReadme)), "--set "+p.Name+"=") {
				t.Errorf("%s: the example does not set %s", name, p.Name)
			}
		}
		if tm.Ran() && len(d.Smoke.Needs) > 0 {
			t.Errorf("%s: ran here, with needs %q", name, d.Smoke.Needs)
		}
		if _, ok := recorded[name]; ok && !tm.Ran() {
			t.Errorf("%s: the run in ran.txt is of other files: run it again, or remove its line", name)
		}
		delete(recorded, name)
	}
	if len(recorded) > 0 || Record(ran) != ran {
		t.Errorf("ran.txt is not in its form, or has %v", recorded)
	}
	if _, err := Builtin("../builtin/wasm"); err == nil {
		t.Error("a template that is not built in")
	}
}

// Only a template with the recorded digest counts as run.
func TestRecord(t *testing.T) {
	t.Parallel()
	tm, err := Builtin("wasm")
	if err != nil {
		t.Fatal(err)
	}
	line := "wasm " + tm.Digest().String() + "\n"
	other := "wasm " + sign.Sum([]byte("x")).String() + "\n"
	if got := Record(other+"gone "+tm.Digest().String()+"\nrubbish\n", tm); got != line {
		t.Errorf("got %q, want %q", got, line)
	}
	if got := Record(other); got != "" {
		t.Errorf("a changed template: %q", got)
	}
}

// The canonical form is the archive of package blob of the written directory, whatever the order of its names.
func TestArchiveIsBlobs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-b.-]{0,2}[a-b](/[a-b.-]?[a-b]){0,2}`)
		fsys := files(nil)
		for _, n := range rapid.SliceOfN(name, 0, 8).Draw(rt, "names") {
			clash := slices.ContainsFunc(slices.Collect(maps.Keys(fsys)), func(o string) bool {
				return strings.HasPrefix(o+"/", n+"/") || strings.HasPrefix(n+"/", o+"/")
			})
			if !clash {
				fsys[n] = &fstest.MapFile{Data: []byte(n), Mode: 0o755}
			}
		}
		tm, err := ReadFS("a", fsys)
		if err != nil {
			rt.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "a")
		var want bytes.Buffer
		if err := errors.Join(tm.Write(dir), blob.Pack(t.Context(), &want, dir, 1<<20)); err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(tm.Archive(), want.Bytes()) {
			rt.Fatal("another archive than that of package blob")
		}
		back, err := Unpack(t.Context(), "a", tm.Archive(), tm.Digest())
		if err != nil || back.Digest() != tm.Digest() || len(back.files) != len(tm.files) {
			rt.Fatalf("unpacked: %v", err)
		}
		if opened, err := Open(dir); err != nil || opened.Digest() != tm.Digest() {
			rt.Fatalf("opened: %v", err)
		}
	})
}

// Each rule of the files is held.
func TestCheckRefused(t *testing.T) {
	t.Parallel()
	if _, err := read(t, map[string]string{FileDockerfile: "ARG A=1\nfrom a:1\n# x\nRUN a && \\\n  # y\n  b\n" +
		"COPY --chown=a data data-2 /x\nCOPY . /y\nCOPY --from=b /z /z\n"}).Check(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ file, text, want string }{
		{FileJob, "", "job.yaml is missing"},
		{FileJob, strings.Replace(jobText, "src: data", "src: dat", 1), `the file "dat" is missing`},
		{FileJob, strings.Replace(jobText, "acme/a:1", "ACME", 1), "5:10: spec.image"},
		{FileReadme, "", "README.md: 1 lines, want 3"},
		{FileReadme, "a\nNeeds: b\nExample: rm -rf /\n", "README.md: third line"},
		{FileReadme, "a\nb\nExample: starling run --template a\n", "README.md: second line"},
		{FileReadme, strings.Repeat("a", 101) + "\nNeeds: b\nExample: starling run --template a\n", "first line of at most"},
		{FileReadme, "a\x1b[2J\nNeeds: b\nExample: starling run --template a\n", "control characters"},
		{FileDockerfile, "RUN a\n", "Dockerfile:1: got RUN, want FROM first"},
		{FileDockerfile, "# a\n\nFROM a\nRAN a\n", `Dockerfile:4: unknown instruction "RAN"`},
		{FileDockerfile, "FROM a\nCOPY nowhere /a\n", `Dockerfile:2: the file "nowhere" is missing`},
		{FileDockerfile, "FROM a\nCOPY ../../etc/passwd /a\n", "is missing"},
		{FileDockerfile, "FROM a\nCOPY /a\n", "Dockerfile:2: want sources and a destination"},
		{FileDockerfile, "FROM\n", "Dockerfile:1: FROM without arguments"},
		{FileDockerfile, "# nothing\n", "Dockerfile: no FROM"},
	} {
		_, err := read(t, map[string]string{c.file: c.text}).Check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.file, c.text, err, c.want)
		}
	}
}

// A directory with links, devices or too much in it is refused before it is read.
func TestAttackDirectory(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, change func(dir string) error) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "a")
		if err := errors.Join(read(t, nil).Write(dir), change(dir)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(dir string) error{
		"a link to a file outside": func(dir string) error { return os.Symlink(secret, filepath.Join(dir, "link")) },
		"a relative link": func(dir string) error {
			return os.Symlink("../../"+filepath.Base(secret), filepath.Join(dir, "link"))
		},
		"a link to a directory": func(dir string) error { return os.Symlink("/etc", filepath.Join(dir, "data", "etc")) },
		"a link for job.yaml": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, FileJob)), os.Symlink(secret, filepath.Join(dir, FileJob)))
		},
		"a large file":       func(dir string) error { return os.Truncate(filepath.Join(dir, "data-2"), MaxBytes+1) },
		"a huge sparse file": func(dir string) error { return os.Truncate(filepath.Join(dir, "data-2"), 1<<40) },
		"many files": func(dir string) (err error) {
			for i := range MaxFiles {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, strings.Repeat("x", i+1)), nil, 0o600))
			}
			return err
		},
		"many directories": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 4*MaxFiles)), 0o700)
		},
		"a control character": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\x1b[2J"), nil, 0o600) },
	} {
		if _, err := Open(write(t, change)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(write(t, func(string) error { return nil })); err != nil {
		t.Error(err)
	}
}

// entry is one entry of a hostile archive.
type entry struct {
	name string
	kind byte
	size int
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := blob.Header(e.name)
		h.Typeflag, h.Mode, h.Size, h.Linkname = e.kind, 0o644, int64(e.size), "/etc/passwd"
		if e.kind == tar.TypeReg || e.kind == tar.TypeDir {
			h.Linkname = ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, e.size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// An archive of a publisher writes nothing outside, has one form, and the content of its digest.
func TestAttackArchive(t *testing.T) {
	t.Parallel()
	good := read(t, nil)
	for name, b := range map[string][]byte{
		"a path out":     archive(t, entry{"../evil", tar.TypeReg, 1}),
		"absolute":       archive(t, entry{"/tmp/starling-evil", tar.TypeReg, 1}),
		"a link":         archive(t, entry{"link", tar.TypeSymlink, 0}),
		"a hard link":    archive(t, entry{"link", tar.TypeLink, 0}),
		"a device":       archive(t, entry{"null", tar.TypeChar, 0}),
		"a pipe":         archive(t, entry{"pipe", tar.TypeFifo, 0}),
		"twice":          archive(t, entry{"a", tar.TypeReg, 1}, entry{"a", tar.TypeReg, 2}),
		"unsorted":       archive(t, entry{"b", tar.TypeReg, 1}, entry{"a", tar.TypeReg, 1}),
		"too large":      archive(t, entry{"a", tar.TypeReg, MaxBytes + 1}),
		"an empty":       archive(t, entry{"a", tar.TypeDir, 0}),
		"trailing bytes": append(slices.Clone(good.Archive()), make([]byte, 512)...),
		"rubbish":        []byte("rubbish"),
		"nothing":        nil,
	} {
		if name == "nothing" || name == "rubbish" {
			b = append(b, make([]byte, 100)...)
		}
		if _, err := Unpack(t.Context(), "a", b, sign.Sum(b)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Unpack(t.Context(), "a", good.Archive(), sign.Sum([]byte("x"))); !errors.Is(err, ErrInvalid) {
		t.Errorf("another digest: %v", err)
	}
	if _, err := Unpack(t.Context(), "../a", good.Archive(), good.Digest()); !errors.Is(err, ErrInvalid) {
		t.Errorf("a name with a path: %v", err)
	}
}

// The job's own files are those below the directory for the run.
func TestRead(t *testing.T) {
	t.Parallel()
	_, draft, err := read(t, nil).Read(nil, "/cache/a")
	if err != nil {
		t.Fatal(err)
	}
	j, err := jobfile.Flags{MaxPrice: "1"}.Over(draft, jobfile.Token{Decimals: 6})
	if err != nil || j.Inputs[0].Source != "/cache/a/data" {
		t.Errorf("%+v, %v", j.Inputs, err)
	}
}

// No archive makes a template panic; a read one has the archive as its form.
func FuzzUnpack(f *testing.F) {
	tm, err := ReadFS("a", files(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tm.Archive())
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Unpack(t.Context(), "a", b, sign.Sum(b))
		if err == nil && !bytes.Equal(got.Archive(), b) {
			t.Error("another form")
		}
		if err == nil {
			_, _ = got.Check()
		}
	})
}
