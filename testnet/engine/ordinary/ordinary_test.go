//go:build linux

package ordinary

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Every folder of images is one that runs, and its Dockerfile is an ordinary one on the base.
func TestImages(t *testing.T) {
	t.Parallel()
	folders, err := fs.ReadDir(contexts, "images")
	if err != nil {
		t.Fatal(err)
	}
	var found, known []string
	for _, f := range folders {
		found = append(found, f.Name())
		text, err := fs.ReadFile(contexts, "images/"+f.Name()+"/Dockerfile")
		if err != nil || !strings.HasPrefix(string(text), "FROM "+base+"\n") || strings.Contains(strings.ToLower(string(text)), "starling") {
			t.Errorf("%s: %v: not an ordinary image on %s", f.Name(), err, base)
		}
	}
	for _, i := range images {
		known = append(known, i.name)
		if i.want == "" {
			t.Errorf("%s: nothing is wanted", i.name)
		}
	}
	slices.Sort(known)
	if !slices.Equal(found, known) {
		t.Errorf("folders %q, images %q", found, known)
	}
}

// The proxy passes requests and tunnels on, and says why it cannot.
func TestProxy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(l)
	defer p.close()
	at, err := url.Parse(p.url())
	if err != nil {
		t.Fatal(err)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Path", req.URL.Path)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "answer", req.Header.Get("Proxy-Authorization"))
	})
	plain, secret := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secret.Close()
	for _, server := range []*httptest.Server{plain, secret} {
		client := server.Client()
		transport := client.Transport.(*http.Transport).Clone()
		transport.Proxy = http.ProxyURL(at)
		req, err := http.NewRequest(http.MethodGet, server.URL+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Proxy-Authorization", "hush")
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		transport.CloseIdleConnections()
		if want := "answer"; err != nil || res.StatusCode != http.StatusTeapot || res.Header.Get("Path") != "/a" ||
			server == plain && string(body) != want || !strings.HasPrefix(string(body), want) {
			t.Errorf("%s: %s %q, %v", server.URL, res.Status, body, err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	_ = free.Close()
	for _, scheme := range []string{"http://", "https://"} {
		transport := &http.Transport{Proxy: http.ProxyURL(at)}
		req, err := http.NewRequest(http.MethodGet, scheme+nobody, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err == nil && res.StatusCode != http.StatusBadGateway {
			t.Errorf("of a server that is not there: %s", res.Status)
		}
		if err == nil {
			_ = res.Body.Close()
		} else if scheme == "http://" {
			t.Error(err)
		}
	}
}
