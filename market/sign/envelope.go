package sign

import "fmt"

// EnvelopeOverhead is the size of an envelope with an empty payload.
const EnvelopeOverhead = KeySize + SignatureSize

// Envelope is a payload as received, with the key and signature that came with it:
//
//	offset  size  field
//	     0    32  key
//	    32    64  signature over Domain.Preimage(tag, payload)
//	    96     n  payload
//
// Nothing in it is believed until Open.
type Envelope struct {
	Key       Key
	Signature Signature
	Payload   []byte
}

// Seal signs the payload.
func Seal(d Domain, tag Tag, payload []byte, s Signer) (Envelope, error) {
	if err := tag.Check(); err != nil {
		return Envelope{}, err
	}
	if err := d.Check(); err != nil {
		return Envelope{}, err
	}
	sig, err := s.Sign(d.Preimage(tag, payload))
	if err != nil {
		return Envelope{}, fmt.Errorf("signing %s: %w", tag, err)
	}
	return Envelope{Key: s.Key(), Signature: sig, Payload: payload}, nil
}

// Open verifies the signature and returns the payload.
func (e Envelope) Open(d Domain, tag Tag) ([]byte, error) {
	if err := tag.Check(); err != nil {
		return nil, err
	}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if err := Verify(e.Key, d.Preimage(tag, e.Payload), e.Signature); err != nil {
		return nil, fmt.Errorf("opening %s: %w", tag, err)
	}
	return e.Payload, nil
}

// Marshal returns the wire form.
func (e Envelope) Marshal() []byte {
	out := make([]byte, 0, EnvelopeOverhead+len(e.Payload))
	out = append(out, e.Key[:]...)
	out = append(out, e.Signature[:]...)
	return append(out, e.Payload...)
}

// UnmarshalEnvelope reads the wire form with at most maxPayload bytes of payload. It copies b and verifies nothing.
func UnmarshalEnvelope(b []byte, maxPayload int) (Envelope, error) {
	if len(b) < EnvelopeOverhead {
		return Envelope{}, fmt.Errorf("%w: %d bytes, at least %d needed", ErrEnvelopeSize, len(b), EnvelopeOverhead)
	}
	if len(b)-EnvelopeOverhead > maxPayload {
		return Envelope{}, fmt.Errorf("%w: payload of %d bytes, at most %d allowed",
			ErrEnvelopeSize, len(b)-EnvelopeOverhead, maxPayload)
	}
	return Envelope{
		Key:       Key(b[:32]),
		Signature: Signature(b[32:96]),
		Payload:   append([]byte(nil), b[96:]...),
	}, nil
}
