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

	"github.com/starling-network/starling/testnet/scenarios"
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

// A choice has the images of its names, in the order of their runs, and knows no others.
func TestChoice(t *testing.T) {
	t.Parallel()
	for c, want := range map[Choice]int{
		{}: len(images) - 2, {All: true}: len(images), {Only: "nginx"}: 1, {Only: "notebook,user,", All: true}: 2,
	} {
		got, err := c.images()
		if err != nil || len(got) != want || c.Only == "" && got[0].name != scratchImage {
			t.Errorf("%+v: %+v, %v; want %d images", c, got, err, want)
		}
	}
	if _, err := (Choice{Only: "user,other"}).images(); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("an unknown image: %v", err)
	}
}

// The first line of a failed program is its own, and not the command's.
func TestComplaint(t *testing.T) {
	t.Parallel()
	const report = "image a:1 is sha256:0 now\njob j\nrunning, 0 of 1 ranks done\n"
	for want, said := range map[string]scenarios.Said{
		"out":   {Out: "out\nmore\n", Err: report + "error\n"},
		"error": {Err: report + "error\nj failed in 1s\n"},
	} {
		if got := complaint(said); got != want {
			t.Errorf("%+v: got %q, want %q", said, got, want)
		}
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
	const nobody = "127.0.0.1:1" // a port that no program of this machine may be given
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

// The templates that run here are known by their names, and each has a build context.
func TestChooseTemplates(t *testing.T) {
	t.Parallel()
	all, err := chooseTemplates("all")
	if err != nil || len(all) < 5 {
		t.Fatalf("%d templates, %v", len(all), err)
	}
	some, err := chooseTemplates("nginx,ffmpeg")
	if err != nil || len(some) != 2 || some[0].Name != "nginx" {
		t.Errorf("%v, %v", some, err)
	}
	if none, err := chooseTemplates(""); err != nil || none != nil {
		t.Errorf("%v, %v", none, err)
	}
	for _, name := range []string{"vllm", "torchrun", "wasm", "gone"} { // a GPU, a cluster, a module, unknown
		if _, err := chooseTemplates(name); err == nil {
			t.Errorf("%s is run", name)
		}
	}
	for _, a := range all {
		if err := (image{name: a.Name, from: a.Write}).write(t.TempDir()); err != nil {
			t.Errorf("%s: %v", a.Name, err)
		}
	}
}
