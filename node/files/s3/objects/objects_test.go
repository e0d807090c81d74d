package objects

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/files/s3"
	"github.com/starling-network/starling/node/files/s3/s3test"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/p2p/blob"
)

const bucket = s3.Scheme + s3test.Bucket + "/"

// connect is the client of a test's server.
func connect(t *testing.T, env func(string) string) *Client {
	t.Helper()
	c, err := FromEnv(env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func name(t *testing.T, text string) s3.Name {
	t.Helper()
	n, err := s3.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// folder writes files below a new directory.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for rel, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(rel))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// put writes files to a folder of the server.
func put(t *testing.T, c *Client, to string, files map[string]string) {
	t.Helper()
	n, _, err := c.PutFolder(t.Context(), name(t, to), folder(t, files), nil)
	if err != nil || n != len(files) {
		t.Fatalf("%d objects, %v", n, err)
	}
}

func read(t *testing.T, c *Client, o Object) (string, error) {
	t.Helper()
	body, err := c.Open(t.Context(), o)
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	return string(b), err
}

func sumHex(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// Files become objects with a SHA-256, and are found by their names, as a folder and by a pattern.
func TestReadWrite(t *testing.T) {
	t.Parallel()
	c := connect(t, s3test.Start(t, false).Env)
	files := map[string]string{"a.txt": "a", "B.txt": "capital", "b.txt": "small", "empty": "", "sub/deep/c [1]*.txt": "c", "sub.txt": "s", "ünï.txt": "u"}
	put(t, c, bucket+"data/", files)
	if err := c.Ready(t.Context(), name(t, bucket)); err != nil {
		t.Error(err)
	}
	o, err := c.Stat(t.Context(), name(t, bucket+"data/a.txt"))
	if err != nil || o.Size != 1 || o.SHA256 != sumHex("a") {
		t.Errorf("%+v, %v", o, err)
	}
	if text, err := read(t, c, o); text != "a" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for pattern, want := range map[string][]string{
		"data/":                       {"B.txt", "a.txt", "b.txt", "empty", "sub/deep/c [1]*.txt", "sub.txt", "ünï.txt"},
		"data/*.txt":                  {"B.txt", "a.txt", "b.txt", "sub.txt", "ünï.txt"},
		"data/s*":                     {"sub.txt"},
		"data/[ab].txt":               {"a.txt", "b.txt"},
		"data/sub/":                   {"deep/c [1]*.txt"},
		`data/sub/deep/c \[1\]\**txt`: nil, // \] is no escape: it is a pattern, of the same meaning
		"":                            {"data/B.txt", "data/a.txt", "data/b.txt", "data/empty", "data/sub/deep/c [1]*.txt", "data/sub.txt", "data/ünï.txt"},
	} {
		if want == nil {
			want = []string{"c [1]*.txt"}
		}
		all, err := c.List(t.Context(), name(t, bucket+pattern), 100)
		var got []string
		for _, o := range all {
			got = append(got, o.Rel)
			rel := strings.TrimPrefix(o.Name.Key, "data/")
			if text, err := read(t, c, o); text != files[rel] || err != nil {
				t.Errorf("%s: %q, %v", o.Rel, text, err)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", pattern, got, err, want)
		}
	}
	for text, class := range map[string]error{"nothing/": ErrAbsent, "data/*.bin": ErrAbsent} {
		if _, err := c.List(t.Context(), name(t, bucket+text), 100); !errors.Is(err, class) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := c.List(t.Context(), name(t, bucket), 6); err == nil || !strings.Contains(err.Error(), "more than 6 objects") {
		t.Errorf("%v", err)
	}
	if _, err := c.Stat(t.Context(), name(t, bucket+"nothing")); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v", err)
	}
	if err := c.Ready(t.Context(), name(t, "s3://other-bucket/")); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v", err)
	}
}

// The archive of a folder equals that of the same files on a disk, also with large objects, and unpacks to them.
func TestPack(t *testing.T) {
	t.Parallel()
	c := connect(t, s3test.Start(t, false).Env)
	large := make([]byte, small+1)
	rand.New(rand.NewSource(1)).Read(large)
	files := map[string]string{"large": string(large), "a/large": string(large), "a/b/c": "c", "a.b": "dot", "z": ""}
	for i := range 3 * ahead {
		files[fmt.Sprintf("many/%d", i)] = fmt.Sprint(i)
	}
	put(t, c, bucket+"f/", files)
	all, err := c.List(t.Context(), name(t, bucket+"f/"), 100)
	if err != nil {
		t.Fatal(err)
	}
	var got, want bytes.Buffer
	var done int64
	if err := c.Pack(t.Context(), &got, all, func(n int64) { done = n }); err != nil {
		t.Fatal(err)
	}
	if err := blob.Pack(t.Context(), &want, folder(t, files), 1<<30); err != nil {
		t.Fatal(err)
	}
	var sizes int64
	for _, text := range files {
		sizes += int64(len(text))
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) || done != sizes {
		t.Errorf("archives of %d and %d bytes, %d of %d bytes reported", got.Len(), want.Len(), done, sizes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Pack(ctx, io.Discard, all, func(int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A signed URL opens its object for providers, by their rules. It has no secret key, and is shown without its signature.
func TestSignedURL(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, true)
	c := connect(t, s.Env)
	text := strings.Repeat("weights", 1<<18)
	put(t, c, bucket+"m/", map[string]string{"w b+1.bin": text})
	n := name(t, bucket+"m/w b+1.bin")
	at, err := c.URL(t.Context(), n, 30*24*time.Hour)
	if err != nil || web.Check(at) != nil || !web.Signed(at) || strings.Contains(at, s3test.Secret) || !strings.Contains(at, "X-Amz-Expires=604800") {
		t.Fatalf("%s, %v, %v", at, err, web.Check(at))
	}
	provider, err := web.New(web.Config{Hosts: []string{strings.TrimPrefix(s.URL, web.Scheme)}, Roots: s.Roots})
	if err != nil {
		t.Fatal(err)
	}
	if id, size, err := provider.Sum(t.Context(), at, nil); err != nil || id != blob.Sum([]byte(text)) || size != int64(len(text)) {
		t.Errorf("%v, %d, %v", id, size, err)
	}
	body, total, err := provider.File([]string{at}, int64(len(text))).Open(t.Context(), blob.Sum([]byte(text)), 7, 1<<30)
	if err != nil || total != int64(len(text)) {
		t.Fatalf("%d, %v", total, err)
	}
	defer body.Close()
	if rest, err := io.ReadAll(body); err != nil || string(rest) != text[7:] {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	for _, bad := range []string{strings.Replace(at, "m/w", "m/x", 1), strings.Replace(at, "X-Amz-Expires=604800", "X-Amz-Expires=604799", 1), strings.Split(at, "?")[0]} {
		if _, _, err := provider.Sum(t.Context(), bad, nil); !errors.Is(err, web.ErrAbsent) || strings.Contains(err.Error(), "X-Amz") ||
			strings.Contains(err.Error(), "status of the server: 403: a signed URL may have expired") != web.Signed(bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// What is there already is not sent again, other objects are not replaced, and the rest is sent nevertheless.
func TestPutAgain(t *testing.T) {
	t.Parallel()
	c := connect(t, s3test.Start(t, false).Env)
	put(t, c, bucket+"r/", map[string]string{"a": "first", "c": "other"})
	_, _, err := c.PutFolder(t.Context(), name(t, bucket+"r/"), folder(t, map[string]string{"a": "first", "b": "second", "c": "third"}), nil)
	var part *Incomplete
	if !errors.As(err, &part) || !errors.Is(err, ErrExists) || !slices.Equal(part.Missing, []string{"c"}) || part.Total != 3 {
		t.Fatalf("%v", err)
	}
	for key, want := range map[string]string{"a": "first", "b": "second", "c": "other"} {
		o, err := c.Stat(t.Context(), name(t, bucket+"r/"+key))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, c, o); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	put(t, c, bucket+"r/", map[string]string{"a": "first", "b": "second"})
}

// A large file is sent in parts. The server's checksum is of all its bytes.
func TestPutParts(t *testing.T) {
	t.Parallel()
	c := connect(t, s3test.Start(t, false).Env)
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "large"))
	if err == nil {
		_, err = f.WriteAt([]byte("end"), partSize+5)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	n, size, err := c.PutFolder(t.Context(), name(t, bucket), dir, nil)
	if err != nil || n != 1 || size != partSize+8 {
		t.Fatalf("%d objects, %d bytes, %v", n, size, err)
	}
	o, err := c.Stat(t.Context(), name(t, bucket+"large"))
	if err != nil || o.Size != size || o.SHA256 != "" {
		t.Fatalf("%+v, %v", o, err)
	}
	f, err = os.Open(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := sumOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if there, err := c.sumAt(t.Context(), o.Name, want.kind); err != nil || there != want || want.text == "" {
		t.Fatalf("got %+v, %v, want %+v", there, err, want)
	}
	body, err := c.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, m, err := blob.SumOf(body); err != nil || m != size {
		t.Errorf("%v, %d, %v", got, m, err)
	}
	sent := int64(0)
	if _, _, err := c.PutFolder(t.Context(), name(t, bucket), dir, func(n, all int64) { sent = n + all }); err != nil || sent != 2*size {
		t.Errorf("%d bytes, %v", sent, err)
	}
}

// Settings that give no access are refused before a request.
func TestSettings(t *testing.T) {
	t.Parallel()
	keys := map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
	with := func(more ...string) func(string) string {
		m := map[string]string{}
		for k, v := range keys {
			m[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return func(name string) string { return m[name] }
	}
	profile := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(profile, []byte("[team]\naws_access_key_id = profiled\naws_secret_access_key = s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []func(string) string{
		with("AWS_ENDPOINT_URL", "ftp://host"), with("AWS_ENDPOINT_URL", "https://user:pass@host"), with("AWS_ENDPOINT_URL", "https://host/path"), with("AWS_ENDPOINT_URL_S3", "host:9000"),
		with("AWS_SECRET_ACCESS_KEY", ""), with("AWS_CA_BUNDLE", profile), with("AWS_CA_BUNDLE", profile+"x"),
		with("AWS_ACCESS_KEY_ID", "", "AWS_SECRET_ACCESS_KEY", "", "AWS_SHARED_CREDENTIALS_FILE", profile, "AWS_PROFILE", "other"),
	} {
		if _, err := FromEnv(bad); !errors.Is(err, ErrSettings) {
			t.Errorf("%v", err)
		}
	}
	c := connect(t, with("AWS_ACCESS_KEY_ID", "", "AWS_SECRET_ACCESS_KEY", "", "AWS_SHARED_CREDENTIALS_FILE", profile, "AWS_PROFILE", "team", "AWS_REGION", "eu-west-1"))
	at, err := c.URL(t.Context(), name(t, "s3://b-1/k"), time.Hour)
	if err != nil || !strings.HasPrefix(at, "https://b-1.s3.dualstack.eu-west-1.amazonaws.com/k?") || !strings.Contains(at, "profiled") || !strings.Contains(at, "X-Amz-Expires=3600") {
		t.Errorf("%s, %v", at, err)
	}
	c = connect(t, with("AWS_ENDPOINT_URL", "https://a.example.org", "AWS_ENDPOINT_URL_S3", "https://s.example.org:9000/", "AWS_REGION", "x"))
	if at, err := c.URL(t.Context(), name(t, "s3://b-1/k"), time.Hour); err != nil || !strings.HasPrefix(at, "https://s.example.org:9000/b-1/k?") {
		t.Errorf("%s, %v", at, err)
	}
}

// Keys that the server does not accept are an error of access, which names the server.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, false)
	c := connect(t, func(name string) string {
		if name == "AWS_SECRET_ACCESS_KEY" {
			return "wrong"
		}
		return s.Env(name)
	})
	_, err := c.Stat(t.Context(), name(t, bucket+"a"))
	_, listed := c.List(t.Context(), name(t, bucket), 10)
	_, _, written := c.PutFolder(t.Context(), name(t, bucket), folder(t, map[string]string{"a": "1", "b": "2"}), nil)
	for _, err := range []error{err, listed, written, c.Ready(t.Context(), name(t, bucket))} {
		if !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("%v", err)
		}
	}
	var part *Incomplete
	if !errors.As(written, &part) || !slices.Equal(part.Missing, []string{"a", "b"}) {
		t.Errorf("%v", written)
	}
}
