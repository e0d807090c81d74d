package peercmd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// world is a world of all commands, with the tests of this package.
type world struct{ *clitest.World }

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{clitest.NewWorld(t, rooms.Commands, p2p.NAT{})}
}

// TestPeer runs the commands on peers, keys of the API and the block list.
func TestPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.CLI(t, "run", "--wait", "paid", "--max-price", "1", filepath.Join(w.Files, "fail.wasm")).Want(t, cli.ExitFailed)
	t.Run("peer", func(t *testing.T) { w.testNode(t) })
	t.Run("keys", func(t *testing.T) { w.testKeys(t) })
	t.Run("block", func(t *testing.T) { w.testBlock(t) })
}

func peerID(t *testing.T, i int) string {
	t.Helper()
	id, err := peer.IDFromPrivateKey(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

func (w *world) testNode(t *testing.T) {
	w.CLI(t, "peer", "status").Want(t, cli.ExitOK, `^peer +12D3`, `^key +`+w.Owner.String(), `^addresses +/ip4/127.0.0.1/.*/p2p/12D3`, `^network +`+w.Genesis.Tag(),
		`^chain +answers$`, `^balance +\d+.\d+ STAR$`, `^units +sells nothing$`)
	w.CLI(t, "peer", "ls").Want(t, cli.ExitOK, `^KEY +PATH +DIR +RTT +SELLS +BUYS +AGENT`, `^\w{8} +direct +(in|out) .* starling/test +12D3\w+ +- +/ip4/127`)
	w.CLI(t, "peer", "ls", "-o", "yaml").Want(t, cli.ExitOK, `^ +provider:$`, `^ +score: \d+$`)
	w.CLI(t, "peer", "show", peerID(t, 99)).Want(t, cli.ExitOK, `^key +\w+`, `^as provider +0.0062 +a newcomer`, `^\+0.006\d\d\d +nothing known`, `^as buyer +0.0062`)
	w.CLI(t, "peer", "show", peerID(t, 99), "-o", "json").Want(t, cli.ExitOK, `"stranger": 6155`, `"adds": 6155`)
	w.CLI(t, "peer", "show", "nobody").Want(t, cli.ExitUsage, `neither a peer id`)
	facts := filepath.Join(t.TempDir(), "facts.json")
	w.CLI(t, "proof", "export", peerID(t, 99), facts, "--kind", "history").Want(t, cli.ExitOK, `wrote the proof to .*: others kept 0 leases`)
	w.CLI(t, "proof", "check", facts, "--offline").Want(t, cli.ExitOK, `^chain +not asked: --offline`, `^proves +others kept 0 leases`)
	w.CLI(t, "proof", "export", "nobody", "-", "--kind", "history").Want(t, cli.ExitUsage, `neither a peer id`)
	w.CLI(t, "peer", "ping", p2ptest.Key(9).GetPublic().Type().String()).Want(t, cli.ExitUsage, `neither a peer id`)
	w.CLI(t, "peer", "ping", "-c", "3", peerID(t, 0)).Want(t, cli.ExitOK, `^peer +12D3`, `^path +direct$`, `^round trips +3$`, `^avg +\d`)
	w.CLI(t, "peer", "ping", peerID(t, 99)).Want(t, cli.ExitUnreachable, `no address of peer 12D3.*\(no-address\)`, `^hint: give its whole address`)
	w.CLI(t, "peer", "ping", "/ip4/127.0.0.1/tcp/1/p2p/"+peerID(t, 99), "-o", "json").Want(t, cli.ExitUnreachable, `"reason": "offline"`)
	w.CLI(t, "peer", "ping", "-c", "0", peerID(t, 0)).Want(t, cli.ExitUsage)
	w.CLI(t, "peer", "status").Want(t, cli.ExitOK, `^reachable +local: only peers on this machine`)
	w.CLI(t, "offers").Want(t, cli.ExitOK, `^PROVIDER +CLASS +MODEL`, `^\w{8} +cpu +.* +local +\d+/16 +100m CPU 8MiB mem 8MiB disk +0.36 STAR .* yes +in \d+`)
	w.CLI(t, "offers", "--class", "NO").Want(t, cli.ExitUsage)
	w.CLI(t, "provider", "leases").Want(t, cli.ExitOK, `^earned +0.00 STAR$`)
	w.CLI(t, "wallet", "show").Want(t, cli.ExitOK, `^owner +`+w.Owner.String()+` +\d+\.\d+ STAR$`, `^fees +\d+\.\d+ SOL +of the peer$`)
	w.CLI(t, "peer", "status", "-o", "yaml").Want(t, cli.ExitOK, `^peer: 12D3`)
}

// A key sees and spends only its own.
func (w *world) testKeys(t *testing.T) {
	token := strings.TrimSpace(w.Must(t, "peer", "key", "add", "ci", "--per-day", "3", "--per-job", "2"))
	if r := w.CLI(t, "peer", "key", "add", "ci"); r.Code != int(cli.ExitUsage) || !strings.Contains(r.Err, "exists already") {
		t.Errorf("%+v", r)
	}
	if out := w.Must(t, "peer", "key", "ls"); !strings.Contains(out, "ci") || strings.Contains(out, token) {
		t.Errorf("%s", out)
	}
	if out := w.Must(t, "wallet", "spend"); !strings.Contains(out, "key ci") || !strings.Contains(out, "this peer") {
		t.Errorf("%s", out)
	}
	var ep api.Endpoint
	b, err := os.ReadFile(filepath.Join(w.Home, "api.json"))
	if err == nil {
		err = json.Unmarshal(b, &ep)
	}
	if err != nil {
		t.Fatal(err)
	}
	var page record.Page
	if err := json.Unmarshal([]byte(w.Must(t, "job", "history", "--limit", "1", "-o", "json")), &page); err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, ep.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := ep.HTTP().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	spec := page.Jobs[0].Spec
	for source := range spec.Blobs { // a key's jobs have the files that it uploaded
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if code, text := ask(http.MethodPost, "/v1/blobs", string(b)); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	submit := func(budget market.Amount) (int, string) {
		s := spec
		s.Payment.Budget, s.Payment.MaxPrice, s.Timeouts.Run, s.Restart.Backoff, s.Restart.Policy = budget, 1_000_000, 10*time.Hour, 0, ""
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return ask(http.MethodPost, "/v1/jobs", string(b))
	}
	for _, c := range []struct {
		name, method, path string
		want               int
	}{
		{"keys", http.MethodGet, "/v1/keys", 403}, {"a key", http.MethodPost, "/v1/keys", 403}, {"blocks", http.MethodGet, "/v1/blocks", 403},
		{"sold leases", http.MethodGet, "/v1/leases", 403}, {"another's job", http.MethodGet, "/v1/jobs/" + page.Jobs[0].ID, 404},
		{"another's log", http.MethodGet, "/v1/jobs/" + page.Jobs[0].ID + "/logs", 404}, {"another's end", http.MethodDelete, "/v1/jobs/" + page.Jobs[0].ID, 404},
		{"running another's", http.MethodPost, "/v1/jobs/" + page.Jobs[0].ID + "/rerun", 404},
		{"its jobs", http.MethodGet, "/v1/jobs", 200}, {"offers", http.MethodGet, "/v1/offers", 200}, {"its spending", http.MethodGet, "/v1/spend", 200},
	} {
		if code, text := ask(c.method, c.path, "{}"); code != c.want || c.want == 200 && strings.Contains(text, page.Jobs[0].ID) {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	if code, text := submit(2_500_000); code != http.StatusPaymentRequired || !strings.Contains(text, "per job") {
		t.Errorf("%d %s", code, text)
	}
	code, text := submit(1_900_000)
	var j record.Job
	if err := json.Unmarshal([]byte(text), &j); err != nil || code != http.StatusCreated || j.Key != "ci" {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	if code, _ := ask(http.MethodGet, "/v1/jobs/"+j.ID, ""); code != 200 {
		t.Errorf("its own job: %d", code)
	}
	w.Must(t, "peer", "key", "rm", "ci")
	if code, _ := ask(http.MethodGet, "/v1/jobs", ""); code != http.StatusUnauthorized {
		t.Errorf("a key that was ended: %d", code)
	}
	if r := w.CLI(t, "peer", "key", "rm", "ci"); r.Code != int(cli.ExitUsage) {
		t.Errorf("%+v", r)
	}
}

func (w *world) testBlock(t *testing.T) {
	var offers []api.OfferInfo
	if err := json.Unmarshal([]byte(w.Must(t, "offers", "-o", "json")), &offers); err != nil || len(offers) != 2 {
		t.Fatalf("%d offers: %v", len(offers), err)
	}
	p := offers[0].Provider.String()
	w.Must(t, "peer", "block", "add", p, "--reason", "snores", "--as", "provider")
	if out := w.Must(t, "peer", "block", "ls"); !strings.Contains(out, p) || !strings.Contains(out, "snores") {
		t.Errorf("%s", out)
	}
	w.CLI(t, "run", "--max-price", "1", filepath.Join(w.Files, "fail.wasm"))
	var page record.Page
	if err := json.Unmarshal([]byte(w.Must(t, "job", "history", "--limit", "1", "-o", "json")), &page); err != nil {
		t.Fatal(err)
	}
	if out := w.Must(t, "why", page.Jobs[0].ID); !strings.Contains(out, "blocked by you: snores") || page.Jobs[0].Ranks[0].Provider.String() == p {
		t.Errorf("%s", out)
	}
	w.Must(t, "peer", "block", "rm", p[:8])
	var q record.Quotation
	short := w.CLI(t, "run", "--dry-run", "--max-price", "1", "--exclude", p[:8], filepath.Join(w.Files, "fail.wasm"), "-o", "json").Want(t, cli.ExitOK)
	if err := json.Unmarshal([]byte(short.Out), &q); err != nil {
		t.Fatal(err)
	}
	for _, o := range q.Quotes {
		if o.Provider.String() == p && o.Ranks > 0 {
			t.Errorf("not excluded by the beginning of its key: %s", short.Out)
		}
	}
	w.CLI(t, "peer", "show", p[:8]).Want(t, cli.ExitOK, `^key +`+p)
	w.CLI(t, "peer", "ping", "-c", "1", p[:10]).Want(t, cli.ExitOK, `^path +direct$`)
	w.CLI(t, "peer", "show", p[:7]).Want(t, cli.ExitUsage, `neither a peer id`)
	w.CLI(t, "peer", "block", "add", "zzzzzzzz").Want(t, cli.ExitUsage, `no peer known here has a key that begins so`, `^hint: .starling peer ls. lists`)
	for _, args := range [][]string{{"add", "nobody"}, {"rm", p}, {"add", p, "--as", "king"}} {
		if r := w.CLI(t, append([]string{"peer", "block"}, args...)...); r.Code != int(cli.ExitUsage) {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
