package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/docker/shelf"
	testengine "github.com/starling-network/starling/testnet/engine"
)

// once makes a text that no test before had: what an engine has pulled once it does not pull again.
func once(s string) string { return fmt.Sprintf("%s-%d", s, testCount.Add(1)) }

func TestPull(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := push(t, lab, once("pull/good"), func(c *v1.ConfigFile) { c.Config.Env = []string{"PULLED=1"} }, testengine.File{Path: "/big", Text: once(strings.Repeat("pull", 1<<20))})
	if r.HasImage(t.Context(), ref) {
		t.Fatal("it is here already")
	}
	if _, err := r.Start(t.Context(), spec(t, ref, "hello")); !errors.Is(err, runtime.ErrBadImage) || !strings.Contains(err.Error(), "pull the image first") {
		t.Errorf("before the pull: %v", err)
	}
	var done, total int64
	if err := r.Pull(t.Context(), ref, nil, func(d, n int64) {
		if d < done || d > n {
			t.Errorf("%d of %d after %d", d, n, done)
		}
		done, total = d, n
	}); err != nil {
		t.Fatal(err)
	}
	if done != total || total == 0 {
		t.Errorf("ended at %d of %d", done, total)
	}
	if !r.HasImage(t.Context(), ref) {
		t.Error("it is not here")
	}
	tagged := strings.Replace(ref, "@", ":v1@", 1)
	if err := r.Pull(t.Context(), tagged, nil, nil); err != nil {
		t.Error(err)
	}
	if out := run(t, r, spec(t, tagged, "environ")); out != "PULLED=1\n" {
		t.Errorf("environment %q", out)
	}
}

func TestPullRefused(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[goarch]
	none := "@sha256:" + strings.Repeat("0", 64)
	few := make([]string, 0, 100)
	for range 100 {
		few = append(few, "K"+strings.Repeat("x", 2000)+"=1")
	}
	volumes := map[string]struct{}{}
	for i := range images.MaxVolumes + 1 {
		volumes["/v"+strings.Repeat("x", i)] = struct{}{}
	}
	for name, test := range map[string]struct {
		ref  string
		want error
	}{
		"no digest":               {lab.Addr + "/plain:latest", runtime.ErrBadImage},
		"no such digest":          {lab.Addr + "/plain" + none, runtime.ErrBadImage},
		"no such image":           {lab.Addr + "/nowhere" + none, runtime.ErrBadImage},
		"manifest is another":     {push(t, lab, "broken/manifests", nil, testengine.File{Path: "/manifest", Text: once("layer")}), runtime.ErrBadImage},
		"layers are others":       {push(t, lab, "broken/layers", nil, testengine.File{Path: "/broken", Text: once("layer")}), runtime.ErrBadImage},
		"another machine":         {push(t, lab, "hostile/platform", func(c *v1.ConfigFile) { c.Architecture = other }), runtime.ErrBadImage},
		"breaks off":              {push(t, lab, "gone/away", nil, testengine.File{Path: "/gone", Text: once("gone")}), runtime.ErrRegistry},
		"nobody there":            {"127.0.0.1:1/x" + none, runtime.ErrRegistry},
		"private, no password":    {push(t, lab, "private/none", nil), runtime.ErrCredentials},
		"huge environment":        {push(t, lab, "hostile/env", func(c *v1.ConfigFile) { c.Config.Env = few }), runtime.ErrBadImage},
		"a hundred volumes":       {push(t, lab, "hostile/volumes", func(c *v1.ConfigFile) { c.Config.Volumes = volumes }), runtime.ErrBadImage},
		"variable without a name": {push(t, lab, "hostile/variable", func(c *v1.ConfigFile) { c.Config.Env = []string{"=odd"} }), runtime.ErrBadImage},
		"volume on the guard": {push(t, lab, "hostile/volume", func(c *v1.ConfigFile) {
			c.Config.Volumes = map[string]struct{}{"/run/starling/guard": {}}
		}), runtime.ErrBadImage},
		"volume on the root": {push(t, lab, "hostile/root", func(c *v1.ConfigFile) {
			c.Config.Volumes = map[string]struct{}{"/data/../": {}}
		}), runtime.ErrBadImage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := r.Pull(t.Context(), test.ref, nil, nil); !errors.Is(err, test.want) {
				t.Errorf("got %v", err)
			}
			if r.HasImage(t.Context(), test.ref) {
				t.Error("it is here now")
			}
		})
	}
}

func TestPullPrivate(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := push(t, lab, once("private/good"), nil)
	err := r.Pull(t.Context(), ref, &runtime.RegistryAuth{Username: testengine.User, Password: "hush-wrong-password"}, nil)
	if !errors.Is(err, runtime.ErrCredentials) || strings.Contains(err.Error(), "hush") {
		t.Errorf("wrong password: %v", err)
	}
	if err := r.Pull(t.Context(), ref, &runtime.RegistryAuth{Username: testengine.User, Password: testengine.Password}, nil); err != nil {
		t.Fatal(err)
	}
	if out := run(t, r, spec(t, ref, "hello", "private")); out != "hello private\n" {
		t.Errorf("%q", out)
	}
	for _, secret := range []string{testengine.Password, "hush-wrong-password"} {
		if where := grep(t, shared.Dir, secret); where != "" {
			t.Errorf("a password is in %s", where)
		}
	}
}

// TestAttackStrangersImage: only images that were pulled without credentials are open. An image that needed a password
// does not run for another buyer that knows its digest. A public image that was pulled with credentials is not open.
func TestAttackStrangersImage(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	auth := &runtime.RegistryAuth{Username: testengine.User, Password: testengine.Password}
	own := func() testengine.File { return testengine.File{Path: "/own", Text: once("stranger's")} }
	public, private := push(t, lab, "plain/one", nil, own()), push(t, lab, "private/one", nil, own())
	given := push(t, lab, "plain/given", nil, own())
	for ref, with := range map[string]*runtime.RegistryAuth{public: nil, private: auth, given: auth} {
		if err := r.Pull(t.Context(), ref, with, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Pull(t.Context(), private, nil, nil); !errors.Is(err, runtime.ErrCredentials) {
		t.Errorf("without credentials: %v", err)
	}
	wrong := &runtime.RegistryAuth{Username: testengine.User, Password: "wrong"}
	if err := r.Pull(t.Context(), private, wrong, nil); !errors.Is(err, runtime.ErrCredentials) {
		t.Errorf("with another's: %v", err)
	}
	for ref, with := range map[string]*runtime.RegistryAuth{private: auth, given: nil, public: auth} {
		if err := r.Pull(t.Context(), ref, with, nil); err != nil {
			t.Errorf("again: %v", err)
		}
	}
	all, err := r.Shelved(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for ref, open := range map[string]bool{public: true, private: false, given: false} {
		_, digest, _ := strings.Cut(ref, "@")
		at := slices.IndexFunc(all, func(i runtime.ShelvedImage) bool { return i.Digest == digest })
		if at < 0 || all[at].Open != open || all[at].Size == 0 || time.Since(all[at].Used) > time.Hour {
			t.Errorf("%s: want open %v, got %+v", ref, open, all)
		}
	}
}

// An image that was used a while ago can be removed, and neither one of a container nor one that was just pulled.
func TestUnshelve(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	own := func() testengine.File { return testengine.File{Path: "/own", Text: once("unshelved")} }
	held, free := pulled(t, r, "unshelve/one", nil, own()), pulled(t, r, "unshelve/one", nil, own())
	start(t, r, spec(t, held, "polite"))
	tags, ids := map[string]string{}, map[string]string{}
	for _, ref := range []string{held, free} {
		name, err := images.Canonical(ref)
		if err != nil {
			t.Fatal(err)
		}
		tags[ref] = shelf.OpenTag(name)
		ids[ref] = shelf.ID(tags[ref])
	}
	for _, ref := range []string{held, free} {
		if err := r.Unshelve(t.Context(), ids[ref]); !errors.Is(err, runtime.ErrImageUsed) {
			t.Errorf("after its use: %v", err)
		}
	}
	for _, id := range []string{"", "alpine:latest", shelf.Repositories, tags[free], ids[free] + "0"} {
		if err := r.Unshelve(t.Context(), id); !errors.Is(err, runtime.ErrNoImage) {
			t.Errorf("%q: %v", id, err)
		}
	}
	old := &smallDisk{Store: images.OnEngine(r.engine),
		ages: map[string]time.Duration{tags[held]: time.Hour, tags[free]: time.Hour}}
	reader, err := fetch.New(r.cfg.Registries)
	if err != nil {
		t.Fatal(err)
	}
	r.shelf = shelf.New(old, 0, 100, r.cfg.Logger)
	r.images = images.New(r.engine, reader, r.shelf, int64(r.cfg.MaxImageMiB)<<20)
	if err := r.Unshelve(t.Context(), ids[held]); !errors.Is(err, runtime.ErrImageUsed) || !r.HasImage(t.Context(), held) {
		t.Errorf("the image of a container: %v", err)
	}
	if err := r.Unshelve(t.Context(), ids[free]); err != nil || r.HasImage(t.Context(), free) {
		t.Errorf("an unused image: %v", err)
	}
}

// An image's name and what its registry refers to lead nowhere inside: neither the peer nor its engine calls any address there.
func TestAttackImageReachesMachine(t *testing.T) {
	t.Parallel()
	needEngine(t)
	var calls atomic.Int64
	admin := serve(t, func(w http.ResponseWriter, _ *http.Request) { // stands for a metadata service or a router's page
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"Code":"Success","Token":"SESSION-TOKEN-OF-THE-PROVIDER"}`)
	})
	var stolen atomic.Int64
	evil := serve(t, func(w http.ResponseWriter, req *http.Request) { // the buyer's registry
		if strings.Contains(req.Header.Get("Authorization"), "SESSION-TOKEN") {
			stolen.Add(1)
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/latest/meta-data/iam/security-credentials/role",service="x"`, admin))
		w.WriteHeader(http.StatusUnauthorized)
	})
	r := newRuntime(t, shared, func(c *Config) { c.Registries = []string{evil} })
	said := map[string]bool{}
	for _, host := range []string{admin, evil, "127.0.0.1:1", "169.254.169.254"} {
		err := r.Pull(t.Context(), host+"/x@sha256:"+strings.Repeat("1", 64), nil, nil)
		var f *runtime.Failure
		if !errors.As(err, &f) {
			t.Fatalf("%s: %v", host, err)
		}
		said[strings.TrimPrefix(f.Told(), f.Of)] = true
	}
	if calls.Load() > 0 || stolen.Load() > 0 || len(said) != 1 {
		t.Errorf("%d calls inside, %d answers taken out, buyers are told %v", calls.Load(), stolen.Load(), said)
	}
}

// serve answers HTTP on the loopback of this machine and of the engine.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	addr := "127.0.0.1:0"
	for _, listen := range []func(network, addr string) (net.Listener, error){net.Listen, shared.Net.Listen} {
		l, err := listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		addr = l.Addr().String()
		go func() { _ = http.Serve(l, answer) }()
	}
	return addr
}

// smallDisk is an engine's images on a disk of 100 GiB of which 10 GiB are free, and one more after each removal.
type smallDisk struct {
	shelf.Store
	ages    map[string]time.Duration // since an image's use, beside the true time, by tag
	removed int
}

func (d *smallDisk) Usage() (free, size int64, ok bool) {
	return 10<<30 + int64(d.removed)<<30, 100 << 30, true
}

func (d *smallDisk) List(ctx context.Context) ([]shelf.Shelved, error) {
	all, err := d.Store.List(ctx)
	for i := range all {
		all[i].Used = all[i].Used.Add(-d.ages[all[i].Tag])
	}
	return all, err
}

func (d *smallDisk) Remove(ctx context.Context, tag string) error {
	err := d.Store.Remove(ctx, tag)
	if err == nil {
		d.removed++
	}
	return err
}

// Images of orders go when the disk is too full, in the order of their last use; what is used stays, and what is not an order's.
func TestAttackImagesFillTheDisk(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	var refs []string
	for i := range 4 {
		refs = append(refs, pulled(t, r, once("fill/one"), func(c *v1.ConfigFile) { c.Config.Env = []string{fmt.Sprint("N=", i)} }, testengine.File{Path: "/own", Text: once("layer")}))
	}
	operators, err := r.images.Config(t.Context(), refs[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := r.engine.ImageTag(t.Context(), operators.ID, "operators-own:1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.engine.ImageRemove(context.Background(), "operators-own:1", image.RemoveOptions{}) })
	start(t, r, spec(t, refs[2], "polite"))
	ages := map[string]time.Duration{}
	for i, ref := range refs {
		name, err := images.Canonical(ref)
		if err != nil {
			t.Fatal(err)
		}
		ages[shelf.OpenTag(name)] = time.Duration(4-i) * time.Hour
	}
	reader, err := fetch.New(r.cfg.Registries)
	if err != nil {
		t.Fatal(err)
	}
	small := &smallDisk{Store: images.OnEngine(r.engine), ages: ages}
	kept := shelf.New(small, r.cfg.FreeMiB, r.cfg.ImagesPercent, r.cfg.Logger)
	r.images = images.New(r.engine, reader, kept, int64(r.cfg.MaxImageMiB)<<20)
	p, err := kept.Plan(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.End(t.Context())
	for i, want := range []bool{false, false, true, false} {
		if got := r.HasImage(t.Context(), refs[i]); got != want {
			t.Errorf("image %d is there: %v", i, got)
		}
	}
	if small.removed != 3 {
		t.Errorf("%d removed", small.removed)
	}
	if found, err := r.engine.ImageInspect(t.Context(), "operators-own:1"); err != nil || found.ID != operators.ID {
		t.Errorf("the operator's image is gone: %v", err)
	}
	small.ages = nil
	if err := r.Pull(t.Context(), refs[0], nil, nil); err != nil || !r.HasImage(t.Context(), refs[0]) {
		t.Errorf("pulled again: %v", err)
	}
}

// The engine's own images are used under the digest that their operator pulled them by, and belong to no order.
func TestOperatorsImage(t *testing.T) {
	t.Parallel()
	needEngine(t)
	e := ownEngine(t)
	own, err := testengine.NewRegistry(e.Net)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	ref := push(t, own, "plain", nil)
	if err := e.Call(t.Context(), http.MethodPost, "/images/create?fromImage="+url.QueryEscape(ref), nil, nil); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, e, nil) // it may not read from that registry
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	if out := run(t, r, spec(t, ref, "hello")); out != "hello \n" {
		t.Errorf("%q", out)
	}
	if all, err := images.OnEngine(r.engine).List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("on the shelf are %v, %v", all, err)
	}
}

func TestPullTooLarge(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, func(c *Config) { c.MaxImageMiB = 1 })
	ref := push(t, lab, "hostile/large", nil, testengine.File{Path: "/large", Text: once(strings.Repeat("large ", 1<<20))})
	if err := r.Pull(t.Context(), ref, nil, nil); !errors.Is(err, runtime.ErrBadImage) {
		t.Errorf("got %v", err)
	}
}

func TestPullGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRuntime(t, shared, func(c *Config) { c.Registries = []string{l.Addr().String()} })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // a registry that never answers
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close() // at the end
			cancel()
		}
	}()
	if err := r.Pull(ctx, l.Addr().String()+"/x@sha256:"+strings.Repeat("0", 64), nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Images that say strange things about themselves run all the same, or are refused with a reason.
func TestHostileImages(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	for name, test := range map[string]struct {
		change func(*v1.ConfigFile)
		args   []string
		out    string
		err    error
		says   string
	}{
		"no entrypoint":                  {func(c *v1.ConfigFile) { c.Config.Entrypoint = nil }, nil, "", runtime.ErrBadImage, "entrypoint"},
		"only a command":                 {func(c *v1.ConfigFile) { c.Config.Entrypoint, c.Config.Cmd = nil, []string{"tool", "hello", "cmd"} }, nil, "hello cmd\n", nil, ""},
		"command and arguments":          {func(c *v1.ConfigFile) { c.Config.Cmd = []string{"exit", "9"} }, []string{"hello", "args"}, "hello args\n", nil, ""},
		"entrypoint is not there":        {func(c *v1.ConfigFile) { c.Config.Entrypoint = []string{"/none"} }, nil, "", runtime.ErrNoProgram, "/none"},
		"entrypoint is a directory":      {func(c *v1.ConfigFile) { c.Config.Entrypoint = []string{"/data"} }, nil, "", runtime.ErrNoProgram, "/data"},
		"a user that is not there":       {func(c *v1.ConfigFile) { c.Config.User = "nobody-knows:nothing" }, []string{"hello"}, "hello \n", nil, ""},
		"working directory outside":      {func(c *v1.ConfigFile) { c.Config.WorkingDir = "../../data" }, []string{"hello"}, "hello \n", nil, ""},
		"working directory of a process": {func(c *v1.ConfigFile) { c.Config.WorkingDir = "/proc/self/fd/7" }, []string{"hello"}, "", runtime.ErrNoProgram, "working directory"},
		"a check that harms": {func(c *v1.ConfigFile) {
			c.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/guest", "spin"}, Interval: 1e6}
			c.Config.OnBuild = []string{"RUN /guest"}
			c.Config.StopSignal = "SIGKILL"
		}, []string{"hello"}, "hello \n", nil, ""},
		"variables for the guard": {func(c *v1.ConfigFile) {
			c.Config.Env = []string{"GODEBUG=cpu.all=off", "GOGC=1", "GOMAXPROCS=999", "GOTRACEBACK=crash", "LD_PRELOAD=/x", "odd", "PATH=/bin"}
		}, []string{"environ"}, "GODEBUG=cpu.all=off\nGOGC=1\nGOMAXPROCS=999\nGOTRACEBACK=crash\nLD_PRELOAD=/x\nPATH=/bin\n", nil, ""},
		"labels of a peer": {func(c *v1.ConfigFile) {
			c.Config.Labels = map[string]string{engine.LabelPeer: "other", engine.LabelDir: "/"}
		}, []string{"hello"}, "hello \n", nil, ""},
		"volumes": {func(c *v1.ConfigFile) { c.Config.Volumes = map[string]struct{}{"/data": {}, "/run/x/y": {}} }, []string{"write", "/data/new"}, "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := pulled(t, r, "hostile/"+strings.ReplaceAll(name, " ", "-"), test.change)
			s := spec(t, ref, test.args...)
			if test.err == nil {
				if out := run(t, r, s); out != test.out {
					t.Errorf("printed %q", out)
				}
				return
			}
			if _, err := r.Start(t.Context(), s); !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
