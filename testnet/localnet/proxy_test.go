package localnet

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestProxyPassesOnlyWhatItRead: what reaches the runtime is written anew from what was checked.
func TestProxyPassesOnlyWhatItRead(t *testing.T) {
	t.Parallel()
	var seen []string
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, string(body))
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"blockTime":1795215,"x":[1.50]}}`)
	}))
	defer runtime.Close()
	p, err := startProxy(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	send := func(body string) string { return string(p.answer(t.Context(), []byte(body))) }
	if got := send(`{"id":1,"method":"surfnet_setAccount"}`); !strings.Contains(got, "-32601") || len(seen) > 0 {
		t.Errorf("%s, passed on: %q", got, seen)
	}
	got := send(`{"jsonrpc":"1.0","id":1,"method":"getTransaction","params":["a"],"extra":{"method":"surfnet_setAccount"}}`)
	if want := `{"jsonrpc":"2.0","id":1,"method":"getTransaction","params":["a"]}`; len(seen) != 1 || seen[0] != want {
		t.Errorf("passed on %q, want %q", seen, want)
	}
	var fixed struct {
		Result struct {
			BlockTime int64
			X         json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(got), &fixed); err != nil || fixed.Result.BlockTime != 1795215000 || string(fixed.Result.X) != "[1.50]" {
		t.Errorf("%v: %s", err, got)
	}
	runtime.Close()
	if got := send(`{"id":1,"method":"getSlot"}`); !strings.Contains(got, "does not answer") {
		t.Error(got)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func FuzzCalls(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"getSlot","params":[]}`))
	f.Add([]byte(`[{"id":"a","method":"getSlot"},{"id":null,"method":"x"}]`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		calls, batch, err := parseCalls(b)
		if err != nil {
			return
		}
		var again []byte
		if batch {
			again, err = json.Marshal(calls)
		} else {
			again, err = json.Marshal(calls[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		second, batchAgain, err := parseCalls(again)
		if err != nil || batch != batchAgain || len(second) != len(calls) {
			t.Fatalf("%q is not read as it was written: %v", again, err)
		}
		for i := range calls {
			if calls[i].Method != second[i].Method || allowed[calls[i].Method] != allowed[second[i].Method] {
				t.Fatalf("method %q became %q", calls[i].Method, second[i].Method)
			}
		}
	})
}

func FuzzBlockTime(f *testing.F) {
	f.Add([]byte(`{"result":{"blockTime":1795215}}`))
	f.Add([]byte(`{"result":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out := fixBlockTime(b); json.Valid(b) && !json.Valid(out) {
			t.Fatalf("%q became %q", b, out)
		}
	})
}
