package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// Jobs is the buying side: jobs and their quotes.
type Jobs interface {
	Submit(ctx context.Context, sub record.Submission) (record.Job, error)
	Rerun(ctx context.Context, id string, c job.Changes, once, key string) (record.Job, error)
	List(ctx context.Context, q record.Query) (record.Page, error)
	Quote(ctx context.Context, sub record.Submission) (record.Quotation, error)
	Job(id string) (record.Job, error)
	Stop(ctx context.Context, id string) error
}

// quoteWait is the longest that a quote takes, with the search for the image's digest.
const quoteWait = time.Minute

// BindJobs binds the routes of jobs.
func BindJobs(jobs Jobs) []route.Bound {
	stop := func(ctx context.Context, id string) (none api.None, err error) { return none, jobs.Stop(ctx, id) }
	return []route.Bound{
		api.SubmitJob.Bind(func(ctx context.Context, q api.Submit) (j record.Job, err error) {
			if err := checkOnce(q.Once); err != nil {
				return j, err
			}
			return jobs.Submit(ctx, record.Submission{Spec: q.Body.Job, Values: q.Body.Values, Once: q.Once,
				Key: keyName(ctx)})
		}),
		api.RerunJob.Bind(func(ctx context.Context, q api.Rerun) (j record.Job, err error) {
			if err := checkOnce(q.Once); err != nil {
				return j, err
			}
			return jobs.Rerun(ctx, q.ID, q.Body, q.Once, keyName(ctx))
		}),
		api.ListJobs.Bind(func(ctx context.Context, q api.JobsQuery) (record.Page, error) {
			if name := keyName(ctx); name != "" {
				q.Key = &name
			}
			return jobs.List(ctx, record.Query(q))
		}),
		api.QuoteJob.Bind(func(ctx context.Context, q api.Quote) (record.Quotation, error) {
			ctx, cancel := context.WithTimeout(ctx, quoteWait)
			defer cancel()
			return jobs.Quote(ctx, record.Submission{Spec: q.Body.Job, Values: q.Body.Values, Key: keyName(ctx)})
		}),
		api.GetJob.Bind(func(_ context.Context, q api.ByID) (record.Job, error) { return jobs.Job(q.ID) }),
		api.StopJob.Bind(byID(stop)),
	}
}

// Remover removes jobs that ended long ago.
type Remover interface {
	Remove(ctx context.Context, id string) (record.Removed, error)
}

// Freer removes files that nothing needs.
type Freer interface {
	Free(all []cid.Cid) (bytes int64, err error)
}

// BindRemoval binds the route that removes a job.
func BindRemoval(jobs Remover, files Freer) []route.Bound {
	return []route.Bound{api.RemoveJob.Bind(func(ctx context.Context, q api.ByID) (api.RemovedJob, error) {
		r, err := jobs.Remove(ctx, q.ID)
		if err != nil {
			return api.RemovedJob{}, err
		}
		n, err := files.Free(r.Left)
		return api.RemovedJob{LogBytes: r.LogBytes, OutputBytes: n}, err
	})}
}

// Copies has the copies of jobs' outputs at other peers.
type Copies interface {
	Show(ctx context.Context, id string) (record.ShownCopies, error)
	// Restore brings the outputs of a job back into the store.
	Restore(ctx context.Context, id string) error
	Extend(ctx context.Context, id string, by time.Duration) (record.ExtendedCopies, error)
	// Import brings the outputs of an exported record into the store.
	Import(ctx context.Context, s record.ShownCopies) error
}

// BindCopies binds the routes of copies.
func BindCopies(copies Copies) []route.Bound {
	restore := func(ctx context.Context, id string) (none api.None, err error) { return none, copies.Restore(ctx, id) }
	return []route.Bound{
		api.JobCopies.Bind(byID(copies.Show)), api.RestoreJob.Bind(byID(restore)),
		api.ExtendCopies.Bind(func(ctx context.Context, q api.CopiesTime) (record.ExtendedCopies, error) {
			return copies.Extend(ctx, q.ID, time.Duration(q.Body.By))
		}),
		api.ImportCopies.Bind(func(ctx context.Context, q api.CopiesRecord) (none api.None, err error) {
			return none, copies.Import(ctx, q.Body)
		}),
	}
}

// byID adapts a function of a job's id.
func byID[Resp any](do func(context.Context, string) (Resp, error)) func(context.Context, api.ByID) (Resp, error) {
	return func(ctx context.Context, q api.ByID) (Resp, error) { return do(ctx, q.ID) }
}

// maxOnce bounds an idempotency key, bytes.
const maxOnce = 128

func checkOnce(key string) error {
	if len(key) > maxOnce {
		return route.BadRequest("bad_key", "Idempotency-Key is longer than %d bytes", maxOnce)
	}
	return nil
}

// Records is the trace of a job.
type Records interface {
	Job(id string) (record.Job, error)
	Receipts(ctx context.Context, id string) ([]record.LeaseAccount, error)
	// Trace returns the steps from after on, and a channel that closes when there are more.
	Trace(id string, after int) ([]record.Step, <-chan struct{}, error)
	Log(ctx context.Context, id string, rank int, q ranklog.Query, w io.Writer) error
}

// BindRecords binds the routes of a job's steps, log and receipts.
func BindRecords(of Records) []route.Bound {
	return []route.Bound{
		api.JobEvents.Bind(func(w http.ResponseWriter, r *http.Request,
			q api.Events) error {
			return sendEvents(of, w, r, q)
		}),
		api.JobSteps.Bind(func(_ context.Context, q api.ByID) ([]record.Step, error) {
			steps, _, err := of.Trace(q.ID, 0)
			return steps, err
		}),
		api.JobLog.Bind(func(w http.ResponseWriter, r *http.Request, q api.Log) error {
			w.Header().Set("Content-Type", "application/vnd.starling.log")
			f := &flusher{w: w, rc: http.NewResponseController(w)}
			part := ranklog.Query{Since: q.Since, Tail: q.Tail, Follow: q.Follow, Timestamps: q.Timestamps}
			err := of.Log(r.Context(), q.ID, q.Rank, part, f)
			if err != nil && f.begun {
				panic(http.ErrAbortHandler) // frames were sent: only a broken connection signals that some are missing
			}
			return err
		}),
		api.JobReceipts.Bind(byID(of.Receipts)),
	}
}

const (
	// eventShare bounds the share of time for sending one stream of events, as a divisor. The state of a job of a
	// hundred ranks has 100 KiB, and changes with each of a thousand steps.
	eventShare = 10
	// eventPause is the longest pause between two events of a job that changes.
	eventPause = time.Second
)

// sendEvents sends the trace, each step with its number as event id, and the job itself whenever it changed, until it
// has ended. Changes in a pause are sent together.
func sendEvents(of Records, w http.ResponseWriter, r *http.Request, q api.Events) error {
	if _, err := of.Job(q.ID); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	// An error after this ends the stream: its end is the answer.
	for after := q.After; ; {
		began := time.Now()
		steps, more, err := of.Trace(q.ID, after)
		if err != nil {
			return nil
		}
		for _, st := range steps {
			after++
			if sendEvent(w, "id: "+strconv.Itoa(after)+"\nevent: step", st) != nil {
				return nil
			}
		}
		j, err := of.Job(q.ID)
		if err != nil || sendEvent(w, "event: job", j) != nil {
			return nil
		}
		if err := rc.Flush(); err != nil || !q.Follow || (j.State.Ended() && len(steps) == 0) {
			return nil
		}
		if j.State.Ended() {
			continue // take the later records
		}
		pause := time.After(min((eventShare-1)*time.Since(began), eventPause))
		for range 2 { // a change, and the end of the pause
			select {
			case <-r.Context().Done():
				return nil
			case <-more:
				more = nil
			case <-pause:
				pause = nil
			}
		}
	}
}

func sendEvent(w io.Writer, head string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\ndata: %s\n\n", head, b)
	}
	return err
}

// flusher sends every write on at once, so that a log is live.
type flusher struct {
	w     io.Writer
	rc    *http.ResponseController
	begun bool
}

func (f *flusher) Write(b []byte) (int, error) {
	f.begun = true
	n, err := f.w.Write(b)
	if err == nil {
		err = f.rc.Flush()
	}
	return n, err
}

// Clusters is the buying side of jobs that are clusters.
type Clusters interface {
	Job(id string) (record.Job, error)
	// ScaleWithin changes the number of members of a cluster, and its budget unless budget is 0. It returns when the
	// cluster has size members.
	ScaleWithin(ctx context.Context, id string, size uint32, budget market.Amount) (record.Job, error)
	ClusterToken(id string) (string, error)
	Paths(ctx context.Context, id string) ([]cluster.Path, error)
}

// BindClusters binds the routes of clusters.
func BindClusters(of Clusters) []route.Bound {
	find := func(id string) (record.Job, error) {
		j, err := of.Job(id)
		if err == nil && j.Spec.Cluster == nil {
			err = &api.Error{
				Status: http.StatusConflict, Code: "no_cluster", Message: "job " + j.ID +
					" is a plain job, not a cluster",
				Hint: "`starling cluster ls` lists the clusters",
			}
		}
		return j, err
	}
	return []route.Bound{
		api.ScaleCluster.Bind(func(ctx context.Context, q api.Scale) (record.Job, error) {
			if q.Body.Size == 0 {
				return record.Job{}, &api.Error{
					Status: http.StatusBadRequest, Code: "bad_request",
					Message: "size: a cluster has at least one member",
					Hint:    "`starling cluster down` ends it",
				}
			}
			j, err := find(q.ID)
			if err != nil {
				return j, err
			}
			return of.ScaleWithin(ctx, j.ID, q.Body.Size, q.Body.Budget)
		}),
		api.ClusterToken.Bind(func(_ context.Context, q api.ByID) (a api.TokenAnswer, err error) {
			j, err := find(q.ID)
			if err == nil {
				a.Token, err = of.ClusterToken(j.ID)
			}
			return a, err
		}),
		api.ClusterPaths.Bind(func(ctx context.Context, q api.ByID) ([]cluster.Path, error) {
			j, err := find(q.ID)
			if err != nil {
				return nil, err
			}
			paths, err := of.Paths(ctx, j.ID)
			return append([]cluster.Path{}, paths...), err
		}),
	}
}
