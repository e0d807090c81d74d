package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// proxyOf serves a proxy before a head, and returns where.
func proxyOf(t *testing.T, cfg Config, failed func(error)) string {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	at, err := netip.ParseAddrPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Handler = NewProxy(at, cfg, failed)
	s.Start()
	t.Cleanup(s.Close)
	return at.String()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	head := configOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			var up websocket.Upgrader
			if conn, err := up.Upgrade(w, r, nil); err == nil {
				_ = conn.WriteMessage(websocket.TextMessage, []byte(r.Header.Get("Authorization")))
				conn.Close()
			}
			return
		}
		fmt.Fprint(w, r.Method, " ", r.URL, " ", r.Header.Values("Authorization"), r.Header.Values("X-Ray-Authorization"), r.Header.Values("Cookie"))
	}))
	at := proxyOf(t, head, func(err error) { t.Error(err) })
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		method string
		url    string
		host   string
		header map[string]string
		want   string // "": refused
	}{
		{"the cli", "POST", "/api/jobs/", at, nil, "POST /api/jobs/"},
		{"localhost", "GET", "/api/version?x=1", "localhost:" + port, nil, "GET /api/version?x=1"},
		{"IPv6", "GET", "/", "[::1]:" + port, nil, "GET /"},
		{"another token", "GET", "/", at, map[string]string{"Authorization": "Bearer x", "X-Ray-Authorization": "Bearer x", "Cookie": "a=b; ray-authentication-token=x"}, "GET / [Bearer " + token + "] [] [a=b]"},
		{"the page itself", "POST", "/api/x", at, map[string]string{"Origin": "http://" + at, "Sec-Fetch-Site": "same-origin"}, "POST /api/x"},
		{"typed in", "GET", "/", at, map[string]string{"Sec-Fetch-Site": "none"}, "GET /"},
		{"a link to it", "GET", "/", at, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, "GET /"},
		{"rebinding", "GET", "/", "evil.example:" + port, nil, ""},
		{"rebinding to a name like ours", "GET", "/", "127.0.0.1.evil.example:" + port, nil, ""},
		{"another address", "GET", "/", "192.168.1.2:" + port, nil, ""},
		{"another port", "GET", "/", "127.0.0.1:1", nil, ""},
		{"no port", "GET", "/", "127.0.0.1", nil, ""},
		{"forgery", "POST", "/api/jobs/", at, map[string]string{"Origin": "https://evil.example"}, ""},
		{"forgery of a sandbox", "POST", "/api/jobs/", at, map[string]string{"Origin": "null"}, ""},
		{"forgery of another port", "POST", "/api/jobs/", at, map[string]string{"Origin": "http://127.0.0.1:1"}, ""},
		{"an image", "GET", "/api/x", at, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, ""},
		{"a link to the API", "GET", "/api/x", at, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, ""},
		{"a frame", "GET", "/", at, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, ""},
		{"another service here", "GET", "/api/x", at, map[string]string{"Sec-Fetch-Site": "same-site"}, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+at+c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want == "" && (resp.StatusCode != http.StatusForbidden || !strings.HasPrefix(string(b), "starling: ")):
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, b)
		case c.want != "" && (resp.StatusCode != 200 || !strings.HasPrefix(string(b), c.want) || !strings.Contains(string(b), "[Bearer "+token+"] []")):
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, b)
		}
	}
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+at+"/ws", http.Header{"Origin": {"http://" + at}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, b, err := conn.ReadMessage(); err != nil || string(b) != "Bearer "+token {
		t.Errorf("%q, %v", b, err)
	}
	if _, resp, err := websocket.DefaultDialer.Dial("ws://"+at+"/ws", http.Header{"Origin": {"http://evil.example"}}); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a stream of another origin: %v", err)
	}
}

// The head's silence is told to whoever asks, and to the user.
func TestProxyAlone(t *testing.T) {
	t.Parallel()
	told := make(chan error, 1)
	at := proxyOf(t, Config{Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("the rank is replaced") }}, func(err error) { told <- err })
	resp, err := http.Get("http://" + at + "/api/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(b), "the rank is replaced") {
		t.Errorf("%d %s, %v", resp.StatusCode, b, err)
	}
	if err := <-told; err == nil || !strings.Contains(err.Error(), "the rank is replaced") {
		t.Error(err)
	}
}
