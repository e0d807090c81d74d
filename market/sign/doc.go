// Package sign signs and verifies every Starling object, with strictly checked Ed25519 keys and one preimage layout.
//
// A signature never covers a bare hash or a bare payload. It covers the preimage
//
//	offset  size  field
//	     0    16  tag        ASCII, begins "starling:", padded with zeros
//	    16    32  chain      genesis hash of the Solana cluster
//	    48    32  program    Starling's program id; zero on a free network
//	    80    16  network    ASCII network id, padded with zeros
//	    96     n  payload    the bytes as received
//
// so that a signature made for one kind of object, chain, program or network means nothing for another. A Solana
// message begins with its signer count, a small number, so a preimage, which begins with 's', can never be one.
//
// Keys and signatures are held to the rules of Solana's Ed25519 precompile (dalek's verify_strict): a signature that
// passes here passes on chain, so a voucher accepted off chain can be claimed. crypto/ed25519 alone is not enough: it
// accepts the identity point as a key, under which any signature can be forged.
package sign
