// Package files is the peer's store of content-addressed files for other peers and the local API. It checks who may
// read a file, fetches files from other peers and from the web, and removes files when the disk is nearly full.
package files

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

// collectEvery is the interval between checks of the free space of the store and the disk.
const collectEvery = 15 * time.Second

// Config is the configuration of Files.
type Config struct {
	Host    *p2p.Host
	Network string
	Blobs   *blob.Store
	Web     *web.Client // is optional; if nil, no URL is read
	Fellows int         // files sent at a time to providers of the same jobs; 0: none
	Log     *slog.Logger
}

// Jobs is the jobs of the peer's own user.
type Jobs interface {
	// Holds reports whether an API key may read a blob.
	Holds(key string, c cid.Cid) bool
	// Uses reports whether a job needs a blob.
	Uses(c cid.Cid) bool
}

// Files is a service: it sends files to other peers from Start to Close, and makes room while it runs.
type Files struct {
	cfg     Config
	grants  *grants
	fellows *fellows
	flights *flights
	pace    pace
	server  *stream.Server // nil before Start
	jobs    Jobs
	needs   []need
}

// New makes the files of a store.
func New(cfg Config) *Files {
	return &Files{cfg: cfg, grants: newGrants(), fellows: newFellows(cfg.Fellows), flights: &flights{},
		pace: pace{turnTime, askTime}}
}

// Serve sets the jobs with API keys that read files. It is called before Start.
func (f *Files) Serve(jobs Jobs) { f.jobs = jobs }

// need is a room with files that are kept.
type need struct {
	by string
	of func() (map[cid.Cid]bool, error)
}

// Need adds a room with files that are kept, and names what needs them. It is called before Start.
func (f *Files) Need(by string, of func() (map[cid.Cid]bool, error)) {
	f.needs = append(f.needs, need{by, of})
}

// Name implements service.Service.
func (*Files) Name() string { return "files" }

// Start begins to send files to the peers that may read them.
func (f *Files) Start(context.Context) error {
	f.server = blob.Serve(f.cfg.Host, f.cfg.Network, f.cfg.Blobs, f.grants.allowed, f.fellows)
	return nil
}

// Close ends it.
func (f *Files) Close() error {
	if f.server != nil {
		f.server.Close()
	}
	return nil
}

// Run removes unused files while the disk is nearly full, until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	every := time.NewTicker(collectEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		removed, err := f.cfg.Blobs.Collect(f.needed)
		if err != nil {
			f.cfg.Log.Warn("cannot remove unused blobs", "err", err)
		}
		if removed > 0 {
			f.cfg.Log.Info("removed unused blobs: the disk or the store was nearly full",
				"bytes", removed)
		}
	}
}

// needed returns the blobs that any room needs.
func (f *Files) needed() (map[cid.Cid]bool, error) {
	all := map[cid.Cid]bool{}
	for _, need := range f.needs {
		some, err := need.of()
		if err != nil {
			return nil, err
		}
		maps.Copy(all, some)
	}
	return all, nil
}

// keyHolder is a key of the API as a holder of blobs. Peers are workload.Holder, and the peer's own blobs have none.
func keyHolder(name string) string { return "key " + name }

// Grant lets a peer read a blob here, until the process ends.
func (f *Files) Grant(to peer.ID, c cid.Cid) { f.grants.add(to, c) }

// Share lets a peer read a blob here, and notes that it is its own too, also after a restart.
func (f *Files) Share(to peer.ID, c cid.Cid) {
	f.grants.add(to, c)
	if err := f.cfg.Blobs.Bring(c, workload.Holder(to)); err != nil {
		f.cfg.Log.Warn("the holder of a blob is not written down", "cid", c, "err", err)
	}
}

// Uploaded reports whether an API key brought a blob.
func (f *Files) Uploaded(key string, c cid.Cid) bool { return f.cfg.Blobs.Brought(c, keyHolder(key)) }

// Drop removes blobs after their use by one side of the peer, unless a job of its own or another room needs them.
func (f *Files) Drop(all ...cid.Cid) {
	if len(all) == 0 {
		return
	}
	if _, err := f.Free(all); err != nil {
		f.cfg.Log.Warn("cannot remove unused blobs", "cids", all, "err", err)
	}
}

// Free removes those of some blobs that no room needs, and returns their bytes.
func (f *Files) Free(all []cid.Cid) (bytes int64, err error) {
	stay, err := f.needed()
	if err != nil {
		return 0, fmt.Errorf("listing blobs in use: %w", err)
	}
	for _, c := range all {
		size, err := f.cfg.Blobs.Size(c)
		if err != nil || stay[c] || f.jobs.Uses(c) || f.fellows.need(c) {
			continue // it went before, or is needed
		}
		if err := f.cfg.Blobs.Remove(c); err != nil {
			return bytes, err
		}
		bytes += size
	}
	return bytes, nil
}

// PutBlob stores the content of r, for an API key unless that is "".
func (f *Files) PutBlob(ctx context.Context, key string, r io.Reader) (string, int64, error) {
	c, size, err := f.cfg.Blobs.Put(ctx, r)
	if err == nil && key != "" {
		err = f.cfg.Blobs.Bring(c, keyHolder(key))
	}
	if err != nil {
		return "", 0, err
	}
	return c.String(), size, nil
}

// OpenBlob reads a stored blob. An API key may read the blobs that it uploaded and the blobs of its jobs; "" may read
// all.
func (f *Files) OpenBlob(key, text string) (io.ReadCloser, int64, error) {
	c, err := cid.Parse(text)
	if err != nil {
		return nil, 0, &api.Error{Status: 400, Code: "bad_cid", Message: fmt.Sprintf("%q is not a CID: %v", text, err)}
	}
	if key != "" && !f.jobs.Holds(key, c) {
		return nil, 0, fmt.Errorf("%w: %s", blob.ErrNotFound, c)
	}
	file, err := f.cfg.Blobs.Open(c)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, st.Size(), nil
}

var (
	descStored = prometheus.NewDesc("starling_stored_bytes", "Bytes of files that this peer stores.", nil, nil)
	descShared = prometheus.NewDesc("starling_shared_parts_total",
		"Parts of files that this peer sent to other providers of the same jobs.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*Files) Describe(ch chan<- *prometheus.Desc) {
	ch <- descStored
	ch <- descShared
}

// Shared returns the number of parts of files that were sent to other providers of the same jobs.
func (f *Files) Shared() uint64 { return f.fellows.sent.Load() }

// Collect implements prometheus.Collector.
func (f *Files) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descStored, prometheus.GaugeValue, float64(f.cfg.Blobs.Used()))
	ch <- prometheus.MustNewConstMetric(descShared, prometheus.CounterValue, float64(f.Shared()))
}
