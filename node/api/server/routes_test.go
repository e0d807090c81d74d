package server

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server/proofs"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestEveryRouteIsBound: the bindings are those of all declared routes, and a route that is declared elsewhere is none.
func TestEveryRouteIsBound(t *testing.T) {
	t.Parallel()
	patterns := func(list []route.Operation) (out []string) {
		for _, o := range list {
			out = append(out, o.Pattern)
		}
		slices.Sort(out)
		return out
	}
	bound := patterns(route.Operations(slices.Concat(bindings(newFake()), bindSelf())))
	if declared := patterns(api.Routes()); !slices.Equal(bound, declared) {
		t.Errorf("bound %q, want what is declared: %q", bound, declared)
	}
}

// handlers are the functions by which net/http registers handlers.
var handlers = []string{"NewServeMux", "DefaultServeMux", "Handle", "HandleFunc", "ServeMux"}

// TestHandlersAreRoutes: nothing of the peer or of the command line registers a handler but node/api/route.
func TestHandlersAreRoutes(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, root := range []string{"../../../node", "../../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasSuffix(path, "test") { // helpers of tests, with fake peers
				return filepath.SkipDir
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(handlers, s.Sel.Name) {
					if x, ok := s.X.(*ast.Ident); ok && (x.Name == "http" || x.Name == "mux") {
						found[filepath.ToSlash(path)] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) != 1 || !found["../../../node/api/route/route.go"] {
		t.Errorf("handlers are registered in %v, want node/api/route/route.go alone: declare and bind a route", found)
	}
}

// callers calls every route by the client.
func callers(ctx context.Context, c route.Caller) map[string]func() error {
	id := api.ByID{ID: "jabcdefgh"}
	peer := api.ByPeer{Peer: sign.NewPrivate([32]byte{7}).Key().String()}
	none := api.None{}
	raw := func(resp *http.Response, err error) error {
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	calls := map[string]func() error{}
	add := func(d route.Declared, call func() error) { calls[d.Operation().Pattern] = call }
	add(api.SubmitJob, func() error { return api.SubmitJob.Send(ctx, c, api.Submit{Body: api.Submission{Job: spec()}}) })
	add(api.ListJobs, func() error { return api.ListJobs.Send(ctx, c, api.JobsQuery{}) })
	add(api.GetJob, func() error { return api.GetJob.Send(ctx, c, id) })
	add(api.StopJob, func() error { return api.StopJob.Send(ctx, c, id) })
	add(api.RerunJob, func() error { return api.RerunJob.Send(ctx, c, api.Rerun{ID: id.ID}) })
	add(api.JobEvents, func() error { return raw(api.JobEvents.Do(ctx, c, api.Events{ID: id.ID})) })
	add(api.JobSteps, func() error { return api.JobSteps.Send(ctx, c, id) })
	add(api.JobLog, func() error { return raw(api.JobLog.Do(ctx, c, api.Log{ID: "jother"})) })
	add(api.JobCopies, func() error { return api.JobCopies.Send(ctx, c, id) })
	add(api.ExtendCopies, func() error { return api.ExtendCopies.Send(ctx, c, api.CopiesTime{ID: id.ID}) })
	add(api.ImportCopies, func() error {
		return api.ImportCopies.Send(ctx, c, api.CopiesRecord{Body: record.ShownCopies{Job: id.ID}})
	})
	add(api.RestoreJob, func() error { return api.RestoreJob.Send(ctx, c, id) })
	add(api.RemoveJob, func() error { return api.RemoveJob.Send(ctx, c, id) })
	add(api.JobReceipts, func() error { return api.JobReceipts.Send(ctx, c, id) })
	add(api.JobProof, func() error { return api.JobProof.Send(ctx, c, api.OfJob{ID: id.ID, Kind: proof.KindReceipts}) })
	add(api.QuoteJob, func() error { return api.QuoteJob.Send(ctx, c, api.Quote{Body: api.Submission{Job: spec()}}) })
	add(api.ExecProgram, func() error { return raw(api.ExecProgram.Do(ctx, c, api.Exec{ID: id.ID})) })
	add(api.ForwardPort, func() error { return raw(api.ForwardPort.Do(ctx, c, api.Forward{ID: id.ID})) })
	add(api.GetFiles, func() error { return raw(api.GetFiles.Do(ctx, c, api.Files{ID: id.ID})) })
	add(api.PutFiles, func() error {
		return raw(api.PutFiles.Do(ctx, c, api.Unpack{ID: id.ID, Data: strings.NewReader("")}))
	})
	add(api.PauseJob, func() error { return api.PauseJob.Send(ctx, c, id) })
	add(api.ResumeJob, func() error { return api.ResumeJob.Send(ctx, c, id) })
	add(api.ExtendJob, func() error { return api.ExtendJob.Send(ctx, c, api.Extend{ID: id.ID}) })
	add(api.ScaleCluster, func() error { return api.ScaleCluster.Send(ctx, c, api.Scale{ID: id.ID}) })
	add(api.ClusterPaths, func() error { return api.ClusterPaths.Send(ctx, c, id) })
	add(api.ClusterToken, func() error { return api.ClusterToken.Send(ctx, c, id) })
	add(api.PutBlob, func() error { return api.PutBlob.Send(ctx, c, api.Upload{Data: strings.NewReader("x")}) })
	add(api.GetBlob, func() error { return raw(api.GetBlob.Do(ctx, c, api.ByCID{CID: "x"})) })
	add(api.ListBlobs, func() error { return api.ListBlobs.Send(ctx, c, none) })
	add(api.CleanBlobs, func() error { return api.CleanBlobs.Send(ctx, c, api.DryRun{DryRun: true}) })
	add(api.GetSpending, func() error { return api.GetSpending.Send(ctx, c, api.Days{}) })
	add(api.ListKeys, func() error { return api.ListKeys.Send(ctx, c, none) })
	add(api.AddKey, func() error { return api.AddKey.Send(ctx, c, api.NewKey{Name: "ci"}) })
	add(api.RemoveKey, func() error { return api.RemoveKey.Send(ctx, c, api.ByName{Name: "ci"}) })
	add(api.GetNode, func() error { return api.GetNode.Send(ctx, c, none) })
	add(api.ListPeers, func() error { return api.ListPeers.Send(ctx, c, none) })
	add(api.GetPeer, func() error { return api.GetPeer.Send(ctx, c, peer) })
	add(api.GetHistory, func() error { return api.GetHistory.Send(ctx, c, peer) })
	add(api.PingPeer, func() error { return api.PingPeer.Send(ctx, c, api.PingRequest{}) })
	add(api.ListGuarded, func() error { return api.ListGuarded.Send(ctx, c, none) })
	add(api.ListBlocks, func() error { return api.ListBlocks.Send(ctx, c, none) })
	add(api.AddBlock, func() error { return api.AddBlock.Send(ctx, c, api.Block{Peer: peer.Peer, Body: block.Entry{}}) })
	add(api.RemoveBlock, func() error { return api.RemoveBlock.Send(ctx, c, peer) })
	add(api.ListOffers, func() error { return api.ListOffers.Send(ctx, c, api.ByClass{}) })
	add(api.ListLeases, func() error { return api.ListLeases.Send(ctx, c, none) })
	add(api.GetOwnOffers, func() error { return api.GetOwnOffers.Send(ctx, c, none) })
	add(api.PauseOffers, func() error { return api.PauseOffers.Send(ctx, c, none) })
	add(api.DrainOffers, func() error { return api.DrainOffers.Send(ctx, c, none) })
	add(api.ResumeOffers, func() error { return api.ResumeOffers.Send(ctx, c, api.ResumeRequest{}) })
	add(api.PriceOffer, func() error { return api.PriceOffer.Send(ctx, c, api.PriceRequest{}) })
	add(api.ListImages, func() error { return api.ListImages.Send(ctx, c, none) })
	add(api.RemoveImage, func() error { return api.RemoveImage.Send(ctx, c, api.ByID{ID: "used"}) })
	add(api.ListProofs, func() error { return api.ListProofs.Send(ctx, c, api.ByKind{}) })
	add(api.GetProof, func() error { return api.GetProof.Send(ctx, c, api.ByHash{Hash: sample().Hash()}) })
	add(api.KeepProof, func() error { return api.KeepProof.Send(ctx, c, proof.File{}) })
	add(api.ListWatched, func() error { return api.ListWatched.Send(ctx, c, none) })
	add(api.WatchUnit, func() error { return api.WatchUnit.Send(ctx, c, api.Watched{}) })
	add(api.UnwatchUnit, func() error { return api.UnwatchUnit.Send(ctx, c, api.Watched{}) })
	add(api.ListAudits, func() error { return api.ListAudits.Send(ctx, c, none) })
	add(api.RunAudit, func() error { return api.RunAudit.Send(ctx, c, none) })
	add(api.GetRewards, func() error { return api.GetRewards.Send(ctx, c, none) })
	add(api.ClaimRewards, func() error { return api.ClaimRewards.Send(ctx, c, none) })
	add(api.GetDocument, func() error { return raw(api.GetDocument.Do(ctx, c, none)) })
	add(api.GetAlive, func() error { return raw(api.GetAlive.Do(ctx, c, none)) })
	add(api.GetHealth, func() error { return api.GetHealth.Send(ctx, c, none) })
	add(api.GetMetrics, func() error { return raw(api.GetMetrics.Do(ctx, c, none)) })
	return calls
}

// direct is a caller that asks a handler in this goroutine.
type direct struct {
	handler http.Handler
	token   string
	asked   string // pattern of the last request
}

func (d *direct) Do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	r := httptest.NewRequestWithContext(ctx, method, path, body)
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	d.asked = r.Pattern
	if w.Code >= http.StatusMultipleChoices {
		return nil, route.ReadError(w.Result())
	}
	return w.Result(), nil
}

// newDirect asks the API over the fake.
func newDirect(t *testing.T, f *fake, token string) *direct {
	t.Helper()
	s := &Server{access: f, token: "own", ln: door{socket: "api.sock"}, log: p2ptest.Quiet()}
	h, err := s.mux(bindings(f))
	if err != nil {
		t.Fatal(err)
	}
	return &direct{handler: h, token: token}
}

// TestEveryRouteHasACaller: each route's caller in the client arrives at that route's handler.
func TestEveryRouteHasACaller(t *testing.T) {
	t.Parallel()
	d := newDirect(t, newFake(), "own")
	calls := callers(t.Context(), d)
	for _, o := range api.Routes() {
		call := calls[o.Pattern]
		if call == nil {
			t.Errorf("%s: no caller", o.Pattern)
			continue
		}
		err := call() // the fake refuses some
		if d.asked != o.Pattern {
			t.Errorf("%s: its caller asked %s", o.Pattern, d.asked)
		}
		if _, ok := errors.AsType[*api.Error](err); err != nil && !ok {
			t.Errorf("%s: %v is no error of the API", o.Pattern, err)
		}
	}
}

// TestAccess: a route does for each kind of token what its declaration says, and the last ones are open to API keys.
func TestAccess(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.job.Key = "ci"
	keyed := []string{
		"GET /v1/blobs/{cid}", "GET /v1/health", "GET /v1/jobs", "GET /v1/node", "GET /v1/offers", "GET /v1/spend", "POST /v1/blobs", "POST /v1/jobs",
		"POST /v1/quotes",
	}
	for _, o := range api.Routes() {
		ofJob := strings.Contains(o.Path(), "/jobs/{id}") && o.Pattern != api.RemoveJob.Pattern // the owner keeps the books
		wantKeys := slices.Contains(keyed, o.Pattern) || ofJob
		public := slices.Contains([]string{"/healthz", "/metrics", "/v1/openapi.json"}, o.Path())
		for token, want := range map[string]bool{"own": true, keyToken: wantKeys || public, "": public, "wrong": public} {
			d := newDirect(t, f, token)
			err := callers(t.Context(), d)[o.Pattern]()
			e, _ := errors.AsType[*api.Error](err)
			refused := e != nil && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden)
			if refused == want {
				t.Errorf("%s with token %q: %v, want admitted: %t", o.Pattern, token, err, want)
			}
		}
	}
	// An API key does not reach the job of another.
	f.job.Key = "other"
	for _, o := range api.Routes() {
		if d := newDirect(t, f, keyToken); strings.Contains(o.Path(), "{id}") && o.Access == route.Keys {
			wantError(t, callers(t.Context(), d)[o.Pattern](), http.StatusNotFound, "not_found")
		}
	}
}

// TestBoundTwice: two handlers of one route are an error, not a choice.
func TestBoundTwice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "api.json")
	_, err := Listen("", path, newFake(), append(bindings(newFake()), proofs.BindRewards(newFake())...), p2ptest.Quiet())
	if err == nil || !strings.Contains(err.Error(), "route GET /v1/rewards: bound twice") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

// TestDocumentServed: the document needs no token, over TCP as over the socket.
func TestDocumentServed(t *testing.T) {
	t.Parallel()
	want, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	newDirect(t, newFake(), "").handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil))
	if !bytes.Equal(w.Body.Bytes(), want) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d bytes of %s, want %d", w.Body.Len(), w.Header().Get("Content-Type"), len(want))
	}
}
