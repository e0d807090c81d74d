package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/replica"
)

// Proofs that results differ are told of like lies; what is told is the receipts and the proof's hash, and who votes fetches it, with
// program and inputs, from who told.
const (
	topicDissents = "dissents"
	dissentQueue  = 64
	dissentWait   = time.Minute // for one proof
	// againMiB is how much memory, and how large a program and inputs, a work may have that others told of, and againDisk how much it may
	// write.
	againMiB  = 2048
	againDisk = 8192
	// tellMiB is how large program and inputs may be of which this peer tells for a light client.
	tellMiB  = 64
	againDir = "again-"
	// judgeEvery is how often the chain is looked at while a proof waits, judgeTurn how long one that votes leaves to the one before it to
	// open a ballot.
	judgeEvery = 15 * time.Second
	judgeTurn  = 20 * time.Second
)

// dissents is this peer's part in the gossip of proofs that results differ.
type dissents struct {
	telling[replica.Announcement]

	mu     sync.Mutex
	staked map[sign.Key]bool // keys that a registration with something at stake answers for
	voters map[sign.Key]bool // peer keys of those with a bond
	shown  map[string]bool   // what those may read of this peer's blobs
}

// newDissents takes part; nil where nobody registers, or nothing lists who did.
func (n *Node) newDissents(g *gossip.Gossip) (*dissents, error) {
	if _, ok := n.p.Program.(evidence.Voting); !ok || n.registered == nil {
		return nil, nil
	}
	l := &dissents{telling: newTelling[replica.Announcement](n, toldPerPeer, toldBurst)}
	var err error
	l.topic, err = gossip.Join(g, topicDissents, l.decode, dissentQueue)
	return l, err
}

// decode is the topic's validator, as that of lies.
func (l *dissents) decode(from peer.ID, data []byte) (replica.Announcement, error) {
	a, err := replica.UnmarshalAnnouncement(data)
	if err != nil {
		return a, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	if from != l.n.p.Host.ID() {
		switch now := l.n.Slot(); {
		case l.n.evidence.KnowsDissent(a):
			return a, fmt.Errorf("%w: known, or enough about them", gossip.ErrIgnore)
		case !l.matters(a):
			return a, fmt.Errorf("%w: nobody votes, or has anything at stake", gossip.ErrIgnore)
		case now == 0 || a.Ends() > now:
			return a, fmt.Errorf("%w: of results to come", gossip.ErrIgnore)
		case !l.told.Allow(from, time.Now()):
			return a, fmt.Errorf("%w: %s tells of too many dissents", gossip.ErrIgnore, from)
		}
	}
	if err := a.Check(l.n.p.Genesis.Domain()); err != nil {
		return a, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	return a, nil
}

// matters says whether anybody votes, and one of the providers has something to lose.
func (l *dissents) matters(a replica.Announcement) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range a.Receipts {
		if l.staked[r.Provider] && len(l.voters) > 0 {
			return true
		}
	}
	return false
}

// votes says whether a peer has a bond.
func (l *dissents) votes(key sign.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.voters[key]
}

// shows says whether a peer may read a blob because it votes on what that is of.
func (l *dissents) shows(to peer.ID, c cid.Cid) bool {
	key, err := p2p.KeyFromPeerID(to)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.voters[sign.Key(key)] && l.shown[c.KeyString()]
}

// run fetches what is heard, and tells of what this peer found, until ctx ends: again once those know who did not then that it matters.
func (l *dissents) run(ctx context.Context) error {
	return l.telling.run(ctx, 2*stakesFresh, l.tell, l.listen, func(ctx context.Context) { l.watch(ctx, l.set) })
}

// listen fetches and keeps what is heard, where this peer votes.
func (l *dissents) listen(ctx context.Context) {
	for {
		m, err := l.topic.Next(ctx)
		if err != nil {
			return
		}
		if m.From == l.n.p.Host.ID() || !l.votes(l.n.p.Key.Key()) || l.n.evidence.KnowsDissent(m.Data) {
			continue
		}
		if err := l.hear(ctx, m.From, m.Data); err != nil && ctx.Err() == nil {
			l.n.p.Log.Info("a dissent that others found is not kept", "by", m.From, "err", err)
		}
	}
}

// hear fetches a proof from who told of it, and keeps it.
func (l *dissents) hear(ctx context.Context, from peer.ID, a replica.Announcement) error {
	holder, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return err
	}
	c, err := workload.CIDOf(a.Hash)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dissentWait)
	defer cancel()
	if err := l.n.fetch(ctx, from, c, int64(a.Size)); err != nil {
		return fmt.Errorf("fetching it: %w", err)
	}
	b, err := l.read(c)
	l.n.drop(c)
	if err != nil {
		return err
	}
	d, err := a.Open(b)
	if err != nil {
		return err
	}
	_, err = l.n.evidence.HearDissent(ctx, d, sign.Key(holder))
	return err
}

func (l *dissents) read(c cid.Cid) ([]byte, error) {
	f, err := l.n.p.Blobs.Open(c)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, replica.MaxDissent+1))
}

// tell publishes what this peer found, and lets those who vote read it.
func (l *dissents) tell(ctx context.Context) {
	kept, err := l.n.evidence.Dissents(ctx)
	if err != nil {
		return
	}
	var all []replica.Announcement
	shown := map[string]bool{}
	for _, k := range kept {
		d, err := replica.UnmarshalDissent(k.Proof)
		if err != nil || !k.Own && !k.Told {
			continue
		}
		if time.Since(k.Found) > tellFor || k.Over() {
			l.forget(k, d)
			continue
		}
		a := replica.Announce(d)
		if !l.matters(a) {
			continue
		}
		if _, _, err := l.n.p.Blobs.Put(ctx, bytes.NewReader(k.Proof)); err != nil {
			l.n.p.Log.Warn("a dissent cannot be shown", "id", k.ID, "err", err)
			continue
		}
		for _, h := range append(contents(d.Work), a.Hash) {
			if c, err := workload.CIDOf(h); err == nil {
				shown[c.KeyString()] = true
			}
		}
		all = append(all, a)
	}
	l.mu.Lock()
	l.shown = shown
	l.mu.Unlock()
	for _, a := range all {
		l.publish(ctx, a.Marshal(), "the network was not told of a dissent; it will be again")
	}
}

// forget gives back what was only here to be shown.
func (l *dissents) forget(k evidence.Dissent, d replica.Dissent) {
	all := []sign.Hash{replica.Announce(d).Hash}
	if k.Told {
		all = append(all, contents(d.Work)...)
	}
	for _, h := range all {
		if c, err := workload.CIDOf(h); err == nil && l.n.p.Blobs.Has(c) {
			l.n.drop(c)
		}
	}
}

// contents are the digests of what a work reads.
func contents(w replica.Work) []sign.Hash {
	out := []sign.Hash{w.Program}
	for _, in := range w.Inputs {
		out = append(out, in.Content)
	}
	return out
}

// set says whether somebody has something at stake, or a vote, now who had not.
func (l *dissents) set(all []program.Provider) (more bool) {
	staked, voters := stakedOf(all), map[sign.Key]bool{}
	for _, p := range all {
		if p.Bonded > 0 {
			voters[p.Peer] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	more = anyNew(l.staked, staked) || anyNew(l.voters, voters)
	l.staked, l.voters = staked, voters
	return more
}

// keepDissent keeps the proof that results differ which this peer bought, and has the network told.
func (n *Node) keepDissent(ctx context.Context, d replica.Dissent) (string, error) {
	id, err := n.evidence.KeepDissent(ctx, d)
	if err == nil && n.dissents != nil {
		n.dissents.found()
	}
	select {
	case n.tells <- struct{}{}:
	default:
	}
	return id, err
}

// tellFor tells the network of a light client's proof: it keeps that, with what its work reads, and tells of it as of its own.
func (n *Node) tellFor(ctx context.Context, from peer.ID, d replica.Dissent) error {
	a := replica.Announce(d)
	if n.dissents == nil || !n.dissents.matters(a) {
		return stream.Refuse("nothing", "nobody votes on it, or none of the providers has anything at stake")
	}
	if now := n.Slot(); now == 0 || a.Ends() > now {
		return stream.Refuse("early", "of results to come, or this peer does not see the chain")
	}
	if n.evidence.KnowsDissent(a) {
		return nil
	}
	left := int64(tellMiB) << 20
	var fetched []cid.Cid
	err := func() error {
		for _, h := range contents(d.Work) {
			c, err := workload.CIDOf(h)
			if err != nil {
				return err
			}
			if n.p.Blobs.Has(c) {
				continue
			}
			if err := n.fetch(ctx, from, c, left); err != nil {
				return stream.Refuse("files", "what the work reads cannot be fetched, or is more than "+stream.Size(int64(tellMiB)<<20))
			}
			fetched = append(fetched, c)
			if size, err := n.p.Blobs.Size(c); err == nil {
				left -= size
			}
		}
		_, err := n.evidence.TellDissent(ctx, d)
		return err
	}()
	if err != nil {
		for _, c := range fetched {
			n.drop(c)
		}
		return err
	}
	n.dissents.found()
	return nil
}

// tellEntries has an entry peer tell of each proof of this light client, until one did or it is a day old.
func (n *Node) tellEntries(ctx context.Context) error {
	told := map[string]bool{}
	for ctx.Err() == nil {
		kept, err := n.evidence.Dissents(ctx)
		for _, k := range kept {
			d, err := replica.UnmarshalDissent(k.Proof)
			if err != nil || told[k.ID] || time.Since(k.Found) > tellFor {
				continue
			}
			for _, to := range n.p.Light.Entries() {
				for _, h := range contents(d.Work) {
					if c, err := workload.CIDOf(h); err == nil {
						n.grants.add(to, c)
					}
				}
				if err := entry.Tell(ctx, n.p.Host, n.tag, to, k.Proof); err != nil {
					n.p.Log.Info("an entry peer does not tell the network of a dissent", "id", k.ID, "entry", to, "err", err)
					continue
				}
				told[k.ID] = true
				n.p.Log.Info("an entry peer tells the network of a dissent", "id", k.ID, "entry", to)
				break
			}
		}
		if err != nil && ctx.Err() == nil {
			n.p.Log.Warn("dissents are not told of", "err", err)
		}
		t := time.NewTimer(tellEvery)
		select {
		case <-ctx.Done():
		case <-n.tells:
		case <-t.C:
		}
		t.Stop()
	}
	return nil
}

// readable says whether a peer may read a blob.
func (n *Node) readable(to peer.ID, c cid.Cid) bool {
	return n.grants.allowed(to, c) || n.dissents != nil && n.dissents.shows(to, c)
}

// voting is the chain with the list of registrations that all parts share.
type voting struct {
	evidence.Voting
	n *Node
}

func (v voting) Providers(ctx context.Context) ([]program.Provider, error) {
	return v.n.registered.Providers(ctx)
}

// judge has the stake of those taken who signed a false result, and votes on who did.
func (n *Node) judge(ctx context.Context) error {
	left, err := filepath.Glob(filepath.Join(n.p.Home, againDir+"*"))
	for _, dir := range left { // of an earlier process
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		n.p.Log.Warn("what an earlier process left is not removed", "err", err)
	}
	slot := time.Duration(max(n.p.Genesis.SlotMillis, 1)) * time.Millisecond
	return n.evidence.Judge(ctx, evidence.Judge{
		Chain: voting{n.p.Program.(evidence.Voting), n}, Key: n.p.Key.Key(), Again: n.again, Every: min(judgeEvery, 40*slot), Turn: max(uint64(judgeTurn/slot), 1),
	})
}

// again runs the work of a dissent once more, on files that this peer has, or that the holder has.
func (n *Node) again(ctx context.Context, d replica.Dissent, holder sign.Key) (replica.Result, error) {
	var none replica.Result
	rt := n.p.Runtimes[job.RuntimeWasm]
	if rt == nil {
		return none, fmt.Errorf("%w: this peer runs no WebAssembly", evidence.ErrUnable)
	}
	if w := d.Work; !holder.IsZero() && (w.MemoryMiB > againMiB || w.DiskMiB > againDisk) {
		return none, fmt.Errorf("%w: %d MiB of memory and %d of disk, at most %d and %d", evidence.ErrUnable, w.MemoryMiB, w.DiskMiB, againMiB, againDisk)
	}
	files := evidence.Files{Inputs: map[string]string{}}
	left := int64(againMiB) << 20
	for i, h := range contents(d.Work) {
		c, err := workload.CIDOf(h)
		if err != nil {
			return none, err
		}
		if !n.p.Blobs.Has(c) && !holder.IsZero() {
			from, err := p2p.PeerIDFromKey(holder)
			if err == nil {
				err = n.fetch(ctx, from, c, left)
			}
			if err != nil {
				return none, fmt.Errorf("fetching what the work reads: %w", err)
			}
			defer n.drop(c)
		}
		path, err := n.p.Blobs.Path(c)
		if err != nil {
			return none, err
		}
		size, err := n.p.Blobs.Size(c)
		if err != nil {
			return none, err
		}
		if left -= size; left < 0 {
			return none, fmt.Errorf("%w: its program and inputs are larger than %d MiB", evidence.ErrUnable, againMiB)
		}
		if i == 0 {
			files.Program = path
		} else {
			files.Inputs[d.Work.Inputs[i-1].Path] = path
		}
	}
	dir, err := os.MkdirTemp(n.p.Home, againDir)
	if err != nil {
		return none, err
	}
	defer os.RemoveAll(dir)
	r, err := evidence.Rerun(ctx, rt, d.Work, files, dir)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", evidence.ErrUnable, err)
	}
	return r, err
}
