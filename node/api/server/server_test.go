package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server/proofs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/reputation"
)

func spec() job.Job {
	return job.Job{
		Name: "test", Runtime: job.RuntimeWasm, Module: "a.wasm", Count: 2, Resources: job.Resources{Class: "cpu", Units: 1},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Minute}, Payment: job.Payment{MaxPrice: 1, Budget: 1, Decimals: 6},
	}
}

// bindings binds every route to the fake.
func bindings(f *fake) []route.Bound {
	return slices.Concat(BindJobs(f), BindRecords(f), BindClusters(f), BindPrograms(f, p2ptest.Quiet()), BindLifetimes(f), BindRemoval(remover{f}, f), BindCopies(copied{f}), BindBlobs(f), BindKeys(f),
		BindPeer(f), BindHealth(f), BindBlocks(f), BindMarket(f), BindOperator(f), BindShelf(f), proofs.Bind(&f.proofs), proofs.BindJobs(f), proofs.BindAudits(f),
		proofs.BindRewards(f), BindMetrics(f))
}

// withToken is a client of the same peer with another token.
func withToken(c *api.Client, token string) *api.Client {
	ep := c.Endpoint()
	ep.Token = token
	return api.New(ep)
}

// ask sends a request as it is.
func ask(t *testing.T, c *api.Client, method, path, body string, header http.Header) error {
	t.Helper()
	resp, err := c.Do(t.Context(), method, path, strings.NewReader(body), header)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// serve runs the API over the fake and returns a client and its home.
func serve(t *testing.T, f *fake) (*api.Client, string) {
	t.Helper()
	home := t.TempDir()
	s, err := Listen("", filepath.Join(home, "api.json"), f, bindings(f), p2ptest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, s.Run)
	c, err := api.Dial(home, "api.json")
	if err != nil {
		t.Fatal(err)
	}
	return c, home
}

func stop(t *testing.T, c *api.Client, id string) error {
	t.Helper()
	_, err := api.StopJob.Call(t.Context(), c, api.ByID{ID: id})
	return err
}

// wantError checks status and code of an error of the API.
func wantError(t *testing.T, err error, status int, code string) {
	t.Helper()
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Status != status || e.Code != code {
		t.Errorf("got %#v, want status %d, code %s", err, status, code)
	}
}

func TestListenOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "localhost:0", "nonsense"} {
		if _, err := Listen(addr, filepath.Join(t.TempDir(), "api.json"), newFake(), bindings(newFake()), p2ptest.Quiet()); err == nil {
			t.Errorf("listens on %q", addr)
		}
	}
}

func TestEndpointFile(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"socket": "", "TCP": "127.0.0.1:0"} {
		t.Run(name, func(t *testing.T) { testEndpointFile(t, addr) })
	}
}

func testEndpointFile(t *testing.T, addr string) {
	home := t.TempDir()
	if _, err := api.Dial(home, "api.json"); !errors.Is(err, api.ErrNoPeer) {
		t.Errorf("no peer: %v", err)
	}
	s, err := Listen(addr, filepath.Join(home, "api.json"), newFake(), bindings(newFake()), p2ptest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(home, "api.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	c, err := api.Dial(home, "api.json")
	if err != nil || c.PID() != os.Getpid() {
		t.Fatalf("%v", err)
	}
	stop := p2ptest.Go(t, s.Run)
	if _, err := api.GetNode.Call(t.Context(), c, api.None{}); err != nil {
		t.Error(err)
	}
	stop()
	if _, err := os.Stat(filepath.Join(home, "api.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the token's file outlives the peer: %v", err)
	}
	if _, err := api.GetNode.Call(t.Context(), c, api.None{}); !errors.Is(err, api.ErrNoPeer) {
		t.Errorf("after its end: %v", err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	for _, path := range []string{"/healthz", "/v1/openapi.json", "/metrics"} {
		resp, err := c.Endpoint().HTTP().Get(c.Endpoint().URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s without a token: %s", path, resp.Status)
		}
	}
	good := c.Endpoint().Token
	for _, token := range []string{"", "x", good[1:], good + "0", strings.ToUpper(good) + " "} {
		_, err := withToken(c, token).Jobs(t.Context(), record.Query{})
		wantError(t, err, http.StatusUnauthorized, "unauthorized")
	}
	if _, err := c.Jobs(t.Context(), record.Query{}); err != nil {
		t.Error(err)
	}
}

// The health is an answer of its own, with status 503 and the list of problems if there are any.
func TestHealth(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	for _, problems := range [][]api.Fault{{}, {{Service: "slots", Problem: "chain down", Remedy: "name another"}}} {
		f.problems = problems
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Endpoint().URL+"/v1/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+c.Endpoint().Token)
		resp, err := c.Endpoint().HTTP().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		var got api.Health
		err = json.NewDecoder(resp.Body).Decode(&got)
		want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[len(problems) == 0]
		if resp.Body.Close(); err != nil || resp.StatusCode != want || got.Healthy != (len(problems) == 0) ||
			!slices.Equal(got.Problems, problems) || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("status %d, %+v, %v; want %d, %v", resp.StatusCode, got, err, want, problems)
		}
	}
}

func TestOperator(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	ctx := t.Context()
	for _, say := range []struct {
		do   func() (api.OwnOffers, error)
		want string
	}{
		{func() (api.OwnOffers, error) { return api.PauseOffers.Call(ctx, c, api.None{}) }, "paused"},
		{func() (api.OwnOffers, error) { return api.DrainOffers.Call(ctx, c, api.None{}) }, "draining"},
		{func() (api.OwnOffers, error) { return api.ResumeOffers.Call(ctx, c, api.ResumeRequest{}) }, "selling "},
		{func() (api.OwnOffers, error) {
			return api.ResumeOffers.Call(ctx, c, api.ResumeRequest{Devices: []string{"GPU-1", "GPU-2"}})
		}, "selling GPU-1 GPU-2"},
		{func() (api.OwnOffers, error) {
			return api.PriceOffer.Call(ctx, c, api.PriceRequest{Class: "gpu/h100", Price: 7})
		}, "gpu/h100 7"},
		{func() (api.OwnOffers, error) { return api.GetOwnOffers.Call(ctx, c, api.None{}) }, "gpu/h100 7"},
	} {
		if o, err := say.do(); err != nil || o.State != say.want {
			t.Errorf("%+v, %v, want %q", o, err, say.want)
		}
	}
	for _, body := range []string{"", "[]", `{"unknown":1}`, `{"price":-1}`} {
		wantError(t, ask(t, c, http.MethodPost, "/v1/offers/own/price", body, nil), http.StatusBadRequest, "bad_request")
	}
	f.err = &api.Error{Status: http.StatusConflict, Code: "sells_nothing", Message: "this peer sells nothing"}
	_, err := api.PauseOffers.Call(ctx, c, api.None{})
	wantError(t, err, http.StatusConflict, "sells_nothing")
	_, err = api.GetOwnOffers.Call(ctx, c, api.None{})
	wantError(t, err, http.StatusConflict, "sells_nothing")
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	j, err := c.Submit(t.Context(), spec(), job.Values{}, "once")
	if err != nil || j.ID != f.job.ID || f.keys["once"] != 1 {
		t.Errorf("%v, %v, %v", j, err, f.keys)
	}
	post := func(body, key string) error {
		return ask(t, c, http.MethodPost, "/v1/jobs", body, http.Header{"Idempotency-Key": {key}})
	}
	for _, body := range []string{"", "{}", "null", `{"name":"x","unknown":1}`, strings.Repeat("[", 10000)} {
		wantError(t, post(body, ""), http.StatusBadRequest, "bad_job")
	}
	wantError(t, post(strings.Repeat(" ", api.MaxJob+1), ""), http.StatusRequestEntityTooLarge, "too_large")
	good, err := job.Marshal(spec())
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, post(string(good), strings.Repeat("k", 129)), http.StatusBadRequest, "bad_key")
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("%w: no", record.ErrRefused), http.StatusUnprocessableEntity, "refused"},
		{fmt.Errorf("%w: %w", record.ErrRefused, record.ErrFunds), http.StatusPaymentRequired, api.CodePayment},
		{fmt.Errorf("%w: %w", record.ErrRefused, slots.ErrUnknown), http.StatusPaymentRequired, api.CodePayment},
		{errors.New("disk on fire"), http.StatusInternalServerError, "internal"},
	} {
		f.err = c.err
		wantError(t, post(string(good), ""), c.status, c.code)
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	ctx := t.Context()
	_, err := api.GetJob.Call(ctx, c, api.ByID{ID: "jother"})
	wantError(t, err, http.StatusNotFound, "not_found")
	_, err = api.JobSteps.Call(ctx, c, api.ByID{ID: "../node"})
	wantError(t, err, http.StatusNotFound, "not_found")
	_, err = api.JobReceipts.Call(ctx, c, api.ByID{ID: "jother"})
	wantError(t, err, http.StatusNotFound, "not_found")
	wantError(t, stop(t, c, "jother"), http.StatusNotFound, "not_found")
	wantError(t, c.Events(ctx, "jother", nil, nil), http.StatusNotFound, "not_found")
	wantError(t, c.Log(ctx, api.Log{ID: "jother", Follow: true}, io.Discard, io.Discard), http.StatusNotFound, "not_found")
	wantError(t, c.Log(ctx, api.Log{ID: "jabcdefgh", Rank: -1, Follow: true}, io.Discard, io.Discard), http.StatusBadRequest, "bad_request")
	_, err = c.GetBlob(ctx, "bafkreih")
	wantError(t, err, http.StatusNotFound, "not_found")
	_, err = api.ListOffers.Call(ctx, c, api.ByClass{Class: "gpu/?&x=1"})
	wantError(t, err, http.StatusBadRequest, "bad_class")
}

func TestPing(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	for count, want := range map[int]int{1: 1, 100: 100} {
		if r, err := api.PingPeer.Call(t.Context(), c, api.PingRequest{Peer: "p", Count: count}); err != nil || r.Peer != "p" || len(r.RTTs) != want {
			t.Errorf("%d: %+v, %v", count, r, err)
		}
	}
	_, err := api.PingPeer.Call(t.Context(), c, api.PingRequest{Peer: "", Count: 1})
	wantError(t, err, http.StatusBadRequest, "bad_peer")
	for _, count := range []int{-1, 0, 101, 1 << 30} {
		_, err := api.PingPeer.Call(t.Context(), c, api.PingRequest{Peer: "p", Count: count})
		wantError(t, err, http.StatusBadRequest, "bad_request")
	}
	_, err = api.PingPeer.Call(t.Context(), c, api.PingRequest{Peer: strings.Repeat("x", 5000), Count: 1})
	wantError(t, err, http.StatusRequestEntityTooLarge, "too_large")
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	content := strings.Repeat("starling ", 100_000)
	b, err := api.PutBlob.Call(t.Context(), c, api.Upload{Data: strings.NewReader(content), Tree: true})
	if err != nil || !b.Tree || b.Size != int64(len(content)) || b.CID != blob.Sum([]byte(content)).String() {
		t.Fatalf("%v, %v", b, err)
	}
	r, err := c.GetBlob(t.Context(), b.CID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != content {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A file that cannot be read is not a peer that cannot be reached.
func TestPutBroken(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	broken := errors.New("disk on fire")
	r := io.MultiReader(strings.NewReader("begins well"), iotest.ErrReader(broken))
	if _, err := api.PutBlob.Call(t.Context(), c, api.Upload{Data: r}); !errors.Is(err, broken) || errors.Is(err, api.ErrNoPeer) {
		t.Errorf("got %v", err)
	}
}

// A follower sees every step once and in order, and the job last as it ended.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	const n = 50
	seen := make(chan record.Step, n+1)
	var last record.Job
	done := make(chan error, 1)
	go func() {
		done <- c.Events(t.Context(), f.job.ID, func(s record.Step) { seen <- s }, func(j record.Job) { last = j })
	}()
	for i := range n {
		f.change(func() {
			f.steps = append(f.steps, record.Step{Kind: record.StepAsked, Detail: fmt.Sprintf("step %d\nof several lines", i)})
		})
		if s := <-seen; s.Detail != f.steps[i].Detail {
			t.Fatalf("step %d is %q", i, s.Detail)
		}
	}
	f.change(func() { f.job.State, f.job.Reason = record.Failed, "enough" })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(seen) != 0 || last.State != record.Failed || last.Reason != "enough" {
		t.Errorf("%d more steps, ended as %s", len(seen), last.Summary())
	}
}

func TestEventsNumbered(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.steps = []record.Step{{Kind: record.StepAsked}, {Kind: record.StepQuoted}, {Kind: record.StepChosen}}
	c, _ := serve(t, f)
	resp, err := c.Do(t.Context(), http.MethodGet, "/v1/jobs/jabcdefgh/events?after=2", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(b), "id: 3\nevent: step\ndata: {") || strings.Count(string(b), "event: step") != 1 {
		t.Errorf("%q, %v", b, err)
	}
}

// Every error has one shape.
func TestErrorsAreJSON(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Endpoint().URL+"/v1/jobs/none", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Endpoint().Token)
	resp, err := c.Endpoint().HTTP().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.Error.Code != "not_found" || body.Error.Message == "" || body.Error.Hint == "" {
		t.Errorf("%+v, %v", body, err)
	}
}

func TestReputation(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	p, err := api.GetPeer.Call(t.Context(), c, api.ByPeer{Peer: "somebody"})
	if err != nil || p.Peer != "somebody" || p.Provider.Stranger != reputation.Stranger {
		t.Errorf("%+v, %v", p, err)
	}
	var bad *api.Error
	if _, err := api.GetPeer.Call(t.Context(), c, api.ByPeer{Peer: "no/body"}); !errors.As(err, &bad) || bad.Code != "bad_peer" {
		t.Errorf("nobody: %v", err)
	}
	h, err := api.GetHistory.Call(t.Context(), c, api.ByPeer{Peer: "somebody"})
	if err != nil || h.Kind != proof.KindHistory {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := api.GetHistory.Call(t.Context(), c, api.ByPeer{Peer: "no/body"}); !errors.As(err, &bad) || bad.Code != "bad_peer" {
		t.Errorf("nobody: %v", err)
	}
}
