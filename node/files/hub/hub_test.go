package hub

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	token  = "hf_secret"
)

// lab is a hub with one model of two files, and a gated one. Its large files are elsewhere.
type lab struct {
	*httptest.Server
	cdn   string
	large string // content
	auth  []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{large: strings.Repeat("weights", 1000), cdn: "https://cdn.example.org/signed?key=abc"}
	l.Server = httptest.NewTLSServer(http.HandlerFunc(l.serve))
	t.Cleanup(l.Server.Close)
	return l
}

func (l *lab) serve(w http.ResponseWriter, req *http.Request) {
	l.auth = append(l.auth, req.Header.Get("Authorization"))
	path := req.URL.Path
	if rest, ok := strings.CutPrefix(path, "/acme/old/"); ok {
		http.Redirect(w, req, "/acme/model/"+rest, http.StatusTemporaryRedirect)
		return
	}
	if strings.HasPrefix(path, "/acme/gated/") && req.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	switch _, file, _ := strings.Cut(path, "/resolve/"); strings.SplitN(file, "/", 2)[1] {
	case "w.safetensors", "a b/w.bin":
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(l.large)))
		w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(l.large))))
		w.Header().Set("ETag", `"another"`)
		w.Header().Set("Location", l.cdn)
		w.WriteHeader(http.StatusFound)
	case "config.json":
		w.Header().Set("ETag", `"`+commit+`"`)
		_, _ = io.WriteString(w, `{"a": 1}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (l *lab) client(token string) Client {
	return Client{Endpoint: l.URL, Token: token, HTTP: l.Client()}
}

func find(t *testing.T, c Client, name string) (Found, error) {
	t.Helper()
	f, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return c.Find(t.Context(), f)
}

// A file's digest is the hub's, its URL that of the commit, or the signed one that the token opens. The token goes
// where it is needed.
func TestFind(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(l.large)))
	at := l.URL + "/acme/model/resolve/" + commit
	for name, want := range map[string]Found{
		"hf://acme/model/w.safetensors":      {URL: at + "/w.safetensors", Sum: sum, Size: 7000, Commit: commit},
		"hf://acme/model@v1/a b/w.bin":       {URL: at + "/a%20b/w.bin", Sum: sum, Size: 7000, Commit: commit},
		"hf://acme/model/config.json":        {URL: at + "/config.json", Size: 8, Commit: commit},
		"hf://datasets/acme/set/config.json": {URL: l.URL + "/datasets/acme/set/resolve/" + commit + "/config.json", Size: 8, Commit: commit},
		"hf://acme/old/w.safetensors":        {URL: l.URL + "/acme/old/resolve/" + commit + "/w.safetensors", Sum: sum, Size: 7000, Commit: commit},
	} {
		if got, err := find(t, l.client(token), name); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	for _, auth := range l.auth {
		if auth != "" {
			t.Error("a public file was asked for with the token")
		}
	}
	got, err := find(t, l.client(token), "hf://acme/gated/w.safetensors")
	if want := (Found{URL: l.cdn, Sum: sum, Size: 7000, Commit: commit}); err != nil || got != want {
		t.Errorf("a gated file: got %+v, %v, want %+v", got, err, want)
	}
	got, err = find(t, l.client(token), "hf://acme/gated/config.json")
	if err != nil || !got.Gated || got.Sum != "" {
		t.Fatalf("a small gated file: %+v, %v", got, err)
	}
	r, err := l.client(token).Open(t.Context(), got)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != `{"a": 1}` {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFindRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, want := range map[string]string{
		"hf://acme/gated/w.safetensors": "HF_TOKEN", "hf://acme/model/nothing": "status 404",
	} {
		if got, err := find(t, l.client(""), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	loop := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, req.URL.Path, http.StatusFound)
	}))
	t.Cleanup(loop.Close)
	if _, err := find(t, Client{Endpoint: loop.URL, HTTP: loop.Client()}, "hf://a/b/c"); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("redirects in a loop: %v", err)
	}
}

// A hub that sends elsewhere gets no token there, and its word for a digest is one or none.
func TestAttackHub(t *testing.T) {
	t.Parallel()
	asked := 0
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(other.Close)
	head := http.Header{}
	evil := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		for k, v := range head {
			w.Header()[k] = v
		}
		w.WriteHeader(http.StatusFound)
	}))
	t.Cleanup(evil.Close)
	c := Client{Endpoint: evil.URL, Token: token, HTTP: evil.Client()}
	sum := strings.Repeat("ab", 32)
	for name, test := range map[string]struct{ etag, location, wantSum, wantURL string }{
		"elsewhere":    {sum, other.URL + "/x", sum, other.URL + "/x"},
		"a path":       {sum, "/x", sum, evil.URL + "/a/b/resolve/main/c"},
		"no digest":    {"abc", other.URL + "/x", "", evil.URL + "/a/b/resolve/main/c"},
		"plain HTTP":   {sum, "http://example.org/x", sum, evil.URL + "/a/b/resolve/main/c"},
		"a local file": {sum, "file:///etc/passwd", sum, evil.URL + "/a/b/resolve/main/c"},
	} {
		head = http.Header{"X-Linked-Etag": {test.etag}, "Location": {test.location}, "X-Repo-Commit": {"../../x"}, "X-Linked-Size": {"-5"}}
		got, err := find(t, c, "hf://a/b/c")
		if err != nil || got.Sum != test.wantSum || got.URL != test.wantURL || got.Commit != "" || got.Size != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if asked != 0 {
		t.Error("a redirect was followed")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]File{
		"hf://acme/model/w.bin":            {"", "acme/model", "main", "w.bin"},
		"hf://acme/model@v1.0/a/b.bin":     {"", "acme/model", "v1.0", "a/b.bin"},
		"hf://datasets/acme/set/a.parquet": {"datasets", "acme/set", "main", "a.parquet"},
		"hf://spaces/acme/app/app.py":      {"spaces", "acme/app", "main", "app.py"},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "hf://", "hf://a", "hf://a/b", "hf://a/b/", "hf://a//c", "hf:///b/c", "hf://a/b@/c", "hf://a/b@../c", "hf://a/b/../c",
		"hf://a/b/c#d", "hf://a/b/c?d", "hf://a/b/c\n", "hf://a b/c/d", "https://a/b/c", "hf://datasets/a/b", "hf://a/b/" + strings.Repeat("c", maxName),
	} {
		if got, err := Parse(text); !errors.Is(err, ErrName) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := filepath.Join(dir, "token")
	if err := os.WriteFile(at, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env   map[string]string
		token string
		bad   bool
	}{
		"nothing":     {map[string]string{"HOME": filepath.Join(dir, "none")}, "", false},
		"a variable":  {map[string]string{"HF_TOKEN": "x", "HF_TOKEN_PATH": at}, "x", false},
		"a file":      {map[string]string{"HF_TOKEN_PATH": at}, token, false},
		"the login's": {map[string]string{"HF_HOME": dir}, token, false},
		"two lines":   {map[string]string{"HF_TOKEN": "x\r\ny"}, "", true},
		"plain HTTP":  {map[string]string{"HF_ENDPOINT": "http://example.org"}, "", true},
		"another hub": {map[string]string{"HF_ENDPOINT": "https://hub.example.org/", "HF_TOKEN": "x"}, "x", false},
		"with a user": {map[string]string{"HF_ENDPOINT": "https://a:b@hub.example.org"}, "", true},
	} {
		got, err := FromEnv(func(name string) string { return c.env[name] })
		if (err != nil) != c.bad || !c.bad && (got.Token != c.token || strings.HasSuffix(got.Endpoint, "/")) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
