package sign

import "errors"

var (
	// ErrKeyText means that text is not the base58 form of 32 bytes.
	ErrKeyText = errors.New("not a key: want base58 of 32 bytes")
	// ErrSignatureText means that text is not the base58 form of 64 bytes.
	ErrSignatureText = errors.New("not a signature: want base58 of 64 bytes")
	// ErrHashText means that text is not the hexadecimal form of 32 bytes.
	ErrHashText = errors.New("not a hash: want 64 hexadecimal digits")
	// ErrSmallOrder means that a point has order 1, 2, 4 or 8, under which signatures prove nothing.
	ErrSmallOrder = errors.New("point of small order")
	// ErrNotCanonical means that a number is not in its one allowed encoding, so the same value would have two forms.
	ErrNotCanonical = errors.New("encoding is not canonical")
	// ErrNotOnCurve means that 32 bytes are no point of the curve, so no private key belongs to them.
	ErrNotOnCurve = errors.New("not a point on the curve")
	// ErrBadSignature means that the signature does not belong to these bytes and this key.
	ErrBadSignature = errors.New("signature does not verify")
	// ErrTag means that a tag is empty, too long, not printable ASCII or lacks the "starling:" prefix.
	ErrTag = errors.New("bad signature tag")
	// ErrNetwork means that a network id is not 1 to 16 characters of a-z, 0-9 and '-'.
	ErrNetwork = errors.New("bad network id: want 1 to 16 of a-z, 0-9, '-'")
	// ErrEnvelopeSize means that an envelope is shorter than its key and signature, or its payload is too large.
	ErrEnvelopeSize = errors.New("signed envelope has a wrong size")
	// ErrKeypair means that a keypair file is not a Solana CLI keypair: a JSON array of 64 bytes, seed then public key.
	ErrKeypair = errors.New("not a Solana keypair file: want a JSON array of 64 bytes")
)
