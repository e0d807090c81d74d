package copies

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

// outputs returns the outputs of a job by their digests, each once.
func outputs(j record.Job) map[string]record.Blob {
	out := map[string]record.Blob{}
	for _, rank := range j.Ranks {
		for _, o := range rank.Outputs {
			out[o.CID] = o.Blob
		}
	}
	return out
}

// archiver packs outputs, and unpacks them.
type archiver struct{ *Room }

// pack stores the outputs of a job as one encrypted archive, and returns the new key that decrypts it. It returns
// blob.ErrNotFound if an output is not here.
func (r archiver) pack(ctx context.Context, j record.Job) (record.Blob, string, error) {
	missing, err := r.missing(j)
	if err != nil {
		return record.Blob{}, "", err
	}
	if len(missing) > 0 {
		return record.Blob{}, "", fmt.Errorf("outputs %v: %w", slices.Sorted(maps.Keys(missing)), blob.ErrNotFound)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return record.Blob{}, "", fmt.Errorf("making a key: %w", err)
	}
	from, to := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		to.CloseWithError(r.seal(to, id.Recipient(), slices.Sorted(maps.Keys(outputs(j)))))
	}()
	c, size, err := r.cfg.Files.PutBlob(ctx, j.Key, from)
	from.CloseWithError(context.Canceled) // the writer ends, if the store took no more
	<-done
	if err != nil {
		return record.Blob{}, "", fmt.Errorf("packing the outputs: %w", err)
	}
	return record.Blob{CID: c, Size: size}, id.String(), nil
}

// seal writes blobs as an encrypted archive. Their names in it are their digests.
func (r archiver) seal(to io.Writer, key age.Recipient, all []string) error {
	box, err := age.Encrypt(to, key)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(box)
	for _, c := range all {
		if err := r.add(archive, c); err != nil {
			return fmt.Errorf("output %s: %w", c, err)
		}
	}
	return errors.Join(archive.Close(), box.Close())
}

func (r archiver) add(archive *tar.Writer, c string) error {
	f, size, err := r.cfg.Files.OpenBlob("", c)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := archive.WriteHeader(&tar.Header{Name: c, Size: size, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return err
}

// Restore brings the outputs of a job back into the store, from the providers that have copies. It returns
// record.ErrNoCopies for a job without copies, and record.ErrNoKeeper if no provider sent its copy.
func (r *Room) Restore(ctx context.Context, id string) error {
	j, err := r.cfg.Jobs.Job(id)
	if err != nil {
		return err
	}
	turn := r.turn(j.ID)
	if err := turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer turn.Release(1)
	k, at, err := r.read(ctx, j.ID)
	if err != nil {
		return err
	}
	missing, err := archiver{r}.missing(j)
	if err != nil || len(missing) == 0 {
		return err
	}
	if k.Pack == nil {
		return fmt.Errorf("job %s: %w", j.ID, record.ErrNoCopies)
	}
	key, err := r.cfg.Boxes.Open(useKey, j.ID, k.Box)
	if err != nil {
		return fmt.Errorf("reading the key of the copies: %w", err)
	}
	r.look(&k) // a provider may be new
	changed, err := archiver{r}.bring(ctx, k, string(key), missing)
	if changed && at == record.KeptOpen {
		err = errors.Join(err, r.write(ctx, j.ID, k))
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", j.ID, err)
	}
	return nil
}

// bring stores the missing outputs from the pack, which comes from a keeper if it is not here. It marks false copies as
// lost, and reports whether there were any.
func (r archiver) bring(
	ctx context.Context, k record.Kept, key string, missing map[string]record.Blob,
) (changed bool, err error) {
	ok, err := r.here(k.Pack.CID)
	if err == nil && !ok {
		changed, err = r.fetch(ctx, k)
	}
	if err != nil {
		return changed, err
	}
	if err := r.unpack(ctx, k.Pack.CID, key, missing); err != nil {
		return changed, fmt.Errorf("unpacking the copy: %w", err)
	}
	if c, err := blob.Parse(k.Pack.CID); err == nil {
		r.cfg.Files.Drop(c)
	}
	return changed, nil
}

// missing returns the outputs of a job that are not here.
func (r archiver) missing(j record.Job) (map[string]record.Blob, error) {
	out := outputs(j)
	return out, r.unstored(out)
}

// unstored removes the outputs that are here.
func (r archiver) unstored(all map[string]record.Blob) error {
	for c := range all {
		ok, err := r.here(c)
		if err != nil {
			return err
		}
		if ok {
			delete(all, c)
		}
	}
	return nil
}

// fetch brings the pack here from the first provider that sends it. A provider that sends other bytes, too many or none
// is left out. It marks copies with other bytes or too many as lost, and reports whether there were any.
func (r *Room) fetch(ctx context.Context, k record.Kept) (changed bool, err error) {
	c, err := blob.Parse(k.Pack.CID)
	if err != nil {
		return false, err
	}
	errs := []error{record.ErrNoKeeper}
	for i := range k.Copies {
		of := &k.Copies[i]
		if of.Lost != "" || of.Provider.IsZero() {
			continue
		}
		var id peer.ID
		if id, err = p2p.PeerIDFromKey(of.Provider); err == nil {
			err = r.ask(ctx, id, c, k.Pack.Size)
		}
		if err == nil {
			return changed, nil
		}
		if ctx.Err() != nil {
			return changed, ctx.Err()
		}
		if errors.Is(err, blob.ErrDigest) || errors.Is(err, blob.ErrTooLarge) {
			of.Lost, of.Stop, changed = lostFalse, true, true
		}
		r.cfg.Log.Warn("a provider did not send its copy of a job's outputs", "provider", of.Provider, "err", err)
		errs = append(errs, fmt.Errorf("provider %s: %w", of.Provider.Short(), err))
	}
	return changed, errors.Join(errs...)
}

// ask fetches the pack from one provider, within the time that a slow connection needs.
func (r *Room) ask(ctx context.Context, from peer.ID, c cid.Cid, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience(size))
	defer cancel()
	err := r.cfg.Files.Fetch(ctx, from, c, size)
	if errors.Is(err, blob.ErrDigest) { // perhaps of a part that another provider sent before
		err = r.cfg.Files.Fetch(ctx, from, c, size)
	}
	return err
}

// unpack stores the missing outputs from the pack, by its CID and key.
func (r archiver) unpack(ctx context.Context, pack, text string, missing map[string]record.Blob) error {
	key, err := age.ParseX25519Identity(text)
	if err != nil {
		return fmt.Errorf("reading the key: %w", err)
	}
	f, _, err := r.cfg.Files.OpenBlob("", pack)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := age.Decrypt(f, key)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(plain); len(missing) > 0; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%d outputs are not in it", len(missing))
		}
		if err != nil {
			return err
		}
		if _, wanted := missing[h.Name]; !wanted {
			continue
		}
		c, _, err := r.cfg.Files.PutBlob(ctx, "", archive)
		if err != nil {
			return fmt.Errorf("output %s: %w", h.Name, err)
		}
		if c != h.Name {
			return fmt.Errorf("output %s: other content: got %s", h.Name, c)
		}
		delete(missing, h.Name)
	}
	return nil
}

const (
	// leastRate is the rate, in bytes per second, below which a provider counts as one that does not answer.
	leastRate = 64 << 10
	// leastPatience is the time that each provider has at least.
	leastPatience = time.Minute
)

// patience is the time that a provider has for a pack.
func patience(size int64) time.Duration {
	return leastPatience + time.Duration(size/leastRate)*time.Second
}
