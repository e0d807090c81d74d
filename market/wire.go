package market

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"google.golang.org/protobuf/proto"
)

// Size limits of messages. A larger message is malformed, whatever its signature.
const (
	MaxOfferPayload = 3 << 10 // a DHT record of 4 KiB holds the envelope
	MaxOrderPayload = 3 << 10 // a gossip message of 4 KiB holds the envelope
	MaxQuotePayload = 2 << 10

	// MaxOffers bounds the offers of one provider: their list must fit a record of the DHT.
	MaxOffers = 6
	// MaxOfferList bounds their list, bytes.
	MaxOfferList = 3<<10 + 512

	MaxAddrs    = 8   // multiaddrs of a peer
	maxAddrLen  = 256 // bytes of one
	MaxRuntimes = 8
	MaxRegions  = 8
	MaxExclude  = 32
	MaxCount    = 4096 // leases of one order
	Shards      = 16   // into which a class's providers are divided

	MaxOfferValidity = 24 * time.Hour
	MaxOrderValidity = time.Hour
	MaxQuoteValidity = time.Hour
	// MaxClockSkew is how far a peer's clock may run ahead.
	MaxClockSkew = 30 * time.Second
)

// open verifies the envelope in b and decodes its payload into m.
func open(d sign.Domain, tag sign.Tag, b []byte, maxPayload int, m proto.Message) (sign.Envelope, error) {
	e, err := sign.UnmarshalEnvelope(b, maxPayload)
	if err != nil {
		return e, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	payload, err := e.Open(d, tag)
	if errors.Is(err, sign.ErrTag) || errors.Is(err, sign.ErrNetwork) {
		return e, err
	} else if err != nil {
		return e, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	if err := proto.Unmarshal(payload, m); err != nil {
		return e, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return e, nil
}

// seal encodes m, bounds it and signs it.
func seal(d sign.Domain, tag sign.Tag, m proto.Message, maxPayload int, s sign.Signer) (sign.Envelope, error) {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return sign.Envelope{}, fmt.Errorf("encoding %s: %w", tag, err)
	}
	if len(payload) > maxPayload {
		return sign.Envelope{}, malformed(string(tag), "%d bytes, at most %d allowed", len(payload), maxPayload)
	}
	return sign.Seal(d, tag, payload, s)
}

// MarshalOffers makes the list of a provider's offers, each an envelope. ErrMalformed if there are too many or too long
// ones.
func MarshalOffers(envelopes [][]byte) ([]byte, error) {
	if len(envelopes) > MaxOffers {
		return nil, malformed("offers", "%d, at most %d", len(envelopes), MaxOffers)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&marketpb.OfferList{Offers: envelopes})
	if err != nil {
		return nil, fmt.Errorf("encoding offers: %w", err)
	}
	if len(b) > MaxOfferList {
		return nil, malformed("offers", "%d bytes, at most %d allowed", len(b), MaxOfferList)
	}
	return b, nil
}

// UnmarshalOffers splits a list into envelopes. DecodeOffer checks each one.
func UnmarshalOffers(b []byte) ([][]byte, error) {
	if len(b) > MaxOfferList {
		return nil, malformed("offers", "%d bytes, at most %d allowed", len(b), MaxOfferList)
	}
	var m marketpb.OfferList
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: offers: %w", ErrMalformed, err)
	}
	if len(m.Offers) > MaxOffers {
		return nil, malformed("offers", "%d, at most %d", len(m.Offers), MaxOffers)
	}
	return m.Offers, nil
}

func exactly[T ~[32]byte](field string, b []byte) (T, error) {
	if len(b) != 32 {
		return T{}, malformed(field, "%d bytes, want 32", len(b))
	}
	return T(b), nil
}

// millis writes a time as Unix milliseconds; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// maxMillis is the last millisecond of the year 9999.
const maxMillis = 253402300799999

func fromMillis(field string, ms int64) (time.Time, error) {
	if ms < 0 || ms > maxMillis {
		return time.Time{}, malformed(field, "%d is no time", ms)
	}
	if ms == 0 {
		return time.Time{}, nil
	}
	return time.UnixMilli(ms).UTC(), nil
}

// checkTimes reports whether an object is good at now: not expired, and not further ahead than an honest peer sets it.
func checkTimes(what string, now, notBefore, expires time.Time, validity time.Duration) error {
	if !expires.After(now) {
		return fmt.Errorf("%s: %w %s ago", what, ErrExpired, now.Sub(expires).Round(time.Millisecond))
	}
	if expires.Sub(now) > validity+MaxClockSkew {
		return fmt.Errorf("%s: %w: expires in %s, at most %s allowed",
			what, ErrNotYet, expires.Sub(now).Round(time.Second), validity)
	}
	if notBefore.Sub(now) > MaxClockSkew {
		return fmt.Errorf("%s: %w: starts in %s", what, ErrNotYet, notBefore.Sub(now).Round(time.Second))
	}
	return nil
}

func checkAddrs(field string, addrs []string) error {
	if len(addrs) > MaxAddrs {
		return malformed(field, "%d addresses, at most %d", len(addrs), MaxAddrs)
	}
	for _, a := range addrs {
		if !word(a, maxAddrLen, isPrintable) || a[0] != '/' {
			return malformed(field, "%.40q is not a multiaddr of at most %d bytes", a, maxAddrLen)
		}
	}
	return nil
}

func isPrintable(c byte) bool { return c > ' ' && c <= '~' }

func isRuntime(c byte) bool { return isName(c) || c == '/' || c == '.' }

func checkRuntime(name string) error {
	if !word(name, 32, isRuntime) {
		return malformed("runtime", "%.40q, want 1 to 32 of a-z, 0-9, '-', '/', '.'", name)
	}
	return nil
}

func checkVersion(v string) error {
	if v != "" && !word(v, 32, isPrintable) {
		return malformed("version", "%.40q, want at most 32 printable characters", v)
	}
	return nil
}

// ResourcesToPB is the message of r.
func ResourcesToPB(r Resources) *marketpb.Resources {
	return &marketpb.Resources{MilliCpu: r.MilliCPU, MemoryMib: r.MemoryMiB, DiskMib: r.DiskMiB, VramMib: r.VRAMMiB}
}

// ResourcesFromPB converts the output of ResourcesToPB; nil gives no resources.
func ResourcesFromPB(m *marketpb.Resources) Resources {
	return Resources{MilliCPU: m.GetMilliCpu(), MemoryMiB: m.GetMemoryMib(), DiskMiB: m.GetDiskMib(),
		VRAMMiB: m.GetVramMib()}
}
