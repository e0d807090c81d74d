package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files/s3"
	"github.com/starling-network/starling/node/files/s3/objects"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// atOnce is the number of objects whose contents are found at a time.
	atOnce = 8
	// margin is the time for which a signed URL can be read beside the job's timeouts.
	margin = time.Hour
	// maxSigned bounds the signed URLs of folders in one job, bytes: a provider gets the URLs of a rank in one message,
	// with the job's arguments and variables.
	maxSigned = 128 << 10
)

// buckets finds the contents of sources in S3.
type buckets struct {
	resolver
	c     *objects.Client
	valid time.Duration // of signed URLs
	p     *cli.Progress

	room    int                         // of maxSigned
	listed  map[string]objects.Object   // by source: objects of folders that became inputs
	folders map[string][]objects.Object // by source: folders that go through this computer

	moved *meter

	mu   sync.Mutex
	open map[string]bool // buckets, and whether providers can read them
}

func newBuckets(r resolver, c *objects.Client, spec job.Job, p *cli.Progress) *buckets {
	t := spec.Timeouts
	b := &buckets{resolver: r, c: c, p: p, valid: t.Queue + max(t.Pull, t.Start) + t.Run + t.Stop + margin,
		room: maxSigned, listed: map[string]objects.Object{}, folders: map[string][]objects.Object{},
		open: map[string]bool{}, moved: &meter{p: p, done: map[string]int64{}}}
	if b.valid > objects.MaxURL {
		b.valid = objects.MaxURL
		p.Say("warning: signed URLs of S3 end in 7 days: a rank that moves to another provider later has no inputs")
	}
	return b
}

// Explain adds the exit code to an error of a user's names, keys or settings.
func Explain(err error) error {
	for _, class := range []error{objects.ErrSettings, objects.ErrAbsent, objects.ErrAccess, s3.ErrKey, blob.ErrTree} {
		if errors.Is(err, class) {
			return &cli.Error{Code: cli.ExitUsage, Err: err}
		}
	}
	return err
}

// expand replaces folders by inputs for their objects, where providers can read these and a job can have as many
// inputs. The other folders are listed.
func (b *buckets) expand(ctx context.Context, spec job.Job) (job.Job, error) {
	for i := len(spec.Inputs) - 1; i >= 0; i-- {
		in := spec.Inputs[i]
		if !job.IsFolder(in.Source) {
			continue
		}
		if strings.Contains(in.Source, job.RankMark) { // each rank has its own objects
			continue
		}
		all, err := b.list(ctx, in.Source)
		if err != nil {
			return spec, err
		}
		inputs, listed, signed, err := b.each(ctx, in, all)
		if err != nil {
			return spec, err
		}
		wide := spec
		wide.Inputs = slices.Concat(spec.Inputs[:i], inputs, spec.Inputs[i+1:])
		if inputs == nil || wide.Check() != nil {
			b.folders[in.Source] = all
			continue
		}
		open, err := b.readable(ctx, all[0])
		if err != nil {
			return spec, err
		}
		if !open {
			b.folders[in.Source] = all
			continue
		}
		spec = wide
		b.room -= signed
		maps.Copy(b.listed, listed)
		b.p.Say("input %s has %s, %s", in.Source, cli.Count(len(all), "object"), stream.Size(bytesOf(all)))
	}
	return spec, nil
}

// list lists the objects of a folder.
func (b *buckets) list(ctx context.Context, source string) ([]objects.Object, error) {
	n, _, err := job.S3Name(source)
	if err != nil {
		return nil, err
	}
	b.p.Status("listing %s", source)
	return b.c.List(ctx, n, blob.MaxEntries)
}

// each returns an input for each object of a folder, the objects by source, and the bytes of their signed URLs. There
// are no inputs if these are too many bytes, or if the key of an object has another meaning as a source.
func (b *buckets) each(ctx context.Context, in job.Input, all []objects.Object) (inputs []job.Input,
	listed map[string]objects.Object, signed int, err error) {
	if len(all) > job.MaxInputs {
		return nil, nil, 0, nil
	}
	listed = map[string]objects.Object{}
	for _, o := range all {
		source := o.Name.String()
		if n, _, err := job.S3Name(source); err != nil || n != o.Name || strings.Contains(source, job.RankMark) {
			return nil, nil, 0, nil
		}
		at, err := b.c.URL(ctx, o.Name, b.valid)
		if err != nil {
			return nil, nil, 0, err
		}
		input := job.Input{Source: source, Path: path.Join(in.Path, o.Rel)}
		if signed += len(at) + len(input.Path); signed > b.room {
			return nil, nil, 0, nil
		}
		inputs, listed[source] = append(inputs, input), o
	}
	return inputs, listed, signed, nil
}

func bytesOf(all []objects.Object) (n int64) {
	for _, o := range all {
		n += o.Size
	}
	return n
}

// readable reports whether providers can read the bucket of an object: its URL, by their rules.
func (b *buckets) readable(ctx context.Context, o objects.Object) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open, known := b.open[o.Name.Bucket]; known {
		return open, nil
	}
	at, err := b.c.URL(ctx, o.Name, b.valid)
	if err != nil {
		return false, err
	}
	if err = web.Check(at); err == nil {
		b.p.Status("reading %s as a provider would", web.Public(at))
		var body io.ReadCloser
		if body, _, err = b.web.File([]string{at}, o.Size).Open(ctx, blob.Sum(nil), 0, o.Size); err == nil {
			err = body.Close()
		}
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if b.open[o.Name.Bucket] = err == nil; err != nil {
		var f *web.Failure
		if errors.As(err, &f) {
			err = errors.New(f.Told())
		}
		b.p.Say("providers cannot read bucket %s: its objects go through this computer: %v", o.Name.Bucket, err)
	}
	return b.open[o.Name.Bucket], nil
}

// contents finds the contents of the sources in S3.
func (b *buckets) contents(ctx context.Context, sources []string) (map[string]job.Blob, error) {
	out := map[string]job.Blob{}
	var mu sync.Mutex
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(atOnce)
	for _, source := range sources {
		if !job.IsS3(source) {
			continue
		}
		eg.Go(func() error {
			found, err := b.content(ctx, source)
			mu.Lock()
			defer mu.Unlock()
			out[source] = found
			return err
		})
	}
	err := eg.Wait()
	return out, err
}

func (b *buckets) content(ctx context.Context, source string) (job.Blob, error) {
	n, id, err := job.S3Name(source)
	if err != nil {
		return job.Blob{}, err
	}
	if n.Folder() {
		return b.folder(ctx, source)
	}
	of, listed := b.listed[source]
	o, err := b.c.Stat(ctx, n)
	switch {
	case err != nil:
		return job.Blob{}, err
	case listed && of.Size != o.Size:
		return job.Blob{}, fmt.Errorf("%s: %w: got %d bytes, want %d as listed", source, objects.ErrChanged, o.Size,
			of.Size)
	}
	if o.SHA256 != "" {
		known, ok := job.Named(job.WithSum(web.Scheme, o.SHA256))
		if !ok || id != "" && id != known.CID {
			return job.Blob{}, cli.Usagef("%s: the object's SHA-256 is %s, want the one after #sha256=", n, o.SHA256)
		}
		id = known.CID
	}
	open, err := b.readable(ctx, o)
	if err != nil {
		return job.Blob{}, err
	}
	found := job.Blob{CID: id, Size: o.Size}
	switch {
	case open:
		found, err = b.address(ctx, o, found)
	case o.Size > api.MaxBlob:
		err = cli.Usagef("%s: got %s through this computer, want at most %s", n, stream.Size(o.Size),
			stream.Size(api.MaxBlob))
	default:
		found, err = b.store(ctx, n.String(), found, func(w io.Writer) error { return b.copy(ctx, w, o) })
	}
	if err == nil && !listed {
		b.p.Say("input %s has %s, %s", n, digestText(found.CID), stream.Size(found.Size))
	}
	return found, err
}

// address signs the URL of an object, which is read once for its digest if that is not known.
func (b *buckets) address(ctx context.Context, o objects.Object, found job.Blob) (job.Blob, error) {
	at, err := b.c.URL(ctx, o.Name, b.valid)
	if err == nil {
		err = web.Check(at)
	}
	if err != nil {
		return found, fmt.Errorf("signing a URL of %s: %w", o.Name, err)
	}
	found.URLs = []string{at}
	if found.CID != "" {
		return found, nil
	}
	id, size, err := b.web.Sum(ctx, at, func(done, _ int64) {
		b.moved.add("reading for SHA-256", o.Name.String(), done)
	})
	if err != nil {
		return found, unread(at, err)
	}
	if size != o.Size {
		return found, fmt.Errorf("%s: %w: got %d bytes, want %d", o.Name, objects.ErrChanged, size, o.Size)
	}
	found.CID = id.String()
	return found, nil
}

// copy writes the bytes of an object.
func (b *buckets) copy(ctx context.Context, w io.Writer, o objects.Object) error {
	body, err := b.c.Open(ctx, o)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(w, body)
	return err
}

// folder stores a folder on the peer.
func (b *buckets) folder(ctx context.Context, source string) (job.Blob, error) {
	all, listed := b.folders[source]
	if !listed {
		var err error
		if all, err = b.list(ctx, source); err != nil {
			return job.Blob{}, err
		}
	}
	size := bytesOf(all)
	if blob.MaxArchive(size) > api.MaxBlob {
		return job.Blob{}, cli.WithHint(cli.Usagef("%s: got %s in %s through this computer, want at most %s", source,
			stream.Size(size), cli.Count(len(all), "object"), stream.Size(api.MaxBlob)),
			"providers read a folder themselves if it has at most %d objects, and no %s", job.MaxInputs, job.RankMark)
	}
	found, err := b.store(ctx, source, job.Blob{Tree: true}, func(w io.Writer) error {
		return b.c.Pack(ctx, w, all, nil)
	})
	if err == nil {
		b.p.Say("input %s has %s, %s, through this computer", source, cli.Count(len(all), "object"), stream.Size(size))
	}
	return found, err
}

// store stores a content on the peer. It returns ErrChanged if the content's digest is not the expected one.
func (b *buckets) store(ctx context.Context, source string, want job.Blob, write func(io.Writer) error) (job.Blob,
	error) {
	var stored record.Blob
	err := piped(write, func(done int64) { b.moved.add("uploading", source, done) }, func(r io.Reader) (err error) {
		stored, err = api.PutBlob.Call(ctx, b.peer, api.Upload{Data: r, Tree: want.Tree})
		return err
	})
	switch {
	case err != nil:
		return job.Blob{}, fmt.Errorf("uploading %s: %w", source, err)
	case want.CID != "" && stored.CID != want.CID:
		return job.Blob{}, fmt.Errorf("%s: %w: got %s, want %s", source, objects.ErrChanged, digestText(stored.CID),
			digestText(want.CID))
	}
	return stored.Source(), nil
}

// piped has use read what write writes, and returns the error of write, or else that of use. report is called with the
// number of bytes so far.
func piped(write func(io.Writer) error, report func(done int64), use func(io.Reader) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(&shown{w: w, report: report})
		w.CloseWithError(err)
		written <- err
	}()
	err := use(r)
	r.CloseWithError(io.ErrClosedPipe)
	if cause := <-written; cause != nil && !errors.Is(cause, io.ErrClosedPipe) {
		return cause
	}
	return err
}

// shown reports the bytes that are written.
type shown struct {
	w      io.Writer
	done   int64
	report func(done int64)
}

func (s *shown) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.done += int64(n)
	s.report(s.done)
	return n, err
}

// meter shows the bytes of all objects that are transferred.
type meter struct {
	p    *cli.Progress
	mu   sync.Mutex
	done map[string]int64 // by source
	all  int64
}

func (m *meter) add(doing, source string, done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.all
	m.all += done - m.done[source]
	m.done[source] = done
	if before/statusEvery != m.all/statusEvery {
		m.p.Status("%s: %s, at %s", doing, stream.Size(m.all), source)
	}
}
