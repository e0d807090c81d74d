package sources

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files/s3"
	"github.com/starling-network/starling/node/files/s3/objects"
	"github.com/starling-network/starling/node/files/s3/s3test"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

const at = s3.Scheme + s3test.Bucket + "/"

// desk is a client's side of a job: a store in place of the peer, and the text that the user sees.
type desk struct {
	t     *testing.T
	r     resolver
	keys  *objects.Client
	blobs *blob.Store
	said  bytes.Buffer
}

// newDesk makes a desk of a user of S3. Providers read the URLs of hosts.
func newDesk(t *testing.T, env func(string) string, cfg web.Config) *desk {
	t.Helper()
	keys, err := objects.FromEnv(env)
	if err != nil {
		t.Fatal(err)
	}
	return newDeskOf(t, keys, cfg)
}

// newDeskOf makes a desk. keys is optional; if nil, nothing is in S3.
func newDeskOf(t *testing.T, keys *objects.Client, cfg web.Config) *desk {
	t.Helper()
	d := &desk{t: t, keys: keys}
	var err error
	if d.blobs, err = blob.OpenStore(t.TempDir(), 1<<30); err != nil {
		t.Fatal(err)
	}
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id, size, err := d.blobs.Put(req.Context(), req.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the body broke
		}
		_ = json.NewEncoder(w).Encode(record.Blob{CID: id.String(), Size: size, Tree: req.URL.Query().Has("tree")})
	}))
	t.Cleanup(peer.Close)
	d.r.peer = api.New(api.Endpoint{URL: peer.URL, Token: "token"})
	if d.r.web, err = web.New(cfg); err != nil {
		t.Fatal(err)
	}
	return d
}

// private is the configuration of providers that read a server with TLS.
func private(s *s3test.Server) web.Config {
	return web.Config{Hosts: []string{strings.TrimPrefix(s.URL, web.Scheme)}, Roots: s.Roots}
}

// spec is a job with inputs SOURCE, DST, …
func spec(inputs ...string) job.Job {
	j := job.Job{Name: "j", Runtime: job.RuntimeWasm, Module: "a.wasm", Count: 2, Resources: job.Resources{Class: "cpu", Units: 1},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour}, Payment: job.Payment{MaxPrice: 1, Budget: 10}}
	for i := 0; i < len(inputs); i += 2 {
		j.Inputs = append(j.Inputs, job.Input{Source: inputs[i], Path: inputs[i+1]})
	}
	return j
}

// find finds the contents of a job's sources in S3.
func (d *desk) find(j job.Job) (job.Job, map[string]job.Blob, error) {
	if err := j.Check(); err != nil {
		d.t.Fatal(err)
	}
	b := newBuckets(d.r, d.keys, j, (&cli.App{Err: &d.said}).Progress())
	j, err := b.expand(d.t.Context(), j)
	if err != nil {
		return j, nil, Explain(err)
	}
	out, err := b.contents(d.t.Context(), j.Sources())
	return j, out, Explain(err)
}

// tree unpacks a stored folder, and returns its files.
func (d *desk) tree(b job.Blob) map[string]string {
	d.t.Helper()
	dir := filepath.Join(d.t.TempDir(), "tree")
	id, err := blob.Parse(b.CID)
	if err == nil && !b.Tree {
		err = errors.New("no folder")
	}
	if err == nil {
		_, err = d.blobs.Unpack(d.t.Context(), id, dir, 1<<30)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[string]string{}
	for _, pattern := range []string{"*", "*/*"} {
		all, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			d.t.Fatal(err)
		}
		for _, name := range all {
			if text, err := os.ReadFile(name); err == nil {
				rel, _ := filepath.Rel(dir, name)
				out[rel] = string(text)
			}
		}
	}
	return out
}

// put writes objects of the server, with their checksums.
func (d *desk) put(files map[string]string) {
	d.t.Helper()
	dir := d.t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			d.t.Fatal(err)
		}
	}
	to, err := s3.ParseFolder(at)
	if err == nil {
		_, _, err = d.keys.PutFolder(d.t.Context(), to, dir, nil)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func cidOf(text string) string { return blob.Sum([]byte(text)).String() }

// Providers read objects by signed URLs, those of a small folder too. What they cannot read so is stored on the peer.
func TestSigned(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, true)
	d := newDesk(t, s.Env, private(s))
	many := map[string]string{}
	for i := range job.MaxInputs {
		many[fmt.Sprintf("many/%d", i)] = fmt.Sprint(i)
	}
	d.put(many)
	d.put(map[string]string{"w b.bin": "weights", "parts/0.txt": "zero", "parts/1.txt": "one", "parts/sub/x": "x", "r/0/name": "ada", "r/1/name": "grace", "odd/{rank}": "odd"})
	if err := os.WriteFile(filepath.Join(s.Dir, "plain"), []byte("without a checksum"), 0o644); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("weights")))
	j, found, err := d.find(spec(at+"w b.bin", "/in/w.bin", job.WithSum(at+"w b.bin", sum), "/in/again.bin", at+"parts/", "/parts", at+"parts/*.txt", "/text", at+"parts/{rank}.txt", "/in/part",
		at+"plain", "/in/plain", at+"r/{rank}/", "/rank", at+"many/", "/many", at+"odd/", "/odd"))
	if err != nil {
		t.Fatal(err)
	}
	var inputs []string
	for _, in := range j.Inputs {
		inputs = append(inputs, in.Source+" "+in.Path)
	}
	want := []string{at + "w b.bin /in/w.bin", job.WithSum(at+"w b.bin", sum) + " /in/again.bin", at + "parts/0.txt /parts/0.txt", at + "parts/1.txt /parts/1.txt", at + "parts/sub/x /parts/sub/x",
		at + "parts/0.txt /text/0.txt", at + "parts/1.txt /text/1.txt", at + "parts/{rank}.txt /in/part", at + "plain /in/plain", at + "r/{rank}/ /rank", at + "many/ /many", at + "odd/ /odd"}
	if !slices.Equal(inputs, want) {
		t.Errorf("inputs %q, want %q", inputs, want)
	}
	for source, text := range map[string]string{at + "w b.bin": "weights", job.WithSum(at+"w b.bin", sum): "weights", at + "parts/0.txt": "zero", at + "parts/1.txt": "one", at + "parts/sub/x": "x", at + "plain": "without a checksum"} {
		b := found[source]
		if b.CID != cidOf(text) || b.Size != int64(len(text)) || len(b.URLs) != 1 || b.Here() {
			t.Fatalf("%s: %+v", source, b)
		}
		if id, _, err := d.r.web.Sum(t.Context(), b.URLs[0], nil); err != nil || id.String() != b.CID {
			t.Errorf("%s: a provider reads %v, %v", source, id, err)
		}
		if !strings.Contains(b.URLs[0], "X-Amz-Expires=7260&") { // an hour and a minute, and an hour
			t.Errorf("%s", b.URLs[0])
		}
	}
	for source, files := range map[string]map[string]string{at + "r/0/": {"name": "ada"}, at + "r/1/": {"name": "grace"}, at + "odd/": {"{rank}": "odd"}} {
		if got := d.tree(found[source]); fmt.Sprint(got) != fmt.Sprint(files) || len(found[source].URLs) > 0 {
			t.Errorf("%s: %q, %+v", source, got, found[source])
		}
	}
	if got := d.tree(found[at+"many/"]); len(got) != len(many) || got["17"] != "17" {
		t.Errorf("%d files", len(got))
	}
	found["a.wasm"] = job.Blob{CID: cidOf("")}
	if _, err := j.WithBlobs(found); err != nil {
		t.Error(err)
	}
	said := d.said.String()
	for _, line := range []string{"input " + at + "w b.bin has sha256=" + sum + ", 0.0 KiB\n", "input " + at + "parts/ has 3 objects, 0.0 KiB\n", "input " + at + "many/ has 250 objects, 0.6 KiB, through this computer\n"} {
		if !strings.Contains(said, line) {
			t.Errorf("%q is not in %q", line, said)
		}
	}
	if strings.Contains(said, "X-Amz") || strings.Contains(said, s3test.Secret) {
		t.Errorf("said %q", said)
	}
}

// Objects of a server that providers cannot read go through this computer.
func TestThroughThisComputer(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		s := s3test.Start(t, secure)
		d := newDesk(t, s.Env, web.Config{})
		d.put(map[string]string{"w": "weights", "f/a": "a", "f/b/c": "c"})
		j, found, err := d.find(spec(at+"w", "/in/w", at+"f/", "/f"))
		if err != nil || len(j.Inputs) != 2 {
			t.Fatalf("%+v, %v", j.Inputs, err)
		}
		if b := found[at+"w"]; b.CID != cidOf("weights") || b.Size != 7 || len(b.URLs) > 0 || b.Tree {
			t.Errorf("%+v", b)
		}
		if got := d.tree(found[at+"f/"]); len(got) != 2 || got["a"] != "a" || got["b/c"] != "c" {
			t.Errorf("%q", got)
		}
		if said := d.said.String(); strings.Count(said, "providers cannot read bucket") != 1 || strings.Contains(said, "X-Amz") {
			t.Errorf("said %q", said)
		}
	}
}

// A folder whose signed URLs do not fit into the message to a provider goes through this computer.
func TestLongURLs(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, true)
	d := newDesk(t, s.Env, private(s))
	files, folder := map[string]string{}, strings.Repeat("long/", 100)
	for i := range 160 {
		files[fmt.Sprintf("%s%d", folder, i)] = fmt.Sprint(i)
	}
	d.put(files)
	d.put(map[string]string{"f/a": "a"})
	j, found, err := d.find(spec(at+"f/", "/f", at+folder, "/g", at+folder+"11*", "/h"))
	if err != nil {
		t.Fatal(err)
	}
	signed := 0
	for _, b := range found {
		signed += len(strings.Join(b.URLs, ""))
	}
	if b := found[at+folder]; len(j.Inputs) != 13 || !b.Tree || len(found[at+"f/a"].URLs) != 1 || signed > maxSigned {
		t.Errorf("%d inputs, %d bytes of URLs, %+v", len(j.Inputs), signed, b)
	}
}

// Missing objects, and digests that differ, are refused before the job is submitted.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, true)
	d := newDesk(t, s.Env, private(s))
	d.put(map[string]string{"w": "weights"})
	other := fmt.Sprintf("%x", sha256.Sum256([]byte("other")))
	for source, want := range map[string]string{
		at + "nothing":             "not found on the S3 server",
		at + "nothing/":            "not found on the S3 server",
		at + "{rank}/":             "not found on the S3 server",
		s3.Scheme + "nowhere/w":    "not found on the S3 server",
		job.WithSum(at+"w", other): "the object's SHA-256 is " + fmt.Sprintf("%x", sha256.Sum256([]byte("weights"))),
	} {
		_, _, err := d.find(spec(source, "/in/w"))
		var e *cli.Error
		if !errors.As(err, &e) || e.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
	}
	long := spec(at+"w", "/in/w")
	long.Timeouts.Run = 30 * 24 * time.Hour
	if _, found, err := d.find(long); err != nil || !strings.Contains(found[at+"w"].URLs[0], "X-Amz-Expires=604800&") || !strings.Contains(d.said.String(), "end in 7 days") {
		t.Errorf("%+v, %v", found, err)
	}
}

// A server whose objects have other bytes than their checksum, size or listing gives the job no content.
func TestAttackBytes(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("12345"))
	for what, text := range map[string]string{"other": "12346", "longer": "123456", "shorter": "1234", "nothing": ""} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Query().Has("list-type") {
					fmt.Fprint(w, `<ListBucketResult><Contents><Key>f/k</Key><Size>5</Size></Contents></ListBucketResult>`)
					return
				}
				w.Header().Set("ETag", `"e"`)
				w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
				if req.Method == http.MethodHead {
					w.Header().Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
					w.Header().Set("X-Amz-Checksum-Type", "FULL_OBJECT")
					w.Header().Set("Content-Length", "5")
					return
				}
				_, _ = io.WriteString(w, text)
				http.NewResponseController(w).Flush() // no length
			}))
			t.Cleanup(site.Close)
			d := newDesk(t, func(name string) string {
				return map[string]string{"AWS_ENDPOINT_URL": site.URL, "AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"}[name]
			}, web.Config{})
			_, found, err := d.find(spec(at+"k", "/in/k"))
			if err == nil || found[at+"k"].CID != "" {
				t.Errorf("%+v, %v", found, err)
			}
			if what == "other" {
				return // a folder has no digest before
			}
			_, found, err = d.find(spec(at+"f/", "/f"))
			if err == nil || found[at+"f/"].CID != "" || !errors.Is(err, objects.ErrChanged) {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}
