package workload

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

var host = Host{Runtimes: map[string]runtime.Runtime{"wasm": runtimetest.NewFake("wasm", nil)}}

func put(t *testing.T, s *blob.Store, content string) *nodepb.Blob {
	t.Helper()
	c, n, err := s.Put(t.Context(), strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}
}

func store(t *testing.T) *blob.Store {
	t.Helper()
	s, err := blob.OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := store(t)
	file := put(t, s, "x")
	good := func() *nodepb.Workload {
		return &nodepb.Workload{Runtime: "wasm", Module: file, Inputs: []*nodepb.Input{{Blob: file, Path: "/data/x"}}, Outputs: []string{"/out"}}
	}
	if err := Check(good(), host); err != nil {
		t.Fatal(err)
	}
	if err := Check(nil, host); !errors.Is(err, ErrWorkload) {
		t.Errorf("no workload: %v", err)
	}
	for name, c := range map[string]struct {
		want  string
		spoil func(w *nodepb.Workload)
	}{
		"runtime":       {"not offered", func(w *nodepb.Workload) { w.Runtime = "docker" }},
		"no module":     {"module", func(w *nodepb.Workload) { w.Module = nil }},
		"bad digest":    {"module", func(w *nodepb.Workload) { w.Module = &nodepb.Blob{Cid: []byte{1, 2, 3}} }},
		"URL of module": {"scheme", func(w *nodepb.Workload) { w.Module = at(w.Module, "http://example.org/w") }},
		"URL of input":  {"password", func(w *nodepb.Workload) { w.Inputs[0].Blob = at(file, "https://a:b@example.org/w") }},
		"many URLs":     {"at most 4", func(w *nodepb.Workload) { w.Inputs[0].Blob = at(file, make([]string, 5)...) }},
		"URL of a tree": {"no URL", func(w *nodepb.Workload) {
			w.Inputs[0].Blob = at(file, "https://example.org/w")
			w.Inputs[0].Blob.Tree = true
		}},
		"traversal":        {"clean absolute path", func(w *nodepb.Workload) { w.Inputs[0].Path = "/data/../etc/passwd" }},
		"relative":         {"clean absolute path", func(w *nodepb.Workload) { w.Inputs[0].Path = "data/x" }},
		"root":             {"clean absolute path", func(w *nodepb.Workload) { w.Outputs[0] = "/" }},
		"control":          {"kept for the runtime", func(w *nodepb.Workload) { w.Outputs[0] = runtime.ControlDir + "/x" }},
		"file at the top":  {"must lie in a directory", func(w *nodepb.Workload) { w.Inputs[0].Path = "/x" }},
		"no input":         {"input", func(w *nodepb.Workload) { w.Inputs[0] = nil }},
		"too many inputs":  {"at most", func(w *nodepb.Workload) { w.Inputs = make([]*nodepb.Input, maxInputs+1) }},
		"too many outputs": {"at most", func(w *nodepb.Workload) { w.Outputs = make([]string, maxOutputs+1) }},
		"scratch at /":     {"scratch", func(w *nodepb.Workload) { w.Scratch = "/" }},
		"scratch at /run":  {"kept for the runtime", func(w *nodepb.Workload) { w.Scratch = "/run/x" }},
		"shm of a module":  {"shm_mib", func(w *nodepb.Workload) { w.ShmMib = 1 }},
		"volume's lease":   {"not 32 bytes", func(w *nodepb.Workload) { w.Volumes = mounted("/v"); w.Volumes[0].Lease = nil }},
		"no volume":        {"not 32 bytes", func(w *nodepb.Workload) { w.Volumes = []*nodepb.VolumeMount{nil} }},
		"volume's path":    {"clean absolute path", func(w *nodepb.Workload) { w.Volumes = mounted("/v/..") }},
		"volume at /run":   {"kept for the runtime", func(w *nodepb.Workload) { w.Volumes = mounted("/run/x") }},
		"volume in mount":  {"is there", func(w *nodepb.Workload) { w.Volumes = mounted("/data/y") }},
		"volumes nested":   {"is there", func(w *nodepb.Workload) { w.Volumes = mounted("/v/a", "/v") }},
		"too many volumes": {"at most", func(w *nodepb.Workload) { w.Volumes = mounted(make([]string, maxVolumes+1)...) }},
		"seeded volume":    {"seed", func(w *nodepb.Workload) { w.Volumes, w.Seed = mounted("/v"), 1 }},
		"NUL":              {"clean absolute path", func(w *nodepb.Workload) { w.Outputs[0] = "/o\x00ut" }},
		"long path":        {"clean absolute path", func(w *nodepb.Workload) { w.Outputs[0] = "/" + strings.Repeat("x", maxPath) }},
	} {
		w := good()
		c.spoil(w)
		if err := Check(w, host); !errors.Is(err, ErrWorkload) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one that says %q", name, err, c.want)
		}
	}
}

// mounted are volumes at these paths.
func mounted(paths ...string) (out []*nodepb.VolumeMount) {
	for _, p := range paths {
		out = append(out, &nodepb.VolumeMount{Lease: make([]byte, 32), Path: p})
	}
	return out
}

// at is a blob with URLs.
func at(b *nodepb.Blob, urls ...string) *nodepb.Blob {
	return &nodepb.Blob{Cid: b.Cid, Size: b.Size, Urls: urls}
}

func TestStage(t *testing.T) {
	t.Parallel()
	s := store(t)
	file := put(t, s, "content")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	packed, err := s.PutTree(t.Context(), dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	tree := &nodepb.Blob{Cid: packed.CID.Bytes(), Size: uint64(packed.Size), Tree: true}
	w := &nodepb.Workload{Runtime: "wasm", Module: file, Outputs: []string{"/out/result"}, Inputs: []*nodepb.Input{
		{Blob: file, Path: "/data/x"}, {Blob: tree, Path: "/data/tree"}, {Blob: file, Path: "/out/seed"},
	}}
	fetched := 0
	fetch := func(context.Context, Places, cid.Cid, int64) error { fetched++; return nil }
	st := Stage{Dir: filepath.Join(t.TempDir(), "stage")}
	mounts, err := st.Prepare(t.Context(), w, "", s, fetch, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(mounts) != 2 || mounts[0].Guest != "/data" || !mounts[0].ReadOnly || mounts[1].Guest != "/out" || mounts[1].ReadOnly || fetched != 3 {
		t.Fatalf("%d fetched, mounts %+v", fetched, mounts)
	}
	for path, want := range map[string]string{"/data/x": "content", "/data/tree/a.txt": "a", "/out/seed": "content"} {
		if b, err := os.ReadFile(st.host(path, strings.HasPrefix(path, "/out"))); err != nil || string(b) != want {
			t.Errorf("%s reads %q, %v", path, b, err)
		}
	}
	// What can be written is a copy: the store's own file must not change.
	if err := os.WriteFile(st.host("/out/seed", true), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	id, err := CID(file)
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.Path(id)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "content" {
		t.Errorf("the store's file reads %q, %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(st.host("/out/result", true), "r"), []byte("done"), 0o644); err != nil {
		t.Fatal(err)
	}
	outs, err := st.Collect(t.Context(), w.Outputs, s, 1<<20)
	if err != nil || len(outs) != 1 || !outs[0].Blob.Tree {
		t.Fatalf("%v, %v", outs, err)
	}
	// The same again in the same directory starts from nothing.
	if _, err := st.Prepare(t.Context(), w, "", s, fetch, 1<<20, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(st.host("/out/result", true), "r")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an earlier attempt's output is still there: %v", err)
	}
}

// A scratch directory is everybody's to write, on the disk of the outputs, and nobody keeps it.
func TestScratch(t *testing.T) {
	t.Parallel()
	s := store(t)
	w := &nodepb.Workload{Image: "x", Outputs: []string{"/out"}, Scratch: "/scratch"}
	st := Stage{Dir: filepath.Join(t.TempDir(), "stage")}
	var volume string
	mounts, err := st.Prepare(t.Context(), w, "", s, nil, 1<<20, func(_ context.Context, dir string, _ int64) error {
		volume = dir
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	at := st.host("/scratch", true)
	if want := []runtime.Mount{{Host: st.host("/out", true), Guest: "/out"}, {Host: at, Guest: "/scratch"}}; !slices.Equal(mounts, want) {
		t.Errorf("mounts %+v, want %+v", mounts, want)
	}
	if rel, err := filepath.Rel(volume, at); err != nil || !filepath.IsLocal(rel) {
		t.Errorf("%s is not in the volume %s", at, volume)
	}
	if info, err := os.Stat(at); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("it is %v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(at, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	place, err := st.Open(w, "/scratch/f", true)
	if err != nil {
		t.Fatal(err)
	}
	_ = place.Root.Close()
	outs, err := st.Collect(t.Context(), w.Outputs, s, 1<<20)
	if err != nil || len(outs) != 1 || outs[0].Path != "/out" {
		t.Errorf("kept are %v, %v", outs, err)
	}
	if err := st.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

func TestStageRefusals(t *testing.T) {
	t.Parallel()
	s := store(t)
	file := put(t, s, "content")
	w := &nodepb.Workload{Runtime: "wasm", Module: file, Inputs: []*nodepb.Input{{Blob: file, Path: "/data/x"}}, Outputs: []string{"/out"}}
	st := Stage{Dir: filepath.Join(t.TempDir(), "stage")}
	ok := func(context.Context, Places, cid.Cid, int64) error { return nil }
	if _, err := st.Prepare(t.Context(), w, "", s, ok, 3, nil); !errors.Is(err, ErrWorkload) {
		t.Errorf("inputs larger than the lease's disk: %v", err)
	}
	lost := errors.New("gone")
	if _, err := st.Prepare(t.Context(), w, "", s, func(context.Context, Places, cid.Cid, int64) error { return lost }, 1<<20, nil); !errors.Is(err, lost) || !strings.Contains(err.Error(), "/data/x") {
		t.Errorf("an input that cannot be fetched: %v", err)
	}
	if _, err := st.Prepare(t.Context(), w, "", s, ok, 1<<20, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(st.host("/out", true), "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Collect(t.Context(), w.Outputs, s, 1<<20); !errors.Is(err, blob.ErrTree) {
		t.Errorf("a link among the outputs: %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("wasm", "/data/x", "/out", []byte{1, 85, 18, 32})
	f.Add("", "..", "/", []byte{})
	f.Fuzz(func(t *testing.T, rt, in, out string, digest []byte) {
		b := &nodepb.Blob{Cid: digest}
		w := &nodepb.Workload{Runtime: rt, Module: b, Inputs: []*nodepb.Input{{Blob: b, Path: in}}, Outputs: []string{out}}
		if err := Check(w, host); err != nil {
			return
		}
		st := Stage{Dir: "/stage"}
		for _, p := range []string{in, out} {
			if !strings.HasPrefix(st.host(p, true), "/stage/disk/") || !strings.HasPrefix(st.host(p, false), "/stage/mnt/") {
				t.Errorf("%q leaves the stage as %q and %q", p, st.host(p, true), st.host(p, false))
			}
		}
	})
}

// images is a runtime of which only its name and that it runs images count.
type images struct{ *runtimetest.Fake }

func (images) Pull(context.Context, string, *runtime.RegistryAuth, func(done, total int64)) error {
	return nil
}
func (images) HasImage(context.Context, string) bool { return true }

// TestNetwork: who asks for the outside is refused where there is none, and where no container can be given a network.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode    egress.Mode
		network string
		cluster bool
		want    string // empty: taken
		without error  // networks
	}{
		{"", "", false, "", nil}, {"", "internet", false, "no internet access", nil}, {"", "internet", true, "no internet access", nil},
		{egress.ModeNone, "internet", false, "no internet access", nil}, {egress.ModeNone, "", true, "", nil},
		{egress.ModeAllowlist, "internet", false, "", nil}, {egress.ModeAllowlist, "internet", true, "", nil}, {egress.ModeAllowlist, "", false, "", nil},
		{egress.ModeInternet, "internet", false, "", nil}, {egress.ModeInternet, "internet", true, "", nil}, {egress.ModeInternet, "bridge", false, "want empty or", nil},
		{egress.ModeInternet, "internet", false, "no internet access", runtime.ErrNoOverlay}, {egress.ModeInternet, "", false, "", runtime.ErrNoOverlay},
	} {
		h := Host{Runtimes: map[string]runtime.Runtime{"docker": images{runtimetest.NewFake("docker", nil)}}, Network: c.mode,
			Overlay: func(runtime.Runtime) error { return c.without }}
		w := &nodepb.Workload{Runtime: "docker", Image: "docker.io/library/alpine@sha256:" + strings.Repeat("0", 64), Network: c.network}
		if c.cluster {
			w.Cluster = &nodepb.ClusterPlan{}
		}
		err := checkProgram(w, h.Runtimes["docker"], h)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
