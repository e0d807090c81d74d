package rewards

import "errors"

var (
	// ErrEpoch means that there is no such epoch, or that it cannot be counted.
	ErrEpoch = errors.New("no epoch that can be counted")
	// ErrCertificates means that the certificates are not of one unit in one epoch.
	ErrCertificates = errors.New("certificates that cannot be counted together")
	// ErrTable means that a table is invalid for its epoch.
	ErrTable = errors.New("not a table of the epoch")
	// ErrProof reports that a line does not follow from its certificates.
	ErrProof = errors.New("line differs from its certificates")
	// ErrShort reports that a table leaves out proven work.
	ErrShort = errors.New("table lacks proven work")
	// ErrNothing means that an epoch has no payee, or no amount to divide.
	ErrNothing = errors.New("no payee or no amount to divide")
	// ErrNotPaid means that the epoch pays no peer of the wallet.
	ErrNotPaid = errors.New("wallet is not a payee")
)
