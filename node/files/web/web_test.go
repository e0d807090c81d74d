package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob"
)

// site is an HTTPS server on loopback, with a store to read into.
type site struct {
	*testing.T
	*httptest.Server
	store *blob.Store
	asked atomic.Int64
}

func newSite(t *testing.T, serve http.HandlerFunc) *site {
	t.Helper()
	s := &site{T: t}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.asked.Add(1)
		serve(w, req)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	var err error
	if s.store, err = blob.OpenStore(t.TempDir(), 1<<30); err != nil {
		t.Fatal(err)
	}
	return s
}

// host is the site as its operator names it.
func (s *site) host() string { return strings.TrimPrefix(s.URL, Scheme) }

// client is one for which the sites are its operator's.
func client(t *testing.T, sites ...*site) *Client {
	t.Helper()
	cfg := Config{Roots: x509.NewCertPool()}
	for _, s := range sites {
		cfg.Hosts = append(cfg.Hosts, s.host())
		cfg.Roots.AddCert(s.Certificate())
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.pace.pause = time.Millisecond
	return c
}

// read reads a file of the site into its store.
func (s *site) read(c *Client, of cid.Cid, size, most int64, urls ...string) error {
	s.Helper()
	_, err := s.store.Receive(s.Context(), c.File(urls, size), of, most, nil, nil)
	return err
}

// nothing checks that the store holds nothing of a blob.
func (s *site) nothing(of cid.Cid) {
	s.Helper()
	if s.store.Has(of) || s.store.Used() != 0 {
		s.Errorf("the store has it: %v, %d bytes", s.store.Has(of), s.store.Used())
	}
}

func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// told is the text of an error for a buyer.
func told(err error) string {
	var f *Failure
	if errors.As(err, &f) {
		return f.Told()
	}
	return ""
}

// A file arrives whole, whatever the server says of its size and however its connections break.
func TestFile(t *testing.T) {
	t.Parallel()
	data := noise(t, 3<<20)
	of := blob.Sum(data)
	for name, serve := range map[string]func(n int64, w http.ResponseWriter, req *http.Request){
		"at once": func(_ int64, w http.ResponseWriter, req *http.Request) {
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
		},
		"without a length": func(_ int64, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(data[:1000])
			w.(http.Flusher).Flush()
			_, _ = w.Write(data[1000:])
		},
		"in parts": func(n int64, w http.ResponseWriter, req *http.Request) {
			if n < 4 {
				w = &short{w, 1 << 19}
			}
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
		},
		"by a server that cannot resume": func(n int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			if n < 2 {
				w = &short{w, 1 << 19}
			}
			_, _ = w.Write(data)
		},
		"by a busy server": func(n int64, w http.ResponseWriter, _ *http.Request) {
			if n < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write(data)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			s := newSite(t, func(w http.ResponseWriter, req *http.Request) { serve(n.Add(1), w, req) })
			if err := s.read(client(t, s), of, 0, int64(len(data)), s.URL+"/w.bin"); err != nil || !s.store.Has(of) {
				t.Error(err)
			}
		})
	}
}

// short is an answer that breaks after so many bytes.
type short struct {
	http.ResponseWriter
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if len(p) > s.left {
		_, _ = s.ResponseWriter.Write(p[:s.left])
		s.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	s.left -= len(p)
	return s.ResponseWriter.Write(p)
}

// Of several URLs the first that has the file is read.
func TestSeveralURLs(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/there" {
			http.NotFound(w, req)
			return
		}
		_, _ = io.WriteString(w, "text")
	})
	c, of := client(t, s), blob.Sum([]byte("text"))
	if err := s.read(c, of, 4, 4, s.URL+"/a", s.URL+"/b", s.URL+"/there"); err != nil {
		t.Error(err)
	}
	if got, size, err := c.Sum(t.Context(), s.URL+"/there", nil); err != nil || got != of || size != 4 {
		t.Errorf("%v, %d bytes, %v", got, size, err)
	}
	if _, _, err := c.Sum(t.Context(), s.URL+"/a", nil); !errors.Is(err, ErrAbsent) || !strings.Contains(told(err), "404") {
		t.Errorf("a missing file: %v", err)
	}
}

// The signature of a URL is in no error, nor in its cause, which is logged.
func TestAttackSignatureInErrors(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/loop":
			http.Redirect(w, req, "/loop?signature=secret", http.StatusFound)
		case "/out":
			http.Redirect(w, req, "https://127.0.0.1:1/w?signature=secret", http.StatusFound)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	c := client(t, s)
	for _, at := range []string{"https://127.0.0.1:1/w", "https://nowhere.invalid/w", s.URL + "/loop", s.URL + "/out", s.URL + "/denied"} {
		_, _, err := c.Sum(t.Context(), at+"?signature=secret", nil)
		var f *Failure
		if !errors.As(err, &f) || strings.Contains(fmt.Sprint(err, f.Cause, f.Told()), "secret") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// A redirect is followed with no more of the request than its path: not with the signed URL that led there.
func TestAttackRefererOfSignedURL(t *testing.T) {
	t.Parallel()
	var heard http.Header
	other := newSite(t, func(w http.ResponseWriter, req *http.Request) {
		heard = req.Header.Clone()
		_, _ = io.WriteString(w, "text")
	})
	s := newSite(t, func(w http.ResponseWriter, req *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		http.Redirect(w, req, other.URL+"/cdn", http.StatusFound)
	})
	if err := s.read(client(t, s, other), blob.Sum([]byte("text")), 0, 100, s.URL+"/w?signature=secret"); err != nil {
		t.Fatal(err)
	}
	for name := range heard {
		if name != "User-Agent" && name != "Accept-Encoding" {
			t.Errorf("it was asked with %s: %s", name, heard.Get(name))
		}
	}
}

// Whatever a server sends, nothing but the file becomes visible, and it sends no more than the file may have.
func TestAttackServers(t *testing.T) {
	t.Parallel()
	data := noise(t, 1<<20)
	zeros := make([]byte, 64<<10)
	endless := func(w io.Writer) {
		for {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
	}
	for name, test := range map[string]struct {
		size  int64 // declared
		serve http.HandlerFunc
		want  error
	}{
		"an endless stream":                 {0, func(w http.ResponseWriter, _ *http.Request) { endless(w) }, blob.ErrTooLarge},
		"an endless stream of a known size": {1 << 20, func(w http.ResponseWriter, _ *http.Request) { endless(w) }, blob.ErrDigest},
		"a huge length": {0, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9000000000000000000")
			endless(w)
		}, blob.ErrTooLarge},
		"another length": {1 << 20, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(data[:1000])
		}, ErrAbsent},
		"less than its length": {0, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1048576")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, ErrUnread},
		"other bytes":    {1 << 20, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }, blob.ErrDigest},
		"fewer bytes":    {1 << 20, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); _, _ = w.Write(data[:1<<19]) }, ErrAbsent},
		"a page":         {0, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, blob.ErrDigest},
		"no permission":  {0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, ErrAbsent},
		"nothing":        {0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, ErrAbsent},
		"errors forever": {0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, ErrUnread},
		"a gzip bomb": {0, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			endless(w)
		}, ErrAbsent},
		"redirects in a loop": {0, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, req.URL.Path, http.StatusFound)
		}, ErrUnread},
		"long headers": {0, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, ErrUnread},
		"another part": {0, func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Range") == "" {
				(&short{w, 1000}).Write(data)
			}
			w.Header().Set("Content-Range", "bytes 0-9/1048576")
			w.WriteHeader(http.StatusPartialContent)
		}, ErrAbsent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, test.serve)
			of := blob.Sum(data)
			if err := s.read(client(t, s), of, test.size, 1<<20, s.URL+"/w.bin"); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			s.nothing(of)
			if n := s.asked.Load(); n > 2*(maxBreaks+1) {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// A server that sends a byte now and then holds a download for a bounded time.
func TestAttackSlowServers(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]bool{"with an answer": true, "without an answer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(w http.ResponseWriter, req *http.Request) {
				for head {
					if _, err := w.Write([]byte{0}); err != nil {
						return
					}
					w.(http.Flusher).Flush()
					select {
					case <-req.Context().Done():
						return
					case <-time.After(time.Millisecond):
					}
				}
				<-req.Context().Done()
			})
			c := client(t, s)
			c.pace.open, c.pace.stall = 50*time.Millisecond, 50*time.Millisecond
			if !head {
				c.pace.stall = time.Hour
			}
			of := blob.Sum([]byte("x"))
			if err := s.read(c, of, 0, 1<<30, s.URL+"/w.bin"); !errors.Is(err, errStalled) && !errors.Is(err, ErrUnread) {
				t.Error(err)
			}
			s.nothing(of)
		})
	}
}

// No URL, and nothing that it refers to, leads into this machine's network, and its author cannot distinguish the
// addresses there.
func TestAttackURLsLeadInside(t *testing.T) {
	t.Parallel()
	victim := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })
	of := blob.Sum([]byte("text"))
	said := map[string]bool{}
	for _, to := range []string{
		victim.URL + "/w", "https://127.0.0.1:1/w", "https://localhost:22/w", "https://169.254.169.254/latest/meta-data",
		"https://10.0.0.1/w", "https://[::1]:80/w", "https://[::ffff:127.0.0.1]/w", "https://0.0.0.0/w", "https://nowhere.invalid/w",
		"http://" + victim.host() + "/w", "https://user:password@" + victim.host() + "/w", "file:///etc/passwd",
	} {
		// By a redirect of another host of the operator's, of which the victim is none.
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		c := client(t, s)
		c.roots.AddCert(victim.Certificate())
		err := s.read(c, of, 0, 100, s.URL+"/w")
		if err == nil || !errors.Is(err, ErrUnread) {
			t.Errorf("redirect to %s: %v", to, err)
		}
		s.nothing(of)
		said[strings.ReplaceAll(told(err), s.URL, "URL")] = true
		// Directly.
		if Check(to) != nil {
			continue
		}
		if err := s.read(c, of, 0, 100, to); !errors.Is(err, ErrUnread) {
			t.Errorf("%s: %v", to, err)
		} else {
			said[strings.ReplaceAll(told(err), Public(to), "URL/w")] = true
		}
	}
	if len(said) != 1 {
		t.Errorf("%d answers: %v", len(said), said)
	}
	if n := victim.asked.Load(); n != 0 {
		t.Errorf("the victim was asked %d times", n)
	}
}

// A certificate of nobody is refused, and not asked for again.
func TestAttackCertificates(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })
	c := client(t, s)
	c.roots = x509.NewCertPool()
	of := blob.Sum([]byte("text"))
	if err := s.read(c, of, 0, 100, s.URL); !errors.Is(err, ErrUnread) || s.asked.Load() != 0 {
		t.Errorf("asked %d times, %v", s.asked.Load(), err)
	}
	s.nothing(of)
}

// A buyer's text of an error, and its log, have no signature.
func TestPublic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://h/a?X-Amz-Signature=abc": "https://h/a", "https://h/a": "https://h/a",
		"https://h/" + strings.Repeat("a", 300): "https://h/" + strings.Repeat("a", 187) + "…",
	} {
		if got := Public(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
		if Signed(text) != strings.Contains(text, "?") {
			t.Errorf("%s: signed is %v", text, Signed(text))
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"https://example.org/w.bin": true, "https://example.org:8443/a/b?x=y%20z": true, "https://[2606:4700::1]/w": true,
		"https://example.org": true, "http://example.org/w": false, "ftp://example.org/w": false, "https:///w": false, "https:w": false,
		"https://a:b@example.org/w": false, "https://a@example.org/w": false, "https://example.org/w#x": false,
		"https://example.org:0/w": false, "https://example.org:99999/w": false, "https://example.org/a b": false,
		"https://example.org/ü": false, "https://example.org/\n": false, "": false, "/etc/passwd": false,
		"https://example.org/" + strings.Repeat("a", MaxURL): false,
	} {
		if err := Check(text); (err == nil) != good {
			t.Errorf("%.60q: %v", text, err)
		}
	}
	for host, good := range map[string]bool{
		"data.lan": true, "10.0.0.1:9000": true, "[fd00::1]:9000": true, "": false, "a/b": false, "a@b": false, "https://a": false, "a b": false,
	} {
		if _, err := New(Config{Hosts: []string{host}}); (err == nil) != good {
			t.Errorf("host %q: %v", host, err)
		}
	}
}

func TestParseRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int64{"bytes 5-9/10": {5, 10}, "bytes 0-0/*": {0, -1}} {
		if from, total, err := parseRange(text); err != nil || from != want[0] || total != want[1] {
			t.Errorf("%q: %d, %d, %v", text, from, total, err)
		}
	}
	for _, text := range []string{"", "bytes", "bytes 5", "bytes */10", "bytes -5-9/10", "bytes a-9/10", "bytes 5-9/x", "bytes 9-9/5", "bytes 5-9/-1"} {
		if _, _, err := parseRange(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// A buyer has few of the places among the downloads, and none after many failures.
func TestAdmit(t *testing.T) {
	t.Parallel()
	c := client(t)
	var leave []func(error)
	enter := func(buyer string) bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done, err := c.Admit(ctx, buyer)
		if err == nil {
			leave = append(leave, done)
		}
		return err == nil
	}
	for i := range maxPerBuyer + 1 {
		if enter("one") != (i < maxPerBuyer) {
			t.Fatalf("one buyer has %d places", i)
		}
	}
	for i := range maxRunning {
		if enter(fmt.Sprint(i)) != (i < maxRunning-maxPerBuyer) {
			t.Fatalf("%d places", i+maxPerBuyer)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { // waits for a place
		done, err := c.Admit(t.Context(), "last")
		if err != nil {
			t.Error(err)
			return
		}
		done(nil)
	})
	for _, done := range leave {
		done(nil)
	}
	wg.Wait()
	if c.desk.running != 0 || len(c.desk.of) != 0 {
		t.Errorf("%d run, %v", c.desk.running, c.desk.of)
	}
}

func TestAttackFailingDownloads(t *testing.T) {
	t.Parallel()
	c := client(t)
	for i := range maxFailures {
		done, err := c.Admit(t.Context(), "evil")
		if err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		done(errors.New("failed"))
	}
	if _, err := c.Admit(t.Context(), "evil"); !errors.Is(err, ErrUnread) {
		t.Errorf("after %d failures: %v", maxFailures, err)
	}
	if done, err := c.Admit(t.Context(), "honest"); err != nil {
		t.Error(err)
	} else {
		done(nil)
	}
	f := c.desk.failing["evil"]
	f.since = f.since.Add(-failWindow)
	c.desk.failing["evil"] = f
	if done, err := c.Admit(t.Context(), "evil"); err != nil {
		t.Errorf("later: %v", err)
	} else {
		done(nil)
	}
	for i := range maxFailing + 10 {
		done, err := c.Admit(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		done(errors.New("failed"))
	}
	if n := len(c.desk.failing); n > maxFailing {
		t.Errorf("%d buyers are remembered", n)
	}
}
