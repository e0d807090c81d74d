package forward

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Only calls that a Ledger needs reach the server, written anew; what goes wrong is an answer without the server's URL.
func TestForwarder(t *testing.T) {
	t.Parallel()
	var seen []string
	answer, status := `{"jsonrpc":"2.0","id":1,"result":7}`, http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen = append(seen, string(b))
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer srv.Close()
	f, err := New([]string{"http://127.0.0.1:1", srv.URL + "/secret"}, 100)
	if err != nil {
		t.Fatal(err)
	}
	call := func(body string) string {
		t.Helper()
		b, err := f.Call(t.Context(), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "secret") || !json.Valid(b) {
			t.Errorf("%s answers %s", body, b)
		}
		return string(b)
	}
	if got := call(`{"jsonrpc":"1.0", "id":1,"method":"getSlot","params":[{"commitment":"confirmed"}],"more":true}`); got != answer {
		t.Errorf("answer %s", got)
	}
	if want := `{"jsonrpc":"2.0","id":1,"method":"getSlot","params":[{"commitment":"confirmed"}]}`; len(seen) != 1 || seen[0] != want {
		t.Errorf("the server saw %q", seen)
	}
	call(`{"id":1,"method":"getBlock","params":[9,{"transactionDetails":"full","TRANSACTIONDETAILS":"none","rewards":true}]}`)
	if want := `{"jsonrpc":"2.0","id":1,"method":"getBlock","params":[9,{"commitment":"finalized","maxSupportedTransactionVersion":0,"rewards":false,"transactionDetails":"none"}]}`; seen[len(seen)-1] != want {
		t.Errorf("for a block the server was asked %s", seen[len(seen)-1])
	}
	seen = seen[:1]
	for body, want := range map[string]string{
		`{"id":1,"method":"getBlock"}`:                                          "-32600",
		`{"id":1,"method":"getBlock","params":["9"]}`:                           "-32600",
		`{"id":1,"method":"requestAirdrop"}`:                                    "-32601",
		`{"id":1,"method":"surfnet_setAccount"}`:                                "-32601",
		`{"id":1,"method":"getProgramAccounts"}`:                                "-32601",
		`[{"id":1,"method":"getSlot"}]`:                                         "-32600",
		`{"id":"` + strings.Repeat("x", maxForwardID) + `","method":"getSlot"}`: "-32600",
		`{`: "-32600",
		``:  "-32600",
	} {
		if got := call(body); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", body, got, want)
		}
	}
	if len(seen) != 1 {
		t.Errorf("the server saw %q", seen[1:])
	}
	answer = `"` + strings.Repeat("x", 200) + `"`
	if got := call(`{"id":1,"method":"getSlot"}`); !strings.Contains(got, "larger") {
		t.Errorf("a large answer: %s", got)
	}
	answer = `{`
	if got := call(`{"id":1,"method":"getSlot"}`); !strings.Contains(got, "not JSON") {
		t.Errorf("a broken answer: %s", got)
	}
	status = http.StatusTooManyRequests
	if got := call(`{"id":1,"method":"getSlot"}`); !strings.Contains(got, "429") {
		t.Errorf("a busy server: %s", got)
	}
	if _, err := New([]string{"ftp://x"}, 1); err == nil {
		t.Error("a forwarder to no RPC server")
	}
}

func FuzzReadCall(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"getSlot","params":[]}`))
	f.Add([]byte(`{"id":"a","method":"sendTransaction","params":["AQ==",{"encoding":"base64"}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, code, err := readCall(body)
		if err != nil {
			if code == 0 || !json.Valid(failure(c.ID, code, err.Error())) {
				t.Fatalf("refused with %d: %v", code, err)
			}
			return
		}
		once, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := readCall(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s is read as %s (%v)", once, twice, err)
		}
	})
}
