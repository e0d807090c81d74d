package harness

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/p2p/blob"
)

// Load reads the parts of a pushed image as a container engine does. Its command names the program.
func (e *engine) Load(ctx context.Context, image string, parts runtime.Parts, _ func(done, total int64)) error {
	if e.HasImage(ctx, image) {
		return nil
	}
	i, err := fetch.OpenParts(ctx, image, parts, 1<<20)
	if err != nil {
		return err
	}
	defer i.Close()
	if err := i.Write(ctx, io.Discard, "starling.invalid/order:x", 1<<20, nil, func(int64) error { return nil }); err != nil {
		return err
	}
	var c struct{ Config struct{ Cmd []string } }
	if err := json.Unmarshal(i.JSON, &c); err != nil {
		return err
	}
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	at := e.module(image)
	new := fmt.Sprintf("%s.%p", at, i) // another rank may load it too
	if err := os.WriteFile(new, runtimetest.FakeModule(c.Config.Cmd[0]), 0o600); err != nil {
		return err
	}
	e.shelve(image, false)
	return os.Rename(new, at)
}

// pushed stores the parts of an image on the peer whose program is one of the Fake, and returns its name.
func (p *Peer) pushed(program string) (name string, parts []cid.Cid) {
	p.net.t.Helper()
	put := func(content []byte) (digest string, size int) {
		c, err := cid.Parse(p.Put(string(content)).CID)
		if err != nil {
			p.net.t.Fatal(err)
		}
		parts = append(parts, c)
		return fmt.Sprintf("sha256:%x", sha256.Sum256(content)), len(content)
	}
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			p.net.t.Fatal(err)
		}
		return b
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	h := tar.Header{Name: "program", Mode: 0o755, Size: int64(len(program))}
	if err := w.WriteHeader(&h); err != nil {
		p.net.t.Fatal(err)
	}
	if _, err := io.WriteString(w, program); err != nil {
		p.net.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		p.net.t.Fatal(err)
	}
	type m = map[string]any
	file := func(media string, content []byte) m {
		digest, size := put(content)
		return m{"mediaType": "application/vnd.oci.image." + media, "digest": digest, "size": size}
	}
	bottom := file("layer.v1.tar", layer.Bytes())
	manifest, _ := put(text(m{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": file("config.v1+json", text(m{"os": "linux", "architecture": "amd64", "config": m{"Cmd": []string{program}},
			"rootfs": m{"type": "layers", "diff_ids": []any{bottom["digest"]}}})),
		"layers": []m{bottom}}))
	return "pushed.invalid/acme/" + program + ":v1@" + manifest, parts
}

// An image that only the buyer's peer has runs on providers. A stranger that knows the digests of all parts gets none, and
// an operator's list of images holds for the image, whatever its name.
func TestPushedImage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const picky, stranger = 0, 3
		n := New(t, Options{Providers: 4, Units: 1, Programs: programs, Log: Logger(), Configure: func(i int, c *config.Config) {
			if i == picky {
				c.Provide.Images.Allow = []string{"docker.io/**", "*/acme/**"}
			}
		}})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		image, parts := b.pushed("train")
		spec := b.Container("train", "cpu", 2, "1")
		spec.Image = image
		spec.Outputs = []job.Output{{Path: "/out"}}
		spec.Placement.Exclude = []sign.Key{n.Provider(stranger).Key.Key()}
		for range 2 {
			j := b.Wait(b.Submit(spec).ID, 2*time.Minute)
			if j.State != buyer.Succeeded {
				t.Fatalf("%s\n%s", j.Summary(), b.Why(j.ID))
			}
			for i, r := range j.Ranks {
				if r.Provider == n.Provider(picky).Key.Key() {
					t.Errorf("rank %d ran at the provider that does not allow its image", i)
				}
				if got := b.file(t, r.Outputs[0].Blob, "part"); !strings.HasPrefix(got, "0.") {
					t.Errorf("rank %d left %q", i, got)
				}
			}
		}
		thief, err := blob.OpenStore(t.TempDir(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		h := n.net.Hosts[stranger]
		for _, c := range parts {
			if err := blob.Fetch(t.Context(), h.Host, n.Genesis.Tag(), n.net.Hosts[4].ID(), c, 1<<20, thief, nil); !errors.Is(err, blob.ErrNotFound) {
				t.Errorf("a stranger asks for part %s: %v", c, err)
			}
		}
		if err := b.Blobs.Remove(parts[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrRefused) {
			t.Errorf("with a layer that is gone: %v", err)
		}
	})
}

// While the owner of a detached job is away, a guardian hires a standby, which gets the image from the guardian.
func TestPushedImageDetached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 8, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.detached(2, "20")
		spec.Runtime, spec.Module, spec.Blobs = job.RuntimeDocker, "", nil
		spec.Image, _ = b.pushed("train")
		id := b.Submit(spec).ID
		j := b.until(id, func(j buyer.Job) bool { return j.Detached.Held })
		b.Kill()
		time.Sleep(10 * time.Second)
		n.peer(j.Ranks[1].Provider).Kill()
		time.Sleep(time.Minute)
		b.Restart()
		if accounts := n.checkDetached(t, b, id); len(accounts) != 3 {
			t.Errorf("%d leases\n%s", len(accounts), b.Why(id))
		}
	})
}
