package discovery

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
	"github.com/multiformats/go-multihash"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery/discoverypb"
)

// Limits of a record. All peers of a network must agree on them.
const (
	// MaxRecord bounds the signed envelope in bytes: every peer stores strangers' records.
	MaxRecord = 4 << 10
	// MaxTopics bounds the topics of one record; each costs its publisher two DHT keys, and near the change of epochs
	// four.
	MaxTopics = 16
	// MaxValidity bounds a record's validity after its signing.
	MaxValidity = time.Hour
	// MaxSkew is how far ahead of ours a signer's clock may be.
	MaxSkew = 2 * time.Minute

	// namespace is the first part of a record's DHT key: /starling-record/<peer ID bytes>.
	namespace = "starling-record"
)

// codec is the payload type inside the envelope, covered by the signature.
var codec = []byte("starling/record/1")

var topicWord = regexp.MustCompile(`^[a-z0-9/-]{1,32}$`)

// Topic is the search key of a record.
type Topic struct {
	Class  string // [a-z0-9/-]{1,32}
	Region string // [a-z0-9/-]{1,32}; in Find, "" means every region
}

// check refuses malformed topics.
func (t Topic) check() error {
	if !topicWord.MatchString(t.Class) || t.Region != "" && !topicWord.MatchString(t.Region) {
		return fmt.Errorf("%w: topic %q in %q", ErrMalformed, t.Class, t.Region)
	}
	return nil
}

// Record is a peer's announcement of itself.
type Record struct {
	// Seq is Unix milliseconds of signing; of two records the higher is believed. Zero lets Publish choose.
	Seq uint64
	// Expires is the time from which the record is invalid, in whole milliseconds. If zero, Publish renews the record
	// while Run runs.
	Expires time.Time
	Topics  []Topic
	Payload []byte
}

// sealed is a Record as the libp2p envelope sees it.
type sealed struct {
	Record
	network string
}

var _ record.Record = (*sealed)(nil)

// Domain binds the signature to this use and this network.
func (s *sealed) Domain() string { return "starling-record:" + s.network }

// Codec is the payload type.
func (s *sealed) Codec() []byte { return codec }

// MarshalRecord encodes the payload.
func (s *sealed) MarshalRecord() ([]byte, error) {
	m := &discoverypb.Record{Seq: s.Seq, Expires: s.Expires.UnixMilli(), Payload: s.Payload}
	for _, t := range s.Topics {
		m.Topics = append(m.Topics, &discoverypb.Topic{Class: t.Class, Region: t.Region})
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// UnmarshalRecord decodes the payload.
func (s *sealed) UnmarshalRecord(data []byte) error {
	var m discoverypb.Record
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	s.Record = Record{Seq: m.GetSeq(), Expires: time.UnixMilli(m.GetExpires()), Payload: m.GetPayload()}
	for _, t := range m.GetTopics() {
		s.Topics = append(s.Topics, Topic{Class: t.GetClass(), Region: t.GetRegion()})
	}
	return nil
}

// check refuses a record that breaks a limit at the time now.
func (r Record) check(now time.Time) error {
	if len(r.Topics) > MaxTopics {
		return fmt.Errorf("%w: %d topics, at most %d", ErrMalformed, len(r.Topics), MaxTopics)
	}
	for _, t := range r.Topics {
		if !topicWord.MatchString(t.Class) || !topicWord.MatchString(t.Region) {
			return fmt.Errorf("%w: topic %q in %q", ErrMalformed, t.Class, t.Region)
		}
	}
	if r.Seq > uint64(now.Add(MaxSkew).UnixMilli()) {
		return fmt.Errorf("%w: sequence is in the future", ErrBadTime)
	}
	signed := time.UnixMilli(int64(r.Seq))
	if r.Expires.After(signed.Add(MaxValidity)) {
		return fmt.Errorf("%w: valid for more than %v", ErrBadTime, MaxValidity)
	}
	if !now.Before(r.Expires) {
		return ErrExpired
	}
	return nil
}

// encode signs r for a network. r must pass its check at now.
func encode(network string, key crypto.PrivKey, r Record, now time.Time) ([]byte, error) {
	if err := r.check(now); err != nil {
		return nil, err
	}
	env, err := record.Seal(&sealed{Record: r, network: network}, key)
	if err != nil {
		return nil, fmt.Errorf("signing record: %w", err)
	}
	out, err := env.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding record: %w", err)
	}
	if len(out) > MaxRecord {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(out), MaxRecord)
	}
	return out, nil
}

// decode decodes the record of peer p and checks size, key, signature, limits and time. Signatures in known are not
// verified again.
func decode(network string, p peer.ID, data []byte, now time.Time, known *signed) (Record, error) {
	if len(data) > MaxRecord {
		return Record{}, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(data), MaxRecord)
	}
	if _, err := p2p.KeyFromPeerID(p); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	env, err := record.UnmarshalEnvelope(data)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !p.MatchesPublicKey(env.PublicKey) {
		return Record{}, fmt.Errorf("%w: signed by another peer", ErrBadSignature)
	}
	if !bytes.Equal(env.PayloadType, codec) {
		return Record{}, fmt.Errorf("%w: payload type %q", ErrMalformed, env.PayloadType)
	}
	s := sealed{network: network}
	if err := s.UnmarshalRecord(env.RawPayload); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := known.once(data, func() error {
		_, err := record.ConsumeTypedEnvelope(data, &sealed{network: network})
		return err
	}); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	return s.Record, s.check(now)
}

// signed caches the last envelopes of one network with good signatures: the DHT validates a record each time that it is
// offered, chosen or handed on. Its nil form has none.
type signed struct {
	mu   sync.Mutex
	good map[[sha256.Size]byte]bool
	last [maxSigned][sha256.Size]byte // a ring
	next int
}

// maxSigned envelopes are remembered.
const maxSigned = 1024

// once runs verify, unless it went well for these bytes before.
func (s *signed) once(data []byte, verify func() error) error {
	if s == nil {
		return verify()
	}
	id := sha256.Sum256(data)
	s.mu.Lock()
	good := s.good[id]
	s.mu.Unlock()
	if good {
		return nil
	}
	if err := verify(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.good == nil {
		s.good = map[[sha256.Size]byte]bool{}
	}
	if !s.good[id] { // another may have been faster
		delete(s.good, s.last[s.next])
		s.good[id], s.last[s.next] = true, id
		s.next = (s.next + 1) % maxSigned
	}
	return nil
}

// matches reports whether the record is about a topic.
func (r Record) matches(t Topic) bool {
	for _, own := range r.Topics {
		if own.Class == t.Class && (t.Region == "" || own.Region == t.Region) {
			return true
		}
	}
	return false
}

// key is the DHT key of p's record.
func key(p peer.ID) string { return "/" + namespace + "/" + string(p) }

// topicKey is the DHT key under which the publishers in one shard of a topic are found in an epoch.
func topicKey(network string, t Topic, shard int, epoch int64) cid.Cid {
	h := sha256.New()
	for _, part := range []string{"starling/topic/2", network, t.Class, t.Region, strconv.Itoa(shard),
		strconv.FormatInt(epoch, 10)} {
		h.Write([]byte(part))
		h.Write([]byte{0}) // occurs in no part
	}
	mh, err := multihash.Encode(h.Sum(nil), multihash.SHA2_256)
	if err != nil {
		panic("discovery: " + err.Error()) // the function and length are known
	}
	return cid.NewCidV1(cid.Raw, mh)
}

// shardOf spreads publishers evenly over the shards of every topic.
func shardOf(p peer.ID, shards int) int {
	sum := sha256.Sum256([]byte(p))
	return int(sum[0]) % shards
}

// topicKeys are the DHT keys that publish r in an epoch: for each topic its region and every region.
func (r Record) topicKeys(network string, shard int, epoch int64) []cid.Cid {
	var keys []cid.Cid
	done := make(map[Topic]bool)
	for _, t := range r.Topics {
		for _, t := range []Topic{t, {Class: t.Class}} {
			if !done[t] {
				done[t] = true
				keys = append(keys, topicKey(network, t, shard, epoch))
			}
		}
	}
	return keys
}
